package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Attributes by which the nodes of a job are compared. They are also the ids of the checks that
// compare them.
const (
	AttrGPUModel    = "x.gpu_model"
	AttrGPUCount    = "x.gpu_count"
	AttrCUDA        = "x.cuda"   // newest version that the driver supports: 12.8
	AttrDriver      = "x.driver" // version: 570.86.15
	AttrVBIOS       = "x.vbios"  // versions of all GPUs of the node
	AttrGSP         = "x.gsp"    // version of the GPUs' GSP firmware
	AttrMemory      = "x.memory" // memory size of a GPU
	AttrNVLink      = "x.nvlink" // number of active links of a GPU
	AttrMIG         = "x.mig"
	AttrIMEX        = "x.imex"     // channels and service, or "none"
	AttrNICs        = "x.nics"     // number and models of the RDMA NICs: 8 MT4129
	AttrNICRate     = "x.nic_rate" // rates of their active ports: 8x400 Gb/s
	AttrGIDs        = "x.gids"     // indices of the IPv4 GIDs of their active RoCE ports: 8 at 3
	AttrNICFirmware = "x.nic_fw"   // firmware by model: MT4129 28.39.1002
	AttrCPU         = "x.cpu"      // number of CPUs and model
	AttrKernel      = "x.kernel"   // release of the operating system kernel
	AttrBringupd    = "x.bringupd" // version of this program
)

// NodeGroup is a set of nodes that have reported the same attributes.
type NodeGroup struct {
	Report      Report // report of one of the nodes
	NodeIndices []int  // sorted indices of the nodes
}

// attributeRule defines how one attribute is compared and what a difference means.
type attributeRule struct {
	id      string // attribute, and id of the finding
	label   string // name of the attribute in messages
	verdict Verdict
	class   Class
	hint    string
}

const (
	oneModelHint  = "request one GPU model, for example with --gres=gpu:MODEL:N or --constraint"
	oneDriverHint = "install the same NVIDIA driver on all nodes"
	// cudaMajorLabel is the label of the rule that compares the number before the first dot only.
	cudaMajorLabel = "CUDA major version"
)

// attributeRules lists the compared attributes in the order of the report.
var attributeRules = []attributeRule{
	{AttrGPUModel, "GPU model", Fail, ClassUser, oneModelHint},
	{AttrGPUCount, "number of GPUs", Fail, ClassNode,
		"inspect the nodes with fewer GPUs; with --gpus-per-node each node's count is checked"},
	{AttrCUDA, cudaMajorLabel, Fail, ClassNode, oneDriverHint},
	{AttrCUDA, "CUDA version", Warn, ClassNode, oneDriverHint},
	{AttrDriver, "NVIDIA driver", Warn, ClassNode, oneDriverHint},
	{AttrVBIOS, "VBIOS", Warn, ClassNode, "install the same VBIOS on all GPUs"},
	{AttrGSP, "GSP firmware", Warn, ClassNode, oneDriverHint},
	{AttrMemory, "GPU memory", Warn, ClassUser, oneModelHint},
	{AttrNVLink, "active NVLinks per GPU", Warn, ClassNode,
		"reset the node's GPUs, or power-cycle it; see nvidia-smi nvlink --status"},
	{AttrMIG, "MIG mode", Warn, ClassNode,
		"set it on all nodes: nvidia-smi --multi-instance-gpu=0, or 1"},
	{AttrIMEX, "IMEX", Warn, ClassNode, "see systemctl status nvidia-imex " +
		"and /dev/nvidia-caps-imex-channels, which is empty after a reboot"},
	{AttrNICs, "RDMA NICs", Warn, ClassNode,
		"see lspci and dmesg: a NIC that is missing from the bus may return after a power cycle"},
	{AttrNICRate, "active ports of the RDMA NICs", Warn, ClassNode,
		"check cable, transceiver and switch port (ibstat, mlxlink)"},
	{AttrGIDs, "index of the RoCE v2 GIDs (IPv4) of the RDMA ports", Warn, ClassNode,
		"check that each port's interface has its IPv4 address (show_gids); " +
			"if the order differs, unset NCCL_IB_GID_INDEX"},
	{AttrNICFirmware, "firmware of the RDMA NICs", Warn, ClassNode,
		"install the same firmware on all NICs of a model"},
	{AttrCPU, "processors", Warn, ClassUser,
		"request one node type, for example with --constraint"},
	{AttrKernel, "kernel", Warn, ClassNode, "boot the same kernel on all nodes"},
	{AttrBringupd, "version of bringupd", Warn, ClassUser,
		"use the same bringupd on all nodes"},
}

// CompareNodes returns the differences among the nodes of a job, at most one finding per id.
// NodeIndices of a finding are the odd nodes; it is nil if no value is more common than the others.
// hosts formats node indices as a short list of host names: "n[3,5-7]".
func CompareNodes(groups []NodeGroup, hosts func(nodes []int) string) []Finding {
	var found []Finding
	for _, k := range attributeRules {
		known := slices.ContainsFunc(found, func(f Finding) bool { return f.ID == k.id })
		if values := k.valuesOf(groups); !known && len(values) > 1 {
			found = append(found, k.differenceFinding(values, hosts))
		}
	}
	return found
}

// ValueGroup is a value and the nodes that have it.
type ValueGroup struct {
	Value string
	Nodes []int // sorted node indices
}

// valuesOf returns the values of an attribute, the most common first. Nodes that do not report it are
// left out: their own checks report why it is missing.
func (k attributeRule) valuesOf(groups []NodeGroup) []ValueGroup {
	nodes := make(map[string][]int)
	for _, g := range groups {
		at := slices.IndexFunc(g.Report.Attributes, func(a Attribute) bool { return a.ID == k.id })
		if at < 0 {
			continue
		}
		value := g.Report.Attributes[at].Value
		if k.label == cudaMajorLabel {
			value, _, _ = strings.Cut(value, ".")
		}
		nodes[value] = append(nodes[value], g.NodeIndices...)
	}
	return GroupByValue(nodes)
}

// GroupByValue returns the values in the order of how many nodes have them, the most common first.
// Values that are equally common are ordered by their lowest node index.
func GroupByValue(nodesByValue map[string][]int) []ValueGroup {
	var values []ValueGroup
	for _, value := range slices.Sorted(maps.Keys(nodesByValue)) {
		if nodes := nodesByValue[value]; len(nodes) > 0 {
			slices.Sort(nodes)
			values = append(values, ValueGroup{value, slices.Compact(nodes)})
		}
	}
	slices.SortStableFunc(values, func(a, b ValueGroup) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return values
}

// differenceFinding returns the finding for the odd nodes, which do not have the most common value.
// If the two most common values are equally common, no node is odd, and the finding lists all values
// without NodeIndices.
func (k attributeRule) differenceFinding(values []ValueGroup, hosts func([]int) string) Finding {
	usual, odd := values[0], values[1:]
	f := Finding{
		ID: k.id, Verdict: k.verdict, Class: k.class, Hint: k.hint,
		// A difference in the version of this program is not a fault of a node.
		Strict: k.verdict == Warn && k.id != AttrBringupd,
		Expected: fmt.Sprintf("%s, as on %d %s", displayValue(usual.Value), len(usual.Nodes),
			textutil.PluralForm(len(usual.Nodes), "other node")),
	}
	isTie := len(usual.Nodes) == len(odd[0].Nodes)
	if isTie {
		f.Expected, odd = "the same on all nodes", values
	}
	var parts []string
	for _, v := range odd {
		parts = append(parts, displayValue(v.Value)+" on "+formatNodes(v.Nodes, hosts))
		if !isTie {
			f.NodeIndices = append(f.NodeIndices, v.Nodes...)
		}
	}
	slices.Sort(f.NodeIndices)
	f.Observed = k.label + ": " + textutil.JoinLimited(parts, maxListedValues, "; ")
	return f
}

const (
	maxListedValues = 4  // maximum number of values in a finding
	maxListedNodes  = 16 // maximum number of nodes listed per value
	maxValueLength  = 60 // maximum characters of a value
)

func displayValue(value string) string {
	return textutil.SingleLine(cmp.Or(value, "none"), maxValueLength)
}

// formatNodes formats node indices as host names and indices, at most maxListedNodes: "n7 (node
// 7)", "n[3,5-7] (nodes 3,5-7)".
func formatNodes(nodes []int, hosts func([]int) string) string {
	listed := nodes[:min(len(nodes), maxListedNodes)]
	text := hosts(listed)
	if indices := textutil.FormatIndices("node", listed); text != indices { // the nodes have names
		text += " (" + indices + ")"
	}
	if more := len(nodes) - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
