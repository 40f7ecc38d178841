package binding

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Place is what one rank has for its own. What is empty is not bound.
type Place struct {
	CPUs Set `json:"cpus,omitempty"`
	Mems Set `json:"mems,omitempty"` // memory nodes
	// GPUs are named as in the variable of their vendor, CUDA_VISIBLE_DEVICES for NVIDIA.
	GPUs   []string   `json:"gpus,omitempty"`
	Vendor gpu.Vendor `json:"gpu_vendor,omitempty"` // empty: NVIDIA
	// NICs are RDMA devices with their port: mlx5_0:1.
	NICs []string `json:"nics,omitempty"`
	// Note says why less was bound than was asked for; empty: nothing was left.
	Note string `json:"note,omitempty"`
}

// Variable is the environment variable with a rank's Place as JSON, by which it can find out whether it is there.
const Variable = "BRINGUPD_BINDING"

// ParsePlace reads the value of Variable.
func ParsePlace(text string) (p Place, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Place{}, fmt.Errorf("cannot read %s=%s: %v", Variable, prose.Cut(text, 80), err)
	}
	return p, nil
}

const (
	ucxVariable  = "UCX_NET_DEVICES"
	ncclVariable = "NCCL_IB_HCA"
)

// Environ returns what a rank is to be told of its place, each NAME=VALUE: its GPUs, its network cards, where nobody
// has set these (has tells whether a variable is set), and the place itself, in Variable.
func (p Place) Environ(has func(name string) bool) []string {
	text, _ := json.Marshal(p) // strings and numbers
	env := []string{Variable + "=" + string(text)}
	if len(p.GPUs) > 0 {
		env = append(env, p.Vendor.Variable()+"="+strings.Join(p.GPUs, ","))
	}
	// HIP and Ray select again among the GPUs that ROCR shows, and number these from 0.
	for _, name := range []string{gpu.HIPVariable, gpu.VisibleVariable} {
		if p.Vendor == gpu.AMD && len(p.GPUs) > 0 && has(name) {
			env = append(env, name+"="+prose.Ordinals(len(p.GPUs)))
		}
	}
	if len(p.NICs) == 0 {
		return env
	}
	nics := strings.Join(p.NICs, ",")
	if !has(ucxVariable) {
		env = append(env, ucxVariable+"="+nics)
	}
	if !has(ncclVariable) { // without the "=", mlx5_1 would be mlx5_10 too
		env = append(env, ncclVariable+"=="+nics)
	}
	return env
}

// Misled tells how an environment leads a rank from its place: GPUs that are not its own, in a sentence. Fewer of its
// own, or in another order, are its own affair.
func (p Place) Misled(lookup func(name string) (value string, set bool)) []string {
	if len(p.GPUs) == 0 {
		return nil
	}
	variable := p.Vendor.Variable()
	value, set := lookup(variable)
	own := strings.Join(p.GPUs, ",")
	if !set {
		return []string{fmt.Sprintf("%s is not set: it would use all GPUs, and its own are %s", variable, own)}
	}
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains(p.GPUs, name) {
			return []string{fmt.Sprintf("%s is %s, and its own GPUs are %s", variable, prose.Cut(value, 80), own)}
		}
	}
	return nil
}

// String returns the place in words, as for a line of a table: CPUs 0-3,8, memory 0, GPU 1, mlx5_0:1.
func (p Place) String() string {
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
