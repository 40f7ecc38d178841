package gate

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// The steps on the way to the gate, and what comes behind it, as signal.Plan
// names them.
const (
	Join    = "join"
	Check   = "check"
	Sandbox = "sandbox"
	Head    = "head"
	Workers = "workers"
	Driver  = "driver"
)

// Asked is what the gate asks for at one moment, besides that every node joins.
type Asked struct {
	Checks    bool // each node is to pass its checks
	Sandboxes bool // there are not enough sandboxes yet
	Services  bool // each node is to have a service
	Led       bool // the head's own service is up, which those of the others wait for
	Counting  bool // the framework is asked for its nodes, and has not counted all
}

// Lack is a step that somebody lacks.
type Lack struct {
	Step  string
	Ranks []int // in order; none where it is no node's
}

// Lacks returns what the gate waits for, in the order of the sequence: of each
// node the first thing that it lacks, because the rest follows from it. Of a
// sandbox and a service, which start side by side, it may lack both. missing
// returns, in order, who is to be in a state and is not.
func (a Asked) Lacks(missing func(state string) []int) (all []Lack) {
	late := make(map[int]bool) // who lacks what all else follows from
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
