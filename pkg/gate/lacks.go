package gate

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// The steps before the gate, and the step after it, with the names that signal.Plan uses.
const (
	Join    = "join"
	Check   = "check"
	Sandbox = "sandbox"
	Head    = "head"
	Workers = "workers"
	Driver  = "driver"
)

// Asked has the requirements that the gate has at present, besides that every node joins.
type Asked struct {
	Checks    bool // each node must pass its checks
	Sandboxes bool // more sandboxes must become ready
	Services  bool // each node must have a service
	Led       bool // the head's own service, for which the others wait, is up
	Counting  bool // the framework is queried for its nodes, and has not listed all of them
}

// Lack is a step that nodes have not completed.
type Lack struct {
	Step  string
	Ranks []int // sorted; empty if no single node is concerned
}

// Lacks returns the steps for which the gate waits, in the order of the sequence. It returns each
// node with its first missing step only, because later steps depend on it. The exception are
// sandbox and service, which start concurrently, so that both may be missing. The function missing
// returns the sorted indices of the nodes that should be in a state but are not.
func (a Asked) Lacks(missing func(state string) []int) (all []Lack) {
	late := make(map[int]bool) // nodes that lack an earlier step
	lack := func(step, state string) []int {
		ranks := slices.DeleteFunc(missing(state), func(rank int) bool { return late[rank] })
		if len(ranks) > 0 {
			all = append(all, Lack{step, ranks})
		}
		return ranks
	}
	first := func(step, state string) {
		for _, rank := range lack(step, state) {
			late[rank] = true
		}
	}
	// Join and check block all later steps of a node; sandbox and service do not.
	first(Join, signal.Joined)
	if a.Checks {
		first(Check, signal.Checked)
	}
	if a.Sandboxes {
		lack(Sandbox, signal.Sandbox)
	}
	switch {
	case !a.Services:
	case a.Led:
		lack(Workers, signal.Up)
	case !late[0]:
		all = append(all, Lack{Step: Head})
	}
	if len(all) == 0 && a.Counting {
		all = append(all, Lack{Step: Workers})
	}
	return all
}
