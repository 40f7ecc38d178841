package binding

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
	cpuFolder  = "sys/devices/system/cpu"
	nodeFolder = "sys/devices/system/node"
	statusFile = "proc/thread-self/status"
)

// Discover returns the hardware of this node. root is "/" or a substitute for tests: sys is read
// below it, and proc/thread-self/status, which contains the CPUs and memory nodes that the calling
// thread may use. gpus are the GPUs of the node, from gpu.Topologize. lookup reads the environment,
// in which CUDA_VISIBLE_DEVICES or another vendor's variable names the GPUs of the job; the
// environment must be that before the variable is narrowed for a rank.
//
// Discover returns an error if no rank could be bound: the CPUs cannot be read, or
// CUDA_VISIBLE_DEVICES names a GPU that does not exist.
func Discover(root string, gpus gpu.Topology, lookup func(name string) (value string, set bool)) (Node, error) {
	root = cmp.Or(root, "/")
	sys := system{os.DirFS(root)}
	n := Node{NUMA: sys.numa(), GPUs: []GPU{}, NICs: append([]gpu.Card{}, gpu.Cards(root)...)}
	var err error
	if n.Cores, err = sys.cores(n.NUMA); err != nil {
		return Node{}, fmt.Errorf("cannot find out the processors of this node: %w", err)
	}
	if n.CPUs, n.Mems, err = sys.allowed(); err != nil {
		return Node{}, fmt.Errorf("cannot find out what this process may use: %w", err)
	}
	// CPUs that are offline may be in the list of allowed CPUs.
	if n.CPUs = n.CPUs.and(cpusOf(n.Cores)); len(n.CPUs) == 0 {
		return Node{}, fmt.Errorf("cannot find out what this process may use: none of the CPUs that /%s lists is online", statusFile)
	}
	units, err := gpus.Visible(lookup)
	if err != nil {
		return Node{}, err
	}
	for _, unit := range units {
		n.GPUs = append(n.GPUs, n.gpu(unit))
	}
	return n, nil
}

// gpu returns a GPU with the CPUs and network cards near it.
func (n Node) gpu(unit gpu.Unit) GPU {
	g := GPU{Name: unit.Name, Vendor: unit.Vendor, Index: unit.Index, UUID: unit.UUID, Bus: unit.Bus, NUMA: unit.NUMA}
	near, _ := ParseSet(unit.CPUs) // an invalid list counts as empty
	if g.CPUs = near.and(n.CPUs); len(g.CPUs) == 0 {
		g.CPUs, g.Far = n.CPUs, true
	}
	for _, card := range n.NICs {
		if slices.ContainsFunc(unit.NICs, func(near gpu.NIC) bool { return near.Name == card.Name }) {
			g.NICs = append(g.NICs, ports(card)...)
		}
	}
	return g
}

// ports returns the ports of a card that have a link, in UCX's format, such as mlx5_0:1.
func ports(card gpu.Card) (names []string) {
	for _, port := range card.Ports {
		names = append(names, fmt.Sprintf("%s:%d", card.Name, port))
	}
	return names
}

// system reads the kernel's view of processors and memory.
type system struct{ fs.FS }

// cores returns the cores of all CPUs that are online. It reads one file per core: there may be
// hundreds of CPUs, each read of sysfs takes microseconds, and every rank waits for the result.
func (s system) cores(numa []Memory) (cores []Core, err error) {
	online, err := s.set(path.Join(cpuFolder, "online"))
	if err != nil {
		return nil, err
	}
	seen, packages := map[int]bool{}, map[int]int{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		c := Core{NUMA: -1, Package: s.pack(cpu, packages), CPUs: s.siblings(cpu, "core_cpus_list", "thread_siblings_list").and(online)}
		for _, sibling := range c.CPUs {
			seen[sibling] = true
		}
		for _, node := range numa {
			if node.CPUs.has(cpu) {
				c.NUMA = node.Node
			}
		}
		cores = append(cores, c)
	}
	slices.SortFunc(cores, Core.compare)
	return cores, nil
}

// pack returns the package of a CPU. It caches the packages of the other CPUs in known.
func (s system) pack(cpu int, known map[int]int) int {
	number, found := known[cpu]
	if found {
		return number
	}
	number, _ = strconv.Atoi(s.text(path.Join(cpuFolder, fmt.Sprintf("cpu%d", cpu), "topology", "physical_package_id")))
	number = max(number, 0) // some virtual machines report -1
	for _, sibling := range s.siblings(cpu, "package_cpus_list", "core_siblings_list") {
		known[sibling] = number
	}
	return number
}

// siblings returns the CPUs in the first of the lists that can be read, or cpu alone if none can.
// Each list has two names: since Linux 5.3, the first has the contents that the second has always
// had.
func (s system) siblings(cpu int, lists ...string) Set {
	for _, name := range lists {
		all, err := s.set(path.Join(cpuFolder, fmt.Sprintf("cpu%d", cpu), "topology", name))
		if err == nil && all.has(cpu) {
			return all
		}
	}
	return Set{cpu}
}

// numa returns the online NUMA nodes by number. It returns nil if the kernel has no NUMA support.
func (s system) numa() (nodes []Memory) {
	withMemory, err := s.set(path.Join(nodeFolder, "has_memory"))
	online, _ := s.set(path.Join(nodeFolder, "online"))
	for _, node := range online {
		cpus, _ := s.set(path.Join(nodeFolder, fmt.Sprintf("node%d", node), "cpulist"))
		nodes = append(nodes, Memory{Node: node, CPUs: cpus, Memory: err != nil || withMemory.has(node)})
	}
	return nodes
}

// allowed returns the CPUs and memory nodes that this process may use.
func (s system) allowed() (cpus, mems Set, err error) {
	text, err := fs.ReadFile(s.FS, statusFile)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "Cpus_allowed_list":
			cpus, err = ParseSet(value)
		case "Mems_allowed_list":
			mems, err = ParseSet(value)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return cpus, mems, nil
}

// set reads a file that contains a list.
func (s system) set(name string) (Set, error) {
	text, err := fs.ReadFile(s.FS, name)
	if err != nil {
		return nil, err
	}
	return ParseSet(string(text))
}

// text returns the contents of a file without surrounding space, or an empty string if it cannot be
// read.
func (s system) text(name string) string {
	text, _ := fs.ReadFile(s.FS, name)
	return strings.TrimSpace(string(text))
}
