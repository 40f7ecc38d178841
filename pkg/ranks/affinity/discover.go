package affinity

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// Files and directories that are read, relative to the root.
const (
	cpuDir     = "sys/devices/system/cpu"
	nodeDir    = "sys/devices/system/node"
	statusFile = "proc/thread-self/status"
)

// DiscoverNode returns the hardware of this node. root is "/" or a substitute for tests: sys is
// read below it, and proc/thread-self/status, which contains the CPUs and memory nodes that the
// calling thread may use. gpus are the GPUs of the node, from gpu.BuildTopology. lookup reads the
// environment, in which CUDA_VISIBLE_DEVICES or another vendor's variable names the GPUs of the
// job; the environment must be that before the variable is narrowed for a rank.
//
// Discover returns an error if no rank could be bound: the CPUs cannot be read, or
// CUDA_VISIBLE_DEVICES names a GPU that does not exist.
func DiscoverNode(root string, gpus gpu.Topology, lookup func(name string) (value string, set bool)) (Node, error) {
	root = cmp.Or(root, "/")
	sys := sysReader{os.DirFS(root)}
	n := Node{NUMA: sys.readNUMANodes(), GPUs: []GPU{}, NICs: append([]gpu.RDMADevice{}, gpu.FindRDMADevices(root)...)}
	var err error
	if n.Cores, err = sys.readCores(n.NUMA); err != nil {
		return Node{}, fmt.Errorf("cannot read the CPU topology of this node: %w", err)
	}
	if n.CPUs, n.Mems, err = sys.readAllowed(); err != nil {
		return Node{}, fmt.Errorf("cannot read the CPUs and memory that this process may use: %w", err)
	}
	// CPUs that are offline may be in the list of allowed CPUs.
	if n.CPUs = n.CPUs.intersect(cpusOfCores(n.Cores)); len(n.CPUs) == 0 {
		return Node{}, fmt.Errorf("cannot find usable CPUs: none of the CPUs listed in /%s is online", statusFile)
	}
	n.Mems = slices.DeleteFunc(n.Mems, func(number int) bool {
		return !slices.ContainsFunc(n.NUMA, func(node NUMANode) bool {
			return node.Number == number && len(node.CPUs) > 0
		})
	})
	units, err := gpus.VisibleUnits(lookup)
	if err != nil {
		return Node{}, err
	}
	for _, unit := range units {
		n.GPUs = append(n.GPUs, n.describeGPU(unit))
	}
	return n, nil
}

func (n Node) describeGPU(unit gpu.Unit) GPU {
	g := GPU{Name: unit.Name, Vendor: unit.Vendor, Index: unit.Index, UUID: unit.UUID, Bus: unit.Bus, NUMA: unit.NUMA}
	near, _ := ParseIDSet(unit.CPUs) // an invalid list counts as empty
	if g.CPUs = near.intersect(n.CPUs); len(g.CPUs) == 0 {
		g.CPUs, g.IsFar = n.CPUs, true
	}
	for _, card := range n.NICs {
		if slices.ContainsFunc(unit.NICs, func(near gpu.NIC) bool { return near.Name == card.Name }) {
			g.NICs = append(g.NICs, activePorts(card)...)
		}
	}
	return g
}

// activePorts returns the ports of a card that have a link, in UCX's format, such as mlx5_0:1.
func activePorts(card gpu.RDMADevice) (names []string) {
	for _, port := range card.Ports {
		names = append(names, fmt.Sprintf("%s:%d", card.Name, port))
	}
	return names
}

type sysReader struct{ fs.FS }

// readCores returns the cores of all CPUs that are online. It reads one file per core: there may be
// hundreds of CPUs, each read of sysfs takes microseconds, and every rank waits for the result.
func (s sysReader) readCores(numa []NUMANode) (cores []Core, err error) {
	online, err := s.readSet(path.Join(cpuDir, "online"))
	if err != nil {
		return nil, err
	}
	seen, packages := map[int]bool{}, map[int]int{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		c := Core{NUMA: -1, Package: s.readPackage(cpu, packages),
			CPUs: s.readSiblings(cpu, "core_cpus_list", "thread_siblings_list").intersect(online)}
		for _, sibling := range c.CPUs {
			seen[sibling] = true
		}
		for _, node := range numa {
			if node.CPUs.contains(cpu) {
				c.NUMA = node.Number
			}
		}
		cores = append(cores, c)
	}
	slices.SortFunc(cores, Core.compare)
	return cores, nil
}

// readPackage returns the package of a CPU. It caches the packages of the other CPUs in known.
func (s sysReader) readPackage(cpu int, known map[int]int) int {
	number, found := known[cpu]
	if found {
		return number
	}
	number, _ = strconv.Atoi(s.readText(path.Join(cpuDir, fmt.Sprintf("cpu%d", cpu), "topology",
		"physical_package_id")))
	number = max(number, 0) // some virtual machines report -1
	for _, sibling := range s.readSiblings(cpu, "package_cpus_list", "core_siblings_list") {
		known[sibling] = number
	}
	return number
}

// readSiblings returns the CPUs in the first of the lists that can be read, or cpu alone if none
// can. Each list has two names: since Linux 5.3, the first has the contents that the second has
// always had.
func (s sysReader) readSiblings(cpu int, lists ...string) IDSet {
	for _, name := range lists {
		all, err := s.readSet(path.Join(cpuDir, fmt.Sprintf("cpu%d", cpu), "topology", name))
		if err == nil && all.contains(cpu) {
			return all
		}
	}
	return IDSet{cpu}
}

func (s sysReader) readNUMANodes() (nodes []NUMANode) {
	online, _ := s.readSet(path.Join(nodeDir, "online"))
	for _, node := range online {
		cpus, _ := s.readSet(path.Join(nodeDir, fmt.Sprintf("node%d", node), "cpulist"))
		nodes = append(nodes, NUMANode{Number: node, CPUs: cpus})
	}
	return nodes
}

func (s sysReader) readAllowed() (cpus, mems IDSet, err error) {
	text, err := fs.ReadFile(s.FS, statusFile)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		switch name, list, _ := strings.Cut(line, ":"); name {
		case "Cpus_allowed_list":
			cpus, err = ParseIDSet(list)
		case "Mems_allowed_list":
			mems, err = ParseIDSet(list)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return cpus, mems, nil
}

func (s sysReader) readSet(name string) (IDSet, error) {
	text, err := fs.ReadFile(s.FS, name)
	if err != nil {
		return nil, err
	}
	return ParseIDSet(string(text))
}

func (s sysReader) readText(name string) string {
	text, _ := fs.ReadFile(s.FS, name)
	return strings.TrimSpace(string(text))
}
