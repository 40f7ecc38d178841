// Package zoo creates the sysfs trees of nodes with AMD and Intel GPUs, for tests.
package zoo

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Node is a kind of node for which a tree can be created. Addresses, device numbers and classes
// were published by users of such nodes; numbers that identify one piece of hardware are replaced.
type Node struct {
	Name   string
	Source string // source of the facts
	Count  int    // GPUs as counted by the launcher
	buses  []string
	device string // PCI device number
	amd    bool
	tiles  int
}

// The available nodes.
var (
	MI250 = Node{
		"4 MI250X, 8 dies",
		"form of ROCm/k8s-device-plugin testdata/topo-mi210-xgmi-pcie; PCI addresses not verified",
		8, []string{"0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0", "0000:d1:00.0",
			"0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"},
		"0x7408", true, 0,
	}
	MI300X = Node{
		"8 MI300X", "form of ROCm/k8s-device-plugin testdata/topology-parsing-mi308; PCI addresses not verified",
		8, []string{"0000:05:00.0", "0000:26:00.0", "0000:46:00.0", "0000:65:00.0", "0000:85:00.0",
			"0000:a6:00.0", "0000:c6:00.0", "0000:e5:00.0"},
		"0x74a1", true, 0,
	}
	Max1550 = Node{
		"6 Intel Max 1550, 12 tiles",
		"Aurora machine overview, docs.alcf.anl.gov; device numbers of intel/compute-runtime; " +
			"PCI addresses not verified",
		6, []string{"0000:18:00.0", "0000:42:00.0", "0000:6c:00.0", "0001:18:00.0", "0001:42:00.0",
			"0001:6c:00.0"},
		"0x0bd6", false, 2,
	}
)

// All lists the nodes in which all GPUs are in order.
var All = []Node{MI250, MI300X, Max1550}

// Tree creates the tree of the node in a folder and returns its path. It includes a server's own
// display and KFD's nodes for the processors.
func (n Node) Tree(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	tree := tree{t, root}
	tree.pci("0000:02:00.0", "0x102b", "0x0536", "0x030000", 0) // display of the BMC
	if n.amd {
		tree.file("dev/kfd", "")
		for node := range 2 {
			tree.file(fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/gpu_id", node), "0")
			tree.file(fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/properties", node),
				"cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n")
		}
	}
	for i, bus := range n.buses {
		numa, render := i*2/len(n.buses), 128+i
		device := map[bool]string{true: "0x1002", false: "0x8086"}[n.amd]
		class := map[bool]string{true: "0x120000", false: "0x038000"}[n.device == MI300X.device]
		folder := tree.pci(bus, device, n.device, class, numa)
		tree.file(fmt.Sprintf("dev/dri/renderD%d", render), "")
		tree.link(fmt.Sprintf("sys/class/drm/renderD%d/device", render), "../../../../"+folder)
		for tile := range n.tiles {
			tree.file(fmt.Sprintf("%s/drm/card%d/gt/gt%d/id", folder, i, tile), "0")
		}
		if n.amd {
			tree.kfd(2+i, bus, render)
		}
	}
	return root
}

type tree struct {
	t    testing.TB
	root string
}

// kfd adds a KFD node.
func (tree tree) kfd(node int, bus string, render int) {
	var domain, number int
	if _, err := fmt.Sscanf(bus, "%x:%x", &domain, &number); err != nil {
		tree.t.Fatal(err)
	}
	folder := fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/", node)
	tree.file(folder+"gpu_id", fmt.Sprint(40000+node))
	tree.file(folder+"properties",
		fmt.Sprintf("cpu_cores_count 0\nsimd_count 440\nvendor_id 4098\nlocation_id %d\ndomain "+
			"%d\ndrm_render_minor %d\nunique_id %d\n",
			number<<8, domain, render, 11139482937205096448+uint64(node)))
}

// pci adds a device to the PCI bus and returns its folder.
func (tree tree) pci(bus, vendor, device, class string, numa int) (folder string) {
	folder = fmt.Sprintf("sys/devices/pci%s/%s", bus[:7], bus)
	for name, text := range map[string]string{
		"vendor": vendor, "device": device, "class": class, "numa_node": fmt.Sprint(numa),
		"local_cpulist": fmt.Sprintf("%d-%d", numa*32, numa*32+31),
	} {
		tree.file(folder+"/"+name, text)
	}
	var v, d int
	if _, err := fmt.Sscanf(vendor+" "+device, "0x%x 0x%x", &v, &d); err != nil {
		tree.t.Fatal(err)
	}
	tree.file(folder+"/config", string([]byte{byte(v), byte(v >> 8), byte(d), byte(d >> 8)}))
	tree.link("sys/bus/pci/devices/"+bus, "../../../../"+folder)
	return folder
}

func (tree tree) file(name, text string) {
	tree.t.Helper()
	name = filepath.Join(tree.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		tree.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		tree.t.Fatal(err)
	}
}

func (tree tree) link(name, to string) {
	tree.t.Helper()
	name = filepath.Join(tree.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		tree.t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		tree.t.Fatal(err)
	}
}
