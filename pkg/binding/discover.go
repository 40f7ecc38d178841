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

const (
	cpuFolder  = "sys/devices/system/cpu"
	nodeFolder = "sys/devices/system/node"
	statusFile = "proc/self/status"
)

// Discover finds out what there is on this node. Root is "/", or what stands for it: sys is read below it, and
// proc/self/status, which tells what this process may use. GPUs are those that the node has, as gpu.Topologize has seen
// them, and lookup finds CUDA_VISIBLE_DEVICES, which tells what of them is the job's: so both must be asked before they
// are narrowed for a rank. The error is of what no rank could be bound by: no CPUs that can be read, a
// CUDA_VISIBLE_DEVICES that names what is not there.
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
	// A CPU that is offline may be allowed all the same.
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

// gpu is what is known of a GPU, within this node.
func (n Node) gpu(unit gpu.Unit) GPU {
	g := GPU{Name: unit.Name, Index: unit.Index, UUID: unit.UUID, Bus: unit.Bus, NUMA: unit.NUMA}
	near, _ := ParseSet(unit.CPUs) // a list that can't be read is none
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

// ports are the ports of a card that have a link, as UCX names them: mlx5_0:1.
func ports(card gpu.Card) (names []string) {
	for _, port := range card.Ports {
		names = append(names, fmt.Sprintf("%s:%d", card.Name, port))
	}
	return names
}

// system reads the kernel's view of processors and memory.
type system struct{ fs.FS }

// cores are those of all CPUs that are online. One file a core is read of each kind: there may be hundreds of CPUs, and
// each read of sysfs takes microseconds.
func (s system) cores(numa []Memory) (cores []Core, err error) {
	online, err := s.set(path.Join(cpuFolder, "online"))
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		c := s.core(cpu, online)
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

// core is that of a CPU. One that the kernel tells nothing of is a core of its own, in the only package.
func (s system) core(cpu int, online Set) Core {
	at := path.Join(cpuFolder, fmt.Sprintf("cpu%d", cpu), "topology")
	c := Core{NUMA: -1}
	c.Package, _ = strconv.Atoi(s.text(path.Join(at, "physical_package_id")))
	c.Package = max(c.Package, 0) // some virtual machines say -1
	// Since Linux 5.3 the first is what the second always was.
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if siblings, err := s.set(path.Join(at, name)); err == nil && siblings.has(cpu) {
			c.CPUs = siblings.and(online)
			return c
		}
	}
	c.CPUs = Set{cpu}
	return c
}

// numa are the NUMA nodes that are online, by number; none where the kernel knows none.
func (s system) numa() (nodes []Memory) {
	withMemory, err := s.set(path.Join(nodeFolder, "has_memory"))
	online, _ := s.set(path.Join(nodeFolder, "online"))
	for _, node := range online {
		cpus, _ := s.set(path.Join(nodeFolder, fmt.Sprintf("node%d", node), "cpulist"))
		nodes = append(nodes, Memory{Node: node, CPUs: cpus, Memory: err != nil || withMemory.has(node)})
	}
	return nodes
}

// allowed reads what this process may use.
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

// set reads a file with a list.
func (s system) set(name string) (Set, error) {
	text, err := fs.ReadFile(s.FS, name)
	if err != nil {
		return nil, err
	}
	return ParseSet(string(text))
}

// text is what a file holds; empty where it can't be read.
func (s system) text(name string) string {
	text, _ := fs.ReadFile(s.FS, name)
	return strings.TrimSpace(string(text))
}
