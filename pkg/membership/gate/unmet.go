package gate

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Requirements has the requirements that the gate has at present, besides that every node joins.
type Requirements struct {
	NeedChecks       bool // each node must pass its checks
	NeedSandboxes    bool // more sandboxes must become ready
	NeedServices     bool // each node must have a service
	HeadServiceUp    bool // the head's own service, for which the others wait, is up
	FrameworkPending bool // the framework is queried for its nodes, and has not listed all of them
}

// UnmetStep is a step that nodes have not completed.
type UnmetStep struct {
	Step  record.Phase
	Nodes []int // sorted; empty if no single node is concerned
}

// UnmetSteps returns the steps for which the gate waits, in the order of the sequence. It returns
// each node with its first missing step only, because later steps depend on it. The exception are
// sandbox and service, which start concurrently, so that both may be missing. The function missing
// returns the sorted indices of the nodes that should be in a state but are not.
func (a Requirements) UnmetSteps(missing func(state record.State) []int) (all []UnmetStep) {
	late := make(map[int]bool) // nodes that lack an earlier step
	lack := func(step record.Phase, state record.State) []int {
		nodes := slices.DeleteFunc(missing(state), func(node int) bool { return late[node] })
		if len(nodes) > 0 {
			all = append(all, UnmetStep{step, nodes})
		}
		return nodes
	}
	first := func(step record.Phase, state record.State) {
		for _, node := range lack(step, state) {
			late[node] = true
		}
	}
	// Join and check block all later steps of a node; sandbox and service do not.
	first(record.PhaseJoin, record.StateJoined)
	if a.NeedChecks {
		first(record.PhaseCheck, record.StateChecked)
	}
	if a.NeedSandboxes {
		lack(record.PhaseSandbox, record.StateSandboxReady)
	}
	switch {
	case !a.NeedServices:
	case a.HeadServiceUp:
		lack(record.PhaseWorkers, record.StateServiceUp)
	case !late[0]:
		all = append(all, UnmetStep{Step: record.PhaseHead})
	}
	if len(all) == 0 && a.FrameworkPending {
		all = append(all, UnmetStep{Step: record.PhaseWorkers})
	}
	return all
}
