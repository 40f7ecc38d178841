package gpu

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// TopologyVersion is the version of the form that a Topology has as JSON. New fields may come under the same number;
// one that goes, or means something else, has a new number.
const TopologyVersion = 1

// Topology is where the GPUs of a node sit: what frameworks need to place processes near them.
type Topology struct {
	Version int `json:"version"`
	// GPUs are all that NVML shows or, on a node without NVIDIA's, all of AMD's and Intel's. Those of NVML are in its order, which is that of the PCI bus and of nvidia-smi: CUDA_VISIBLE_DEVICES
	// hides none here. Nil (null) is that nobody could look, which is not the same as none.
	GPUs []Locality `json:"gpus"`
	// Domain is the NVLink domain of the node: that of its GPUs, where all are in the same; null otherwise.
	Domain *Domain `json:"nvlink_domain"`
}

// Locality is where one GPU sits. One that can't be had has its place in the list all the same, so that the places are
// the indices.
type Locality struct {
	Index  int    `json:"index"`
	Vendor Vendor `json:"vendor,omitempty"` // empty: NVIDIA
	UUID   string `json:"uuid"`
	// Why is the answer of a GPU that can't be had, as NO_PERMISSION; empty: it can be.
	Why   Return `json:"why,omitempty"`
	Model string `json:"model,omitempty"`
	// Instances are the UUIDs of those that the GPU is cut into (MIG). Nil is that it is whole, which is not the same as
	// none: a GPU that is to be cut is of no use to a program.
	Instances []string `json:"instances,omitzero"`
	// Tiles is how many tiles an Intel GPU has if there are several.
	Tiles int `json:"tiles,omitempty"`

	Bus  string `json:"bus"`  // PCI address: 0000:3b:00.0
	NUMA int    `json:"numa"` // the node whose CPUs are near; -1: none, or not known
	CPUs string `json:"cpus"` // those that are near, as the kernel lists them: 0-47,96-143
	// NICs are the nearest network cards: all at the same distance, by PCI address.
	NICs   []NIC   `json:"nics"`
	Domain *Domain `json:"nvlink_domain"`
}

// NIC is a network card as near as any other to a GPU. Whether it has a link is not looked at here.
type NIC struct {
	Name     string   `json:"name"` // mlx5_0; eth0 on a node without RDMA devices
	Bus      string   `json:"bus"`
	Distance Distance `json:"distance"`
}

// Distance is the way between two PCI devices, in the words of nvidia-smi topo.
type Distance string

// The distances, from near to far.
const (
	OneSwitch    Distance = "PIX"  // at most one PCIe switch
	Switches     Distance = "PXB"  // several, and no host bridge
	HostBridge   Distance = "PHB"  // a host bridge: through the CPU
	SameNUMA     Distance = "NODE" // several host bridges of one NUMA node
	BetweenNUMAs Distance = "SYS"  // from one NUMA node to another
)

var distances = []Distance{OneSwitch, Switches, HostBridge, SameNUMA, BetweenNUMAs}

// Domain is a set of GPUs, on one node or several, that reach each other over NVLink.
type Domain struct {
	Cluster string `json:"cluster"` // UUID of the fabric
	Clique  uint32 `json:"clique"`  // the part of it
}

// String returns "<cluster>.<clique>", as in NVIDIA's node label nvidia.com/gpu.clique.
func (d Domain) String() string { return fmt.Sprintf("%s.%d", d.Cluster, d.Clique) }

// Topologize finds out where the GPUs of some facts sit, by the sysfs below root: "/" but for tests. What can't be read
// is left open; there are no errors.
//
// The NUMA node is the kernel's, not that of the facts: NVML's is the one that a GPU's own memory makes up, where it
// does.
func Topologize(root string, f Facts) Topology {
	t := Topology{Version: TopologyVersion}
	sys := sysfs{os.DirFS(root)}
	switch {
	case f.Init == Success:
	case len(f.Others) > 0:
		t.GPUs = sys.localities(f.Others, sys.cards())
		return t
	default:
		return t
	}
	cards := sys.cards()
	t.GPUs = make([]Locality, 0, len(f.GPUs))
	for _, g := range f.GPUs {
		at := Locality{Index: g.Index, NUMA: -1, NICs: []NIC{}, Domain: domainOf(g), Instances: instances(g)}
		at.UUID, at.Model = g.UUID.OrZero(), g.Name.OrZero()
		at.Why, _ = g.Lost()
		if at.Bus, _ = g.Bus.Get(); at.Bus != "" {
			here := sys.slot(path.Join(pciDevices, at.Bus))
			at.NUMA, at.CPUs, at.NICs = here.numa, sys.cpus(here), nearest(here, cards)
		}
		t.GPUs = append(t.GPUs, at)
	}
	t.Domain = commonDomain(t.GPUs)
	return t
}

// instances are the UUIDs of a GPU's instances; nil where it is not cut up.
func instances(g GPU) []string {
	if !g.MIG.OrZero().Current {
		return nil
	}
	uuids := make([]string, len(g.MIGs))
	for i, instance := range g.MIGs {
		uuids[i] = instance.UUID
	}
	return uuids
}

// domainOf is the NVLink domain of a GPU that has joined one; nil otherwise. The fabric of a single node (an HGX board)
// has no UUID, but zeros.
func domainOf(g GPU) *Domain {
	fabric := g.Fabric.OrZero()
	if !fabric.Joined() || fabric.Single() {
		return nil
	}
	return &Domain{Cluster: fabric.Cluster, Clique: fabric.Clique}
}

// commonDomain is the domain of all; nil where there is no such.
func commonDomain(gpus []Locality) *Domain {
	if len(gpus) == 0 || slices.ContainsFunc(gpus, func(g Locality) bool {
		return g.Domain == nil || *g.Domain != *gpus[0].Domain
	}) {
		return nil
	}
	return gpus[0].Domain
}

// TopologyFile is the variable that names the file with a Topology as JSON.
const TopologyFile = "BRINGUPD_TOPOLOGY"

// Env is the topology as variables, those that would be empty too, so that nobody takes another's for ours. GPUs are
// told apart by commas, or by semicolons where the value of one has commas itself; the place in the list is the index.
func (t Topology) Env() map[string]string {
	env := map[string]string{
		"BRINGUPD_GPU_COUNT": "", "BRINGUPD_NVLINK_DOMAIN": "",
		"BRINGUPD_GPU_UUIDS": joinEach(t.GPUs, ",", func(g Locality) string { return g.UUID }),
		"BRINGUPD_GPU_NUMA":  joinEach(t.GPUs, ",", func(g Locality) string { return strconv.Itoa(g.NUMA) }),
		"BRINGUPD_GPU_CPUS":  joinEach(t.GPUs, ";", func(g Locality) string { return g.CPUs }),
		"BRINGUPD_GPU_NICS":  joinEach(t.GPUs, ";", Locality.nicNames),
	}
	if t.GPUs != nil {
		env["BRINGUPD_GPU_COUNT"] = strconv.Itoa(len(t.GPUs))
	}
	if t.Domain != nil {
		env["BRINGUPD_NVLINK_DOMAIN"] = t.Domain.String()
	}
	return env
}

func (l Locality) nicNames() string {
	return joinEach(l.NICs, ",", func(nic NIC) string { return nic.Name })
}

// joinEach joins what is said of each of a list.
func joinEach[T any](list []T, between string, of func(T) string) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = of(one)
	}
	return strings.Join(texts, between)
}
