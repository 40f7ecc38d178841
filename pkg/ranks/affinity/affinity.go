// Package affinity discovers the CPUs, memory, GPUs and network cards of a node that this process may use,
// divides them among the ranks of the node, and binds a thread to such a part, which all its child
// processes inherit. It also verifies the binding of a process. It does not know how ranks are
// numbered in a world.
package affinity

import (
	"encoding/json"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// Affinity is the binding of one rank. Resources that are empty are not bound.
type Affinity struct {
	CPUs IDSet `json:"cpus,omitempty"`
	Mems IDSet `json:"mems,omitempty"` // NUMA nodes of its memory
	// GPUs are named as in the variable of their vendor, such as CUDA_VISIBLE_DEVICES for NVIDIA.
	GPUs   []string   `json:"gpus,omitempty"`
	Vendor gpu.Vendor `json:"gpu_vendor,omitempty"` // empty for NVIDIA
	// NICs are RDMA devices with their ports, such as mlx5_0:1.
	NICs []string `json:"nics,omitempty"`
	// Note describes why less is bound than requested. It is empty if nothing is missing.
	Note string `json:"note,omitempty"`
}

// EnvVariable is the environment variable with the rank's [Affinity] as JSON. It allows the rank to
// verify its binding.
const EnvVariable = "BRINGUPD_BINDING"

// Variables with which UCX and NCCL select network cards.
const (
	ucxVariable  = "UCX_NET_DEVICES"
	ncclVariable = "NCCL_IB_HCA"
)

// Environ returns the variables of a rank for its binding, each as NAME=VALUE: the binding itself,
// its GPUs and, unless they are set already, its network cards. has reports whether a variable is
// set already.
func (p Affinity) Environ(has func(name string) bool) []string {
	text, _ := json.Marshal(p) // cannot fail: only strings and numbers
	env := []string{EnvVariable + "=" + string(text)}
	if len(p.GPUs) > 0 {
		env = append(env, p.Vendor.EnvVariable()+"="+strings.Join(p.GPUs, ","))
	}
	// HIP and Ray select among the GPUs that ROCR makes visible, and number these from 0.
	for _, name := range []string{gpu.HIPVariable, gpu.VisibleDevicesVariable} {
		if p.Vendor == gpu.AMD && len(p.GPUs) > 0 && has(name) {
			env = append(env, name+"="+textutil.ListOrdinals(len(p.GPUs)))
		}
	}
	if len(p.NICs) == 0 {
		return env
	}
	nics := strings.Join(p.NICs, ",")
	if !has(ucxVariable) {
		env = append(env, ucxVariable+"="+nics)
	}
	if !has(ncclVariable) { // without the second "=", mlx5_1 would also match mlx5_10
		env = append(env, ncclVariable+"=="+nics)
	}
	return env
}

// String returns the binding as text for users, such as CPUs 0-3,8, memory 0, GPU 1, mlx5_0:1.
func (p Affinity) String() string {
	var parts []string
	add := func(what, value string) {
		if value != "" {
			parts = append(parts, strings.TrimSpace(what+" "+value))
		}
	}
	add("CPUs", p.CPUs.String())
	add("memory", p.Mems.String())
	add("GPU", strings.Join(p.GPUs, ","))
	add("", strings.Join(p.NICs, ","))
	if len(parts) == 0 {
		return "not bound"
	}
	return strings.Join(parts, ", ")
}
