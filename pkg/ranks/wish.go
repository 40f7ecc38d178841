package ranks

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Order is how ranks are numbered.
type Order string

// The orders of --rank-order.
const (
	ByNode     Order = "node"        // all of one node, then all of the next
	RoundRobin Order = "round-robin" // the first of each node, then the second of each
)

// Orders are what a user may ask for.
var Orders = []string{string(ByNode), string(RoundRobin)}

// The units of --ranks-per-node, beside a number.
const (
	PerGPU  = "gpu"
	PerNUMA = "numa"
	PerCore = "core"
)

// Units are what a node may have a rank for each of.
var Units = []string{PerGPU, PerNUMA, PerCore}

// Wish is which world somebody asks for; the zero value: none.
type Wish struct {
	PerNode string // a number, or one of Units; empty: not told
	Total   int    // in all, with PerNode no more on a node than that; 0: not told
	Order   Order  // empty: ByNode
	// Oversubscribe lets a node have more ranks than GPUs or cores.
	Oversubscribe bool
	// Slots is how many ranks a node may have in all, those that are spawned too; 0: as many as it may be told to begin with.
	Slots int
}

// most is how many ranks a node, and a world, may be told to have: what a rank's
// number may be in 32 bits.
const most = 1<<31 - 1

// ParsePerNode returns what --ranks-per-node means; its error says what would be
// accepted.
func ParsePerNode(text string) (string, error) {
	if slices.Contains(Units, text) {
		return text, nil
	}
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
		return "", fmt.Errorf("give a number from 1 on, or one of %s, %s, %s", PerGPU, PerNUMA, PerCore)
	}
	return text, nil
}

// Wanted tells whether there is to be a world.
func (w Wish) Wanted() bool { return w.PerNode != "" || w.Total > 0 }

// Counted tells whether the head has to know how many ranks each node may have.
func (w Wish) Counted() bool {
	_, err := strconv.Atoi(w.PerNode)
	return w.Wanted() && err != nil
}

// Slots are what a node has that ranks run on.
type Slots struct {
	GPUs  int // that the job has there
	NUMAs int // NUMA nodes with CPUs of the job's
	Cores int // physical cores of the job's; more where the launcher has granted more CPUs than can be seen; 0: not known
	// Bound says that each rank is to have GPUs of its own where there are any.
	Bound bool
}

// Here returns how many ranks a node with those slots has, or may have where the
// whole number is told. Its error, which speaks of the node as "it", says what is there,
// what was asked, and what allows it.
func (w Wish) Here(s Slots) (int, error) {
	most, what := s.Cores, "core"
	if s.GPUs > 0 && s.Bound {
		most, what = s.GPUs, "GPU"
	}
	var asked int
	switch w.PerNode {
	case "":
		return max(most, 1), nil
	case PerGPU:
		if s.GPUs == 0 {
			return 0, fmt.Errorf("it has no GPU for the job, and --ranks-per-node=%s is a rank for each: give a number, or ask the launcher for GPUs", PerGPU)
		}
		return s.GPUs, nil
	case PerNUMA:
		asked = max(s.NUMAs, 1)
	case PerCore:
		asked = max(s.Cores, 1)
	default:
		asked, _ = strconv.Atoi(w.PerNode) // ParsePerNode has seen it
	}
	if asked <= most || most == 0 || w.Oversubscribe { // 0: nobody knows
		return asked, nil
	}
	mend := "give --oversubscribe to let them share"
	if what == "GPU" {
		mend += ", or --bind without gpu where they need none"
	}
	return 0, fmt.Errorf("it has %d %s for the job, and --ranks-per-node=%s is %d ranks: %s", most, prose.Noun(most, what), w.PerNode, asked, mend)
}
