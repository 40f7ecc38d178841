package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// phaseStats returns statistics of all phases, in the sequence of the phases.
func phaseStats(nodes []NodeRow) []PhaseStat {
	type part struct {
		PhaseLane
		node *NodeRow
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
			return cmp.Or(cmp.Compare(a.Took(), b.Took()), cmp.Compare(b.node.NodeIndex, a.node.NodeIndex))
		})
		n, last := len(all), all[len(all)-1]
		s := PhaseStat{
			Phase: phase, Nodes: n, NodeIndex: last.node.NodeIndex, Host: last.node.Host,
			Min: all[0].Took(), P50: all[(n-1)/2].Took(), P90: all[(n*9+9)/10-1].Took(), Max: last.Took(),
		}
		s.Open = countMatching(all, func(p part) bool { return p.Open })
		s.Failed = countMatching(all, func(p part) bool { return p.Failed })
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b PhaseStat) int {
		return cmp.Or(cmp.Compare(phaseIndex(a.Phase), phaseIndex(b.Phase)), cmp.Compare(a.Phase, b.Phase))
	})
	return stats
}

// phaseIndex returns the position of a phase in phaseOrder. Unknown phases come last.
func phaseIndex(phase string) int {
	if at := slices.Index(phaseOrder, phase); at >= 0 {
		return at
	}
	return len(phaseOrder)
}

func countMatching[T any](all []T, so func(T) bool) (n int) {
	for _, one := range all {
		if so(one) {
			n++
		}
	}
	return n
}

// isOwnPhase reports whether a node itself can be the reason that this phase is slow.
func isOwnPhase(phase string) bool {
	return slices.Contains([]string{"join", "check", "sandbox", "workers"}, phase)
}

// criticalPath returns the critical path from the beginning to the gate and on to the end. Each
// step names the node, or the instance, for which all others waited.
func (l viewBuilder) criticalPath(instances []InstanceRow) (steps []CriticalStep) {
	var from time.Duration
	add := func(step CriticalStep) {
		if step.To > from {
			step.From, step.Host = from, l.hostName(step.NodeIndex)
			steps, from = append(steps, step), step.To
		}
	}
	// Up to the gate, each step ends when the last node has completed it.
	prepared := []CriticalStep{
		l.latestNode("check", record.StateChecked), l.latestNode("sandbox", record.StateSandboxReady),
		{Phase: "head", To: l.sinceStart(l.run.Control.Head.At)},
	}
	add(l.latestNode("join", record.StateJoined))
	add(slices.MaxFunc(prepared, func(a, b CriticalStep) int { return cmp.Compare(a.To, b.To) }))
	add(l.latestNode(phaseWorkers, record.StateServiceUp))
	for _, step := range l.latestInstances(instances) {
		add(step)
	}
	if l.gateAfter == 0 || len(l.run.Nodes) == 0 {
		return steps
	}
	add(CriticalStep{Phase: phaseGate, To: l.gateAfter})
	head := &l.run.Nodes[0]
	isDriver := func(s timeline.PhaseSpan) bool { return s.Phase == phaseDriver }
	if at := slices.IndexFunc(head.Phases, isDriver); at >= 0 {
		add(CriticalStep{Phase: phaseDriver, To: l.sinceStart(head.Phases[at].To)})
	}
	return steps
}

// latestNode returns the node that was the last to reach a state. A state that is reached after the
// gate has opened delays no node.
func (l viewBuilder) latestNode(phase string, word record.State) CriticalStep {
	latest := CriticalStep{Phase: phase}
	for i := range l.run.Nodes {
		for _, state := range l.run.Nodes[i].States {
			at := l.sinceStart(state.At)
			if state.Word == word && at > latest.To && (l.gateAfter == 0 || at <= l.gateAfter) {
				latest.NodeIndex, latest.To = l.run.Nodes[i].NodeIndex, at
			}
		}
	}
	return latest
}

// latestInstances returns the instance that was the last to become ready before the gate, and
// before it those that were the last of the roles after which its own starts.
func (l viewBuilder) latestInstances(instances []InstanceRow) (steps []CriticalStep) {
	if !l.hasRoles() {
		return nil
	}
	var names []string
	after := make(map[string][]string)
	for _, role := range l.run.Roles.Roles {
		after[role.Name] = role.After
		if !role.Primary && role.BuiltIn == "" {
			names = append(names, role.Name)
		}
	}
	for len(names) > 0 && len(steps) < len(after) {
		var last InstanceRow
		for _, row := range instances {
			isBefore := l.gateAfter == 0 || row.Ready <= l.gateAfter
			if slices.Contains(names, row.Role) && len(row.Nodes) > 0 && isBefore && row.Ready > last.Ready {
				last = row
			}
		}
		if last.Ready == 0 {
			break
		}
		steps = slices.Insert(steps, 0, CriticalStep{
			Phase: phaseWorkers, Instance: last.Instance, NodeIndex: last.Nodes[0], To: last.Ready,
		})
		names = after[last.Role]
	}
	return steps
}

// markCritical marks the nodes for which the others waited on the critical path.
func markCritical(nodes []NodeRow, steps []CriticalStep) {
	for i := range nodes {
		nodes[i].Critical = slices.ContainsFunc(steps, func(s CriticalStep) bool {
			return s.NodeIndex == nodes[i].NodeIndex && isOwnPhase(s.Phase)
		})
	}
}

// phaseMeanings says in plain words what happens in each phase.
var phaseMeanings = map[string]string{
	"start":   "the daemon starts",
	"join":    "the nodes find each other in the run directory",
	"check":   "the setup command runs, and the node is checked",
	"sandbox": "the sandbox starts",
	"head":    "the service of the head starts; the others wait for it",
	"workers": "the services of the nodes, or the instances of roles, start",
	"gate":    "the nodes wait until the head opens the gate",
	"driver":  "the program runs",
	"drain":   "everything ends, and logs are copied",
}
