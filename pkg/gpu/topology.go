package gpu

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
)

// TopologyVersion is the version of the JSON format of a Topology. New fields may be added to the
// same version; the version changes if a field disappears or changes its meaning.
const TopologyVersion = 1

// Topology describes the locations of a node's GPUs. Frameworks need it to place processes near the
// GPUs.
type Topology struct {
	Version int `json:"version"`
	// GPUs are all GPUs that NVML shows, or, on a node without NVIDIA's GPUs, all of AMD's and
	// Intel's. Those of NVML are in its order, which is that of the PCI bus and of nvidia-smi;
	// CUDA_VISIBLE_DEVICES has no influence. Nil (null in JSON) means that they are unknown, which is
	// different from none.
	GPUs []Locality `json:"gpus"`
	// Domain is the NVLink domain of all GPUs, or nil (null in JSON) if they are not all in the same
	// one.
	Domain *NVLinkDomain `json:"nvlink_domain"`
}

// Locality is the location of one GPU. A GPU that cannot be used is also in the list, so that the
// positions in the list are the indices.
type Locality struct {
	Index  int    `json:"index"`
	Vendor Vendor `json:"vendor,omitempty"` // empty: NVIDIA
	UUID   string `json:"uuid"`
	// Reason is the reason why the GPU cannot be used, for example NO_PERMISSION. It is empty if it
	// can be used.
	Reason NVMLReturn `json:"why,omitempty"`
	Model  string     `json:"model,omitempty"`
	// Instances are the UUIDs of the instances of a partitioned GPU (MIG). Nil means that the GPU is
	// not partitioned, which is different from empty: a GPU in MIG mode without instances cannot be
	// used by programs.
	Instances []string `json:"instances,omitzero"`
	// Tiles is the number of tiles of an Intel GPU, if it has several.
	Tiles int `json:"tiles,omitempty"`

	Bus  string `json:"bus"`  // PCI address: 0000:3b:00.0
	NUMA int    `json:"numa"` // the NUMA node with the nearest CPUs; -1: none, or unknown
	CPUs string `json:"cpus"` // the CPUs near it, in the kernel's list format: 0-47,96-143
	// NICs are the nearest network cards, which all have the same distance, by PCI address.
	NICs   []NIC         `json:"nics"`
	Domain *NVLinkDomain `json:"nvlink_domain"`
}

// NIC is one of the network cards nearest to a GPU. It may be without a link.
type NIC struct {
	Name     string   `json:"name"` // for example mlx5_0, or eth0 on a node without RDMA devices
	Bus      string   `json:"bus"`
	Distance Distance `json:"distance"`
}

// Distance is the type of the path between two PCI devices, as in nvidia-smi topo.
type Distance string

// The distances, from near to far.
const (
	OneSwitch       Distance = "PIX"  // at most one PCIe switch
	SeveralSwitches Distance = "PXB"  // several switches, but no host bridge
	HostBridge      Distance = "PHB"  // a host bridge: through the CPU
	SameNUMA        Distance = "NODE" // several host bridges of one NUMA node
	BetweenNUMAs    Distance = "SYS"  // from one NUMA node to another
)

var distances = []Distance{OneSwitch, SeveralSwitches, HostBridge, SameNUMA, BetweenNUMAs}

// NVLinkDomain identifies a set of GPUs, on one or several nodes, that are connected by NVLink.
type NVLinkDomain struct {
	Cluster string `json:"cluster"` // UUID of the fabric
	Clique  uint32 `json:"clique"`  // the part of the fabric
}

// String returns "<cluster>.<clique>", as in NVIDIA's node label nvidia.com/gpu.clique.
func (d NVLinkDomain) String() string { return fmt.Sprintf("%s.%d", d.Cluster, d.Clique) }

// BuildTopology returns the topology of the GPUs in the facts, using the files of the kernel below
// root, which is "/" except in tests. Values that cannot be read are left empty.
//
// NUMA nodes are the kernel's, not those in the facts: NVML returns the NUMA node that a GPU's own
// memory forms, if it does.
func BuildTopology(root string, f Facts) Topology {
	t := Topology{Version: TopologyVersion}
	sys := sysfs{os.DirFS(root)}
	cards := sys.networkCards()
	if f.Init != Success {
		if len(f.OtherGPUs) > 0 {
			t.GPUs = sys.otherLocalities(f.OtherGPUs, cards)
		}
		return t
	}
	t.GPUs = make([]Locality, 0, len(f.GPUs))
	for _, g := range f.GPUs {
		at := sys.locate(g.Bus.OrZero(), cards)
		at.Index, at.UUID, at.Model = g.Index, g.UUID.OrZero(), g.Name.OrZero()
		at.Reason, _ = g.LossReason()
		at.Domain, at.Instances = gpuDomain(g), instanceUUIDs(g)
		t.GPUs = append(t.GPUs, at)
	}
	t.Domain = commonDomain(t.GPUs)
	return t
}

// locate returns what the kernel knows about the location of the GPU with a PCI address, which may
// be empty.
func (s sysfs) locate(bus string, cards []nicPosition) Locality {
	at := s.devicePosition(path.Join(pciDevices, bus))
	return Locality{Bus: bus, NUMA: at.numa, CPUs: s.nearCPUs(at), NICs: nearestNICs(at, cards)}
}

func instanceUUIDs(g GPU) []string {
	if !g.MIG.OrZero().Current {
		return nil
	}
	uuids := make([]string, len(g.MIGInstances))
	for i, instance := range g.MIGInstances {
		uuids[i] = instance.UUID
	}
	return uuids
}

// gpuDomain returns the NVLink domain that a GPU has joined, or nil. The fabric of a single node
// (an HGX board) does not count; its UUID consists of zeros.
func gpuDomain(g GPU) *NVLinkDomain {
	fabric := g.Fabric.OrZero()
	if !fabric.HasJoined() || fabric.IsSingleNode() {
		return nil
	}
	return &NVLinkDomain{Cluster: fabric.Cluster, Clique: fabric.Clique}
}

func commonDomain(gpus []Locality) *NVLinkDomain {
	if len(gpus) == 0 || slices.ContainsFunc(gpus, func(g Locality) bool {
		return g.Domain == nil || *g.Domain != *gpus[0].Domain
	}) {
		return nil
	}
	return gpus[0].Domain
}

// TopologyFileVariable is the environment variable with the path of a file that contains the
// Topology as JSON.
const TopologyFileVariable = "BRINGUPD_TOPOLOGY"

// EnvVariables returns the topology as environment variables. Unknown values are set to the empty
// string, so that inherited values are not mistaken for ours. The values of GPUs are separated by
// commas, or by semicolons if they contain commas; the position in the list is the index.
func (t Topology) EnvVariables() map[string]string {
	env := map[string]string{
		"BRINGUPD_GPU_COUNT": "", "BRINGUPD_NVLINK_DOMAIN": "",
		"BRINGUPD_GPU_UUIDS": t.joinEach(",", func(g Locality) string { return g.UUID }),
		"BRINGUPD_GPU_NUMA":  t.joinEach(",", func(g Locality) string { return strconv.Itoa(g.NUMA) }),
		"BRINGUPD_GPU_CPUS":  t.joinEach(";", func(g Locality) string { return g.CPUs }),
		"BRINGUPD_GPU_NICS": t.joinEach(";", func(g Locality) string {
			return textutil.JoinEach(g.NICs, ",", func(nic NIC) string { return nic.Name })
		}),
	}
	if t.GPUs != nil {
		env["BRINGUPD_GPU_COUNT"] = strconv.Itoa(len(t.GPUs))
	}
	if t.Domain != nil {
		env["BRINGUPD_NVLINK_DOMAIN"] = t.Domain.String()
	}
	return env
}

func (t Topology) joinEach(separator string, of func(Locality) string) string {
	return textutil.JoinEach(t.GPUs, separator, of)
}

const (
	driverGPUDir        = "proc/driver/nvidia/gpus" // one directory per GPU, by PCI address
	driverCapabilityDir = "proc/driver/nvidia/capabilities"
	uuidLength          = len("GPU-8f6f4f3a-0000-0000-0000-000000000000")
)

// QuickTopology returns the topology of this node's GPUs from files of the kernel. That is much
// faster than initialising NVML; a rank that was started by a launcher waits for it. The result
// lacks the NVLink domains. root is "/", or a directory that replaces it. ok is false if NVML is
// needed: if there is no driver, the driver provides less in these files, a GPU is partitioned
// (MIG), or this process may use no GPU.
func QuickTopology(root string) (t Topology, ok bool) {
	sys := sysfs{os.DirFS(root)}
	facts := Facts{Version: FactsVersion, Init: Success}
	for _, bus := range sys.listNames(driverGPUDir) { // in bus order, which is NVML's order
		values := sys.readKeyValues(path.Join(driverGPUDir, bus, "information"))
		// excluded by a setting of the driver, and so missing in NVML, too
		if cmp.Or(values["GPU Excluded"], values["Blacklisted"]) == "Yes" {
			continue
		}
		minor, err := strconv.Atoi(values["Device Minor"])
		uuid := values["GPU UUID"]
		if err != nil || len(uuid) != uuidLength || strings.Contains(uuid, "?") || sys.isPartitioned(minor) {
			return Topology{}, false
		}
		g := GPU{Index: len(facts.GPUs), Handle: NoPermission, UUID: newReading(uuid),
			Bus: newReading(bus), Name: newReading(values["Model"])}
		// This call fails if a cgroup denies access to the GPU. It does not initialise the GPU.
		if unix.Access(path.Join(root, fmt.Sprintf("dev/nvidia%d", minor)), unix.R_OK|unix.W_OK) == nil {
			g.Handle, ok = Success, true
		}
		facts.GPUs = append(facts.GPUs, g)
	}
	if !ok {
		return Topology{}, false
	}
	return BuildTopology(root, facts), true
}

// readKeyValues parses a file with lines of the form NAME: VALUE.
func (s sysfs) readKeyValues(file string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(s.readText(file)) {
		name, value, _ := strings.Cut(line, ":")
		values[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return values
}

func (s sysfs) isPartitioned(minor int) bool {
	for _, name := range s.listNames(path.Join(driverCapabilityDir, fmt.Sprintf("gpu%d", minor), "mig")) {
		if strings.HasPrefix(name, "gi") {
			return true
		}
	}
	return false
}
