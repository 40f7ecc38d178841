package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// slowFloor is the minimum delay after the median of a straggler, in addition to the factor of two.
// A few milliseconds are due to the scheduler.
const slowFloor = 100 * time.Millisecond

// phases returns statistics of all phases, in the sequence of the phases.
func phases(nodes []Node) []PhaseStat {
	type part struct {
		Lane
		node *Node
	}
	// Collect the lanes of each phase.
	parts := make(map[string][]part)
	for i := range nodes {
		for _, lane := range nodes[i].Lanes {
			parts[lane.Phase] = append(parts[lane.Phase], part{lane, &nodes[i]})
		}
	}
	stats := make([]PhaseStat, 0, len(parts))
	// Sort them by duration, and take the quantiles by nearest rank.
	for phase, all := range parts {
		slices.SortFunc(all, func(a, b part) int {
			return cmp.Or(cmp.Compare(a.Took(), b.Took()), cmp.Compare(b.node.Rank, a.node.Rank))
		})
		n, last := len(all), all[len(all)-1]
		s := PhaseStat{
			Phase: phase, Nodes: n, Rank: last.node.Rank, Host: last.node.Host,
			Min: all[0].Took(), P50: all[(n-1)/2].Took(), P90: all[(n*9+9)/10-1].Took(), Max: last.Took(),
		}
		s.Open = count(all, func(p part) bool { return p.Open })
		s.Failed = count(all, func(p part) bool { return p.Failed })
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b PhaseStat) int {
		return cmp.Or(cmp.Compare(phaseRank(a.Phase), phaseRank(b.Phase)), cmp.Compare(a.Phase, b.Phase))
	})
	return stats
}

// count returns the number of elements for which the function returns true.
func count[T any](all []T, so func(T) bool) (n int) {
	for _, one := range all {
		if so(one) {
			n++
		}
	}
	return n
}

// straggles reports whether a node itself can be the reason that this phase is slow.
func straggles(phase string) bool {
	return slices.Contains([]string{"join", "check", "sandbox", "workers"}, phase)
}

// markSlow marks the phases of each node that took more than twice the median.
func markSlow(nodes []Node, stats []PhaseStat) {
	for _, s := range stats {
		if s.Nodes < 3 || !straggles(s.Phase) {
			continue
		}
		for i := range nodes {
			if nodes[i].Rank == 0 && s.Phase != "check" && s.Phase != "sandbox" {
				continue // the head waits for all others in these phases
			}
			for _, lane := range nodes[i].Lanes {
				if lane.Phase == s.Phase && lane.Took() > 2*s.P50 && lane.Took() > s.P50+slowFloor {
					nodes[i].Slow = append(nodes[i].Slow, s.Phase)
				}
			}
		}
	}
}

// critical returns the critical path from the beginning to the gate and on to the end. Each step
// names the node for which all others waited.
func (l looking) critical() (steps []Step) {
	var from time.Duration
	add := func(phase string, rank int, to time.Duration) {
		if to > from {
			steps = append(steps, Step{phase, rank, l.host(rank), from, to})
			from = to
		}
	}
	// Up to the gate, each step ends when the last node has completed it.
	phase, rank, to := l.latest([]string{signal.StateJoined}, []string{"join"})
	add(phase, rank, to)
	phase, rank, to = l.latest([]string{signal.StateChecked, signal.StateSandboxReady}, []string{"check", "sandbox"})
	if head := l.at(l.run.Control.Head.At); head > to {
		phase, rank, to = "head", 0, head
	}
	add(phase, rank, to)
	phase, rank, to = l.latest([]string{signal.StateServiceUp}, []string{"workers"})
	add(phase, rank, to)
	if l.gate > 0 {
		add("gate", 0, l.gate)
		for _, head := range l.run.Nodes[:min(len(l.run.Nodes), 1)] {
			if at := slices.IndexFunc(head.Phases, func(s timeline.Span) bool { return s.Phase == "driver" }); at >= 0 {
				add("driver", 0, l.at(head.Phases[at].To))
			}
		}
	}
	return steps
}

// latest returns the node that was the last to reach one of the given states, with the time and the
// phase of that state.
func (l looking) latest(states, phases []string) (phase string, rank int, at time.Duration) {
	for i := range l.run.Nodes {
		for _, state := range l.run.Nodes[i].States {
			which := slices.Index(states, state.Word)
			// A state that is reached after the gate has opened delays no node.
			if l.gate > 0 && l.at(state.At) > l.gate {
				continue
			}
			if t := l.at(state.At); which >= 0 && t > at {
				phase, rank, at = phases[which], l.run.Nodes[i].Rank, t
			}
		}
	}
	return phase, rank, at
}

// markCritical marks the nodes for which the others waited on the critical path.
func markCritical(nodes []Node, steps []Step) {
	for i := range nodes {
		nodes[i].Critical = slices.ContainsFunc(steps, func(s Step) bool { return s.Rank == nodes[i].Rank && straggles(s.Phase) })
	}
}
