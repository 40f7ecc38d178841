package check

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Attributes by which the nodes of a job are compared. They are also the ids of the checks that
// compare them.
const (
	GPUModel    = "x.gpu_model"
	GPUCount    = "x.gpu_count"
	CUDA        = "x.cuda"   // newest version that the driver supports: 12.8
	Driver      = "x.driver" // version: 570.86.15
	VBIOS       = "x.vbios"  // VBIOS versions of all GPUs of the node
	GSP         = "x.gsp"    // version of the GPUs' GSP firmware
	Memory      = "x.memory" // memory size of a GPU
	NVLink      = "x.nvlink" // number of active links of a GPU
	PCIe        = "x.pcie"   // fastest link that the GPUs support
	PowerLimit  = "x.power_limit"
	AppClocks   = "x.app_clocks"
	Persistence = "x.persistence"
	ECC         = "x.ecc"
	MIG         = "x.mig"
	GPUIdle     = "x.gpu_idle" // deviations from an idle GPU; absent if all GPUs are idle
	PeerMem     = "x.peermem"  // "loaded" or "none"
	IMEX        = "x.imex"     // channels and service, or "none"
	NICs        = "x.nics"     // number and models of the RDMA NICs: 8 MT4129
	NICRate     = "x.nic_rate" // rates of their active ports: 8x400 Gb/s
	GIDs        = "x.gids"     // GID indices (RoCE v2 with IPv4) of their active Ethernet ports: 8 at 3
	NICFirmware = "x.nic_fw"   // firmware by model: MT4129 28.39.1002
	CPU         = "x.cpu"      // number of CPUs and model
	Fabric      = "x.fabric"   // NVLink domain and clique; empty: none
	Kernel      = "x.kernel"   // release of the operating system kernel
	Uptime      = "x.uptime"   // booted within the last hour; absent on other nodes
	Bringupd    = "x.bringupd" // version of this program
)

// Group is a set of nodes that have reported the same attributes.
type Group struct {
	Report Report // report of one of the nodes
	Ranks  []int  // sorted indices of the nodes
}

// fingerprint returns a positive 48-bit hash of the traits, which does not depend on their order.
// It returns 0 if there are no traits.
func fingerprint(traits []Trait) int64 {
	if len(traits) == 0 {
		return 0
	}
	sorted := slices.Clone(traits)
	slices.SortFunc(sorted, func(a, b Trait) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Value, b.Value)) })
	digest := sha256.New()
	for _, t := range slices.Compact(sorted) {
		fmt.Fprintf(digest, "%q=%q\n", t.ID, t.Value) // a hash never returns an error
	}
	return max(1, int64(binary.BigEndian.Uint64(digest.Sum(nil))>>16))
}

// kind defines how one attribute is compared and what a difference means.
type kind struct {
	id     string // attribute, and id of the finding
	what   string // name of the attribute in messages
	weight weight
	class  Class
	hint   string
	// Normalisation of a value before the comparison; nil: none.
	of func(value string) string
	// normal is the value of a node that does not report the attribute. Nodes with another value are
	// reported as odd, even if they are the majority. If it is empty, nodes that do not report the
	// attribute are left out of the comparison: their own checks report why it is missing.
	normal string
}

// weight defines how severe a difference between nodes is.
type weight int

const (
	warns    weight = iota // a warning in all modes
	strictly               // a warning; a failure in strict mode
	fails                  // a failure in all modes
)

const oneModel = "ask for one model, as by --gres=gpu:MODEL:N or --constraint"

// kinds lists the compared attributes in the order of the report. Differences in the last boot or
// in the version of this program are not faults of a node, so strict mode does not turn them into
// failures.
var kinds = []kind{
	{GPUModel, "GPU model", fails, User, oneModel, nil, ""},
	{GPUCount, "number of GPUs", fails, Node, "look at the nodes with fewer; --gpus-per-node has each of them checked for its number", nil, ""},
	{CUDA, "CUDA's major version", fails, Node, "have the same driver on all nodes", major, ""},
	{CUDA, "CUDA version", strictly, Node, "have the same driver on all nodes", nil, ""},
	{Driver, "driver", strictly, Node, "have the same driver on all nodes", nil, ""},
	{VBIOS, "VBIOS", strictly, Node, "have the same VBIOS on all GPUs", nil, ""},
	{GSP, "GSP firmware", strictly, Node, "have the same driver on all nodes", nil, ""},
	{Memory, "GPU memory", strictly, User, oneModel, nil, ""},
	{NVLink, "active NVLinks of a GPU", strictly, Node, "reset its GPUs, or power the node off and on: nvidia-smi nvlink --status", nil, ""},
	{PCIe, "PCIe link of the GPUs", strictly, Node, "compare slots, risers and the firmware's settings of PCIe: lspci -vv, LnkCap", nil, ""},
	{PowerLimit, "power limit of the GPUs", strictly, Node, "set it on all nodes when they boot: nvidia-smi --power-limit", nil, ""},
	{AppClocks, "application clocks", strictly, Node, "take back what somebody has set: nvidia-smi --reset-applications-clocks", nil, ""},
	{Persistence, "persistence mode", strictly, Node, "run nvidia-persistenced on all nodes", nil, ""},
	{ECC, "ECC mode", strictly, Node, "set it on all nodes, and reset the GPUs: nvidia-smi --ecc-config=1", nil, ""},
	{MIG, "MIG mode", strictly, Node, "set it on all nodes: nvidia-smi --multi-instance-gpu=0, or 1", nil, ""},
	{GPUIdle, "GPUs that are hot or draw much at idle", strictly, Node, "see to what runs there, and to fans and cooling: nvidia-smi", nil, "none"},
	{PeerMem, "nvidia_peermem", strictly, Node, "load it on all nodes when they boot: modprobe nvidia_peermem", nil, ""},
	{IMEX, "IMEX", strictly, Node, "see systemctl status nvidia-imex and /dev/nvidia-caps-imex-channels, which a reboot empties", nil, ""},
	{NICs, "RDMA cards", strictly, Node, "see lspci and dmesg: a card that has left the bus may be back once the node is powered off and on", nil, ""},
	{NICRate, "active ports of the RDMA cards", strictly, Node, "see to cable, transceiver and switch port: ibstat, mlxlink", nil, ""},
	{GIDs, "index of the RoCE v2 GIDs (IPv4) of the RDMA ports", strictly, Node,
		"see whether each port's interface has its IPv4 address: show_gids; where the order differs, leave NCCL_IB_GID_INDEX out", nil, ""},
	{NICFirmware, "firmware of the RDMA cards", strictly, Node, "have the same firmware on all cards of a kind", nil, ""},
	{CPU, "processors", strictly, User, "ask for one kind of nodes, as by --constraint", nil, ""},
	{Kernel, "kernel", strictly, Node, "have the same kernel on all nodes", nil, ""},
	{Uptime, "last boot", warns, Node, "see why it was rebooted, and whether what is set by hand is set again: journalctl --boot=-1", nil, "longer ago"},
	{Bringupd, "version of bringupd", warns, User, "start one file that all nodes see", nil, ""},
}

// major returns the major version: 12 of 12.8.
func major(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// Compare returns the differences among the nodes of a job, at most one finding per id. Ranks of a
// finding are the indices of the odd nodes; it is nil if no value is more common than the others.
// hosts formats node indices as a short list of host names: "n[3,5-7]".
func Compare(groups []Group, hosts func(ranks []int) string) []Finding {
	var found []Finding
	for _, k := range kinds {
		told := slices.ContainsFunc(found, func(f Finding) bool { return f.ID == k.id })
		if values := valuesOf(groups, k); !told && len(values) > 1 {
			found = append(found, k.difference(values, hosts))
		}
	}
	return append(found, compareFabric(groups, hosts)...)
}

// value is one value of an attribute and the nodes that have it.
type value struct {
	text  string
	ranks []int // sorted node indices
}

// valuesOf returns the values of an attribute, the expected value first: the normal one if the kind
// defines it, otherwise the most common one.
func valuesOf(groups []Group, k kind) []value {
	byText := make(map[string][]int)
	for _, g := range groups {
		text, told := g.Report.trait(k.id)
		switch {
		case told && k.of != nil:
			text = k.of(text)
		case !told && (k.normal == "" || len(g.Report.Traits) == 0): // no attributes: unreadable
			continue
		case !told:
			text = k.normal
		}
		byText[text] = append(byText[text], g.Ranks...)
	}
	values := byCount(byText)
	if i := slices.IndexFunc(values, func(v value) bool { return k.normal != "" && v.text == k.normal }); i > 0 {
		values = slices.Concat(values[i:i+1], values[:i], values[i+1:])
	}
	return values
}

// byCount returns the values in the order of how many nodes have them, the most common first.
// Values that are equally common are ordered by their lowest node index.
func byCount(byText map[string][]int) []value {
	var values []value
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		if ranks := byText[text]; len(ranks) > 0 {
			slices.Sort(ranks)
			values = append(values, value{text, slices.Compact(ranks)})
		}
	}
	slices.SortStableFunc(values, func(a, b value) int {
		return cmp.Or(cmp.Compare(len(b.ranks), len(a.ranks)), cmp.Compare(a.ranks[0], b.ranks[0]))
	})
	return values
}

// difference returns the finding for the odd nodes, which do not have the most common value. If the
// two most common values are equally common, no node is odd, and the finding lists all values
// without Ranks.
func (k kind) difference(values []value, hosts func([]int) string) Finding {
	usual := values[0]
	if usual.text != k.normal && len(usual.ranks) == len(values[1].ranks) {
		f := k.about(values, hosts)
		f.Ranks, f.Expected = nil, "the same on all nodes"
		return f
	}
	f := k.about(values[1:], hosts)
	f.Expected = shown(usual.text) + asOn(len(usual.ranks))
	return f
}

// about returns the finding that lists these values and their nodes.
func (k kind) about(odd []value, hosts func([]int) string) Finding {
	f := Finding{ID: k.id, Verdict: Warn, Class: k.class, Hint: k.hint, Strict: k.weight == strictly}
	if k.weight == fails {
		f.Verdict = Fail
	}
	var said []string
	for _, v := range odd {
		said = append(said, shown(v.text)+" on "+nodes(v.ranks, hosts))
		f.Ranks = append(f.Ranks, v.ranks...)
	}
	slices.Sort(f.Ranks)
	f.Ranks = slices.Compact(f.Ranks)
	f.Observed = k.what + ": " + prose.List(said, mostValues, "; ")
	return f
}

const (
	mostValues = 4  // maximum number of values in a finding
	mostNodes  = 16 // maximum number of nodes listed per value
	mostValue  = 60 // maximum characters of a value
)

// shown returns the value shortened for a message, or "none" if it is empty.
func shown(text string) string {
	if text == "" {
		return "none"
	}
	return prose.Line(text, mostValue)
}

// asOn returns the end of the expectation: ", as on 3 other nodes".
func asOn(others int) string {
	return fmt.Sprintf(", as on %d %s", others, prose.Noun(others, "other node"))
}

// nodes formats node indices as host names and indices, at most mostNodes: "n7 (rank 7)", "n[3,5-7]
// (ranks 3,5-7)".
func nodes(ranks []int, hosts func([]int) string) string {
	told := ranks[:min(len(ranks), mostNodes)]
	said := hosts(told)
	if !strings.HasPrefix(said, "rank") { // the nodes have names
		said += fmt.Sprintf(" (%s)", prose.Ranks(told))
	}
	if more := len(ranks) - len(told); more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// compareFabric compares the NVLink domains of the nodes. A job may use several domains. Two kinds
// of nodes are odd: a node that is alone in its domain while others share one, and a node with GPUs
// that is in no domain while others are in one.
func compareFabric(groups []Group, hosts func([]int) string) []Finding {
	// Group the nodes with GPUs by domain. Nodes without any domain have an empty value.
	byText := make(map[string][]int)
	for _, g := range groups {
		text, _ := g.Report.trait(Fabric)
		if _, gpus := g.Report.trait(GPUModel); gpus || text != "" {
			byText[text] = append(byText[text], g.Ranks...)
		}
	}
	// Separate nodes without a domain, nodes alone in a domain, and shared domains.
	without := value{text: "none"}
	alone := value{text: "one of its own"}
	size, shared := 0, false
	for _, v := range byCount(byText) {
		size += len(v.ranks)
		switch {
		case v.text == "":
			without.ranks = v.ranks
		case len(v.ranks) > 1:
			shared = true
		default:
			alone.ranks = append(alone.ranks, v.ranks...)
		}
	}
	// Report nodes only if other nodes are in a better position.
	var odd []value
	if len(without.ranks) > 0 && (shared || len(alone.ranks) > 0) {
		odd = append(odd, without)
	}
	if slices.Sort(alone.ranks); len(alone.ranks) > 0 && shared {
		odd = append(odd, alone)
	}
	if len(odd) == 0 {
		return nil
	}
	k := kind{Fabric, "NVLink domain", strictly, Node, "see whether IMEX and the fabric manager run there, and whether the nodes are of one rack", nil, ""}
	f := k.about(odd, hosts)
	f.Expected = "one shared with others" + asOn(size-len(f.Ranks))
	return []Finding{f}
}
