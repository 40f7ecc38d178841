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

// What the nodes of a job are compared by. The ids are those of the checks that compare them, too.
const (
	GPUModel    = "x.gpu_model"
	GPUCount    = "x.gpu_count"
	CUDA        = "x.cuda"   // the newest that the driver runs: 12.8
	Driver      = "x.driver" // 570.86.15
	VBIOS       = "x.vbios"  // of all its GPUs
	GSP         = "x.gsp"    // version of the GPUs' own firmware
	Memory      = "x.memory" // of a GPU
	NVLink      = "x.nvlink" // active links of a GPU
	PCIe        = "x.pcie"   // the best link that the GPUs can have
	PowerLimit  = "x.power_limit"
	AppClocks   = "x.app_clocks"
	Persistence = "x.persistence"
	ECC         = "x.ecc"
	MIG         = "x.mig"
	GPUIdle     = "x.gpu_idle" // what is unlike an idle GPU; not told where all are as they should be
	PeerMem     = "x.peermem"  // loaded, or none
	IMEX        = "x.imex"     // channels and service, or none
	NICs        = "x.nics"     // RDMA cards: 8 MT4129
	NICRate     = "x.nic_rate" // of their active ports: 8x400 Gb/s
	GIDs        = "x.gids"     // of their active Ethernet ports, RoCE v2 with an IPv4 address: 8 at 3
	NICFirmware = "x.nic_fw"   // MT4129 28.39.1002
	CPU         = "x.cpu"      // number and model
	Fabric      = "x.fabric"   // NVLink domain and clique; empty: none
	Kernel      = "x.kernel"   // of the operating system
	Uptime      = "x.uptime"   // that it was within the hour; not told of any other node
	Bringupd    = "x.bringupd" // this program's version
)

// Group is some nodes that have told the same.
type Group struct {
	Report Report // of one of them
	Ranks  []int
}

// fingerprint returns a positive number that is the same for the same traits in
// any order, and another for others; 0 for none. It fits into 48 bits.
func fingerprint(traits []Trait) int64 {
	if len(traits) == 0 {
		return 0
	}
	sorted := slices.Clone(traits)
	slices.SortFunc(sorted, func(a, b Trait) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Value, b.Value)) })
	digest := sha256.New()
	for _, t := range slices.Compact(sorted) {
		fmt.Fprintf(digest, "%q=%q\n", t.ID, t.Value) // never fails, by its contract
	}
	return max(1, int64(binary.BigEndian.Uint64(digest.Sum(nil))>>16))
}

// kind is how a trait is compared, and what it means where it differs.
type kind struct {
	id     string
	what   string
	weight weight
	class  Class
	hint   string
	// of is what of the value counts; nil: all of it.
	of func(value string) string
	// normal is what a node has that does not tell the trait, and it is the others that are odd, however many; empty: such
	// a node is left out of the comparison, for why it can't tell is told by its own checks.
	normal string
}

// weight is how much it matters that nodes differ.
type weight int

const (
	warns    weight = iota
	strictly        // it warns, and fails where strict mode is asked for
	fails
)

const oneModel = "ask for one model, as by --gres=gpu:MODEL:N or --constraint"

// kinds are compared in their order. Neither a reboot nor this program's version is a fault of a node: strict mode does
// not fail for them.
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

func major(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// Compare tells what differs among the nodes of a job, at most once an id, and of which nodes: of none where nobody can
// tell which are odd. hosts names the nodes of some ranks in a few words: "n[3,5-7]".
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

// value is one that some nodes have.
type value struct {
	text  string
	ranks []int // sorted
}

// valuesOf returns a trait's values, what is usual first: what is normal, or what most nodes have.
func valuesOf(groups []Group, k kind) []value {
	byText := make(map[string][]int)
	for _, g := range groups {
		text, told := g.Report.trait(k.id)
		switch {
		case told && k.of != nil:
			text = k.of(text)
		case !told && (k.normal == "" || len(g.Report.Traits) == 0): // which tells nothing at all could not be read
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

// byCount returns the values, what most nodes have first.
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

// difference names the odd nodes: those that lack the value that most have. Where two values are equally common no node
// is odd, and all are told.
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

// about tells of the nodes that have these values.
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
	mostValues = 4  // that are told
	mostNodes  = 16 // that are told of one value
	mostValue  = 60 // characters of one
)

func shown(text string) string {
	if text == "" {
		return "none"
	}
	return prose.Line(text, mostValue)
}

func asOn(others int) string {
	return fmt.Sprintf(", as on %d %s", others, prose.Noun(others, "other node"))
}

// nodes names some nodes: "n7 (rank 7)", "n[3,5-7] (ranks 3,5-7)".
func nodes(ranks []int, hosts func([]int) string) string {
	told := ranks[:min(len(ranks), mostNodes)]
	said := hosts(told)
	if !strings.HasPrefix(said, "rank") { // where nodes have no names but their ranks
		said += fmt.Sprintf(" (%s)", prose.Ranks(told))
	}
	if more := len(ranks) - len(told); more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// compareFabric compares NVLink domains. A job may well be in several; a node that is alone in one while others share
// theirs is not in the one that was meant, nor is one with GPUs that is in none while others are.
func compareFabric(groups []Group, hosts func([]int) string) []Finding {
	byText := make(map[string][]int)
	for _, g := range groups {
		text, _ := g.Report.trait(Fabric)
		if _, gpus := g.Report.trait(GPUModel); gpus || text != "" {
			byText[text] = append(byText[text], g.Ranks...)
		}
	}
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
