package ranks

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Units of --ranks-per-node, which also accepts a number.
const (
	PerGPU  = "gpu"
	PerNUMA = "numa"
	PerCore = "core"
)

// Units are the valid units of --ranks-per-node.
var Units = []string{PerGPU, PerNUMA, PerCore}

// LayoutRequest describes the requested world. The zero value requests none.
type LayoutRequest struct {
	PerNode string // a number, or one of Units; empty if not set
	Total   int    // total number of ranks, limited by PerNode if that is set; 0 if not set
	// Oversubscribe permits more ranks on a node than it has GPUs or cores.
	Oversubscribe bool
	// MaxPerNode is the maximum number of ranks of a node, including spawned ranks. If it is 0, the
	// maximum is the number that the node can have when the run begins.
	MaxPerNode int
}

// maxRanks is the maximum number of ranks of a node and of a world: the largest 32-bit rank number.
const maxRanks = 1<<31 - 1

// ValidatePerNode validates a value of --ranks-per-node and returns it. The error describes the
// valid values.
func ValidatePerNode(text string) (string, error) {
	if slices.Contains(Units, text) {
		return text, nil
	}
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > maxRanks {
		return "", fmt.Errorf("give a number of at least 1, or one of %s, %s, %s", PerGPU, PerNUMA, PerCore)
	}
	return text, nil
}

// IsRequested reports whether a world is requested.
func (w LayoutRequest) IsRequested() bool { return w.PerNode != "" || w.Total > 0 }

// NeedsSlotCounts reports whether the head must know how many ranks each node can have.
func (w LayoutRequest) NeedsSlotCounts() bool {
	_, fixed := w.FixedPerNode()
	return w.IsRequested() && !fixed
}

// FixedPerNode returns the requested number of ranks per node, if it is a number; otherwise 0.
func (w LayoutRequest) FixedPerNode() (count int, fixed bool) {
	count, err := strconv.Atoi(w.PerNode)
	if err != nil {
		return 0, false
	}
	return count, true
}

// NodeSlots counts what a node has for ranks.
type NodeSlots struct {
	GPUs  int // GPUs of the job on this node
	NUMAs int // NUMA nodes with CPUs of the job
	// physical cores of the job; more if the launcher granted more CPUs than are visible; 0 if unknown
	Cores int
	// OwnGPUs is set if each rank must have its own GPUs, provided that there are GPUs.
	OwnGPUs bool
	// NodeCPUs is the number of CPUs of the node, also of other jobs. MoreCPUs returns how to start the
	// job with so many of them; it is nil if that is unknown.
	NodeCPUs int
	MoreCPUs func(count int) string
}

// NodeRanks returns the number of ranks of a node with these slots or, if only a total is
// requested, the maximum number. The error, which refers to the node as "it", describes what the
// node has, what was requested, and how to permit it.
func (w LayoutRequest) NodeRanks(s NodeSlots) (int, error) {
	// The limit is the number of GPUs if each rank gets its own, otherwise the number of cores.
	limit, what := s.Cores, "core"
	if s.GPUs > 0 && s.OwnGPUs {
		limit, what = s.GPUs, "GPU"
	}
	var asked int
	switch w.PerNode {
	case "":
		return max(limit, 1), nil
	case PerGPU:
		if s.GPUs == 0 {
			return 0, fmt.Errorf("it has no GPU for the job, and --ranks-per-node=%s needs one per rank: give a "+
				"number, or request GPUs from the launcher", PerGPU)
		}
		return s.GPUs, nil
	case PerNUMA:
		asked = max(s.NUMAs, 1)
	case PerCore:
		asked = max(s.Cores, 1)
	default:
		asked, _ = strconv.Atoi(w.PerNode) // validated by ValidatePerNode
	}
	if asked <= limit || limit == 0 || w.Oversubscribe { // 0 means unknown
		return asked, nil
	}
	fix := "give --oversubscribe to let them share"
	switch {
	case what == "GPU":
		fix += ", or --bind without gpu if they need no GPU"
	case s.MoreCPUs != nil && asked <= s.NodeCPUs && s.MoreCPUs(asked) != "":
		fix = "start it with " + s.MoreCPUs(asked) + ", or " + fix
	}
	return 0, fmt.Errorf("it has %d %s for the job, and --ranks-per-node=%s means %d ranks: %s", limit,
		textutil.PluralForm(limit, what), w.PerNode, asked, fix)
}
