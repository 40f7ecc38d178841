package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/membership/gate"
	"github.com/bringupd/bringupd/pkg/signal"
)

// view is a run with the data that all parts of its status need.
type view struct {
	run   *Run
	now   time.Time
	start time.Time // start of the head; zero if unknown
	plan  signal.JobPlan
	need  int         // number of nodes that the driver needs
	nodes []*nodeView // in node order
	asked gate.Requirements
	lacks []gate.UnmetStep // steps that the gate waits for
	// median is the time within which half of the nodes became ready; 0 if that is known of too few
	// nodes.
	median time.Duration
}

// nodeView is a node with its present step.
type nodeView struct {
	*Node
	step    string
	since   time.Time     // when it reached the step; zero if unknown
	took    time.Duration // from the head's start until it was ready; 0 if unknown
	dropped string        // reason for which the job dropped it; empty if it did not
	said    gate.LastReported
}

// Steps of a node that lacks nothing, or from which nothing is required any more. Package gate has
// the other steps.
const (
	stepReady   = "ready"
	stepFailed  = markFailed
	stepLost    = markLost
	stepDropped = markDropped
	stepSpare   = "spare"
	stepDone    = "done"
)

// newView evaluates a run for its status at the time now.
func newView(run *Run, now time.Time) *view {
	v := &view{run: run, now: now, start: run.Control.Job.At, plan: planOf(run), need: run.Size()}
	if v.plan.NodesNeeded > 0 {
		v.need = min(v.need, v.plan.NodesNeeded)
	}
	// Determine the requirements of the gate.
	v.asked = gate.Requirements{
		NeedChecks: v.has(gate.StepCheck), NeedSandboxes: v.has(gate.StepSandbox) && !v.sandboxesMet(), NeedServices: v.has(gate.StepWorkers),
		// No other service can be up before the head's, even if the record of the head's is missing.
		HeadServiceUp: !v.has(gate.StepHead) || run.Control.Head.There || len(run.In(signal.StateServiceUp)) > 0, FrameworkPending: v.has(gate.StepWorkers) && v.plan.Framework != "none",
	}
	for i := range run.Nodes {
		v.nodes = append(v.nodes, &nodeView{Node: &run.Nodes[i]})
	}
	// Add why nodes were dropped, and what they last reported.
	for _, d := range run.Dropped() {
		if d.Rank >= 0 && d.Rank < len(v.nodes) {
			v.nodes[d.Rank].dropped = cmp.Or(tame(d.Reason), "dropped")
		}
	}
	for _, event := range run.Events {
		if event.Rank < len(v.nodes) {
			v.nodes[event.Rank].said.RecordEvent(event.Name, event.Fields)
		}
	}
	for _, n := range v.nodes {
		n.step = v.without(n)
	}
	// Determine the step of each node.
	v.lacks = v.asked.UnmetSteps(v.missing)
	v.place()
	v.median = v.medianTook()
	return v
}

// without returns the step of a node from which the gate requires nothing any more, or an empty
// string if the gate still has requirements.
func (v *view) without(n *nodeView) string {
	switch {
	case n.dropped != "":
		return stepDropped
	case v.run.Lost(n.Rank) && !n.In(signal.StateDone):
		return stepLost
	case n.Blamed() != nil || len(n.Failures) == 0 && n.In(signal.StateFailed):
		return stepFailed
	case n.In(signal.StateDone), len(n.Failures) > 0:
		return stepDone
	default:
		return ""
	}
}

// missing returns the indices of the nodes that should be in a state but are not, in order. A
// sandbox and a service are required of members only, not of spares.
func (v *view) missing(state string) (ranks []int) {
	ofTeam := state == signal.StateSandboxReady || state == signal.StateServiceUp
	for _, n := range v.nodes {
		if n.step != "" || ofTeam && !v.member(n.Rank) {
			continue
		}
		if _, there := v.reached(n.Node, state); !there {
			ranks = append(ranks, n.Rank)
		}
	}
	return ranks
}

// place determines the step of each node, and since when the node is at it.
func (v *view) place() {
	// A node is at the first step that it lacks.
	for _, lack := range v.lacks {
		for _, rank := range lack.Nodes {
			if n := v.nodes[rank]; n.step == "" {
				n.step = lack.Step
			}
		}
	}
	for _, n := range v.nodes {
		if n.step != "" && !onTheWay(n.step) {
			continue
		}
		_, up := v.reached(n.Node, signal.StateServiceUp)
		switch {
		case n.step != "":
		case !v.member(n.Rank):
			n.step = stepSpare
		case v.asked.NeedServices && !up: // it waits for the head's service
			n.step = gate.StepWorkers
		default:
			n.step = stepReady
		}
		v.time(n)
	}
}

// onTheWay reports whether a step is one that a node has not completed.
func onTheWay(step string) bool {
	return slices.Contains([]string{gate.StepJoin, gate.StepCheck, gate.StepSandbox, gate.StepWorkers}, step)
}

// time determines since when a node is at its step.
func (v *view) time(n *nodeView) {
	// Take the latest time of the states before the node's step.
	n.since = v.start
	unknown := false // a state is so new that its time has not been written yet
	for _, way := range []struct {
		step, state string
		asked       bool
	}{
		{gate.StepJoin, signal.StateJoined, true}, {gate.StepCheck, signal.StateChecked, v.asked.NeedChecks},
		{gate.StepSandbox, signal.StateSandboxReady, v.asked.NeedSandboxes}, {gate.StepWorkers, signal.StateServiceUp, v.asked.NeedServices},
	} {
		if way.step == n.step || way.step == gate.StepSandbox && n.step == stepSpare {
			break
		}
		s, there := v.reached(n.Node, way.state)
		if way.asked && there {
			unknown = unknown || s.At.IsZero()
			n.since = later(n.since, s.At)
		}
	}
	switch n.step {
	case gate.StepWorkers:
		n.since = later(n.since, v.run.Control.Head.At) // its service cannot start before the head's is up
	case stepReady:
		if !unknown && !v.start.IsZero() && n.since.After(v.start) {
			n.took = n.since.Sub(v.start)
		}
	}
	if unknown {
		n.since = time.Time{}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// planOf returns the plan of a run. Older heads do not record a plan; it is derived then from the
// records that exist.
func planOf(run *Run) signal.JobPlan {
	if run.Job != nil && run.Job.Plan != nil {
		return *run.Job.Plan
	}
	plan := signal.JobPlan{Framework: "none", Phases: []string{gate.StepJoin, gate.StepDriver}}
	for state, steps := range map[string][]string{
		signal.StateChecked: {gate.StepCheck}, signal.StateSandboxReady: {gate.StepSandbox}, signal.StateServiceUp: {gate.StepHead, gate.StepWorkers},
	} {
		if len(run.In(state)) > 0 || state == signal.StateServiceUp && run.Control.Head.There {
			plan.Phases = append(plan.Phases, steps...)
		}
	}
	return plan
}

// has reports whether the plan of the run includes a step.
func (v *view) has(step string) bool { return slices.Contains(v.plan.Phases, step) }

// reached returns a state of a node if it counts. A service that came up before the node got its
// present place does not count.
func (v *view) reached(n *Node, state string) (NodeState, bool) {
	since := 0
	if team := v.run.Control.Team; team != nil && state == signal.StateServiceUp {
		if place := team.PlaceOf(n.Rank); place >= 0 {
			since = team.Members[place].SinceGeneration
		}
	}
	for _, s := range n.States {
		if s.Word == state && (state != signal.StateServiceUp || s.Generation >= since) {
			return s, true
		}
	}
	return NodeState{}, false
}

// member reports whether a node is a member, and not a spare.
func (v *view) member(rank int) bool {
	return v.run.Control.Team == nil || v.run.Control.Team.PlaceOf(rank) >= 0
}

// pages returns the dashboard of the head's service, or nil if there is none or the service is not
// up.
func (v *view) pages() *Pages {
	service := v.run.Control.Service
	if service == nil || service.Dashboard == "" || len(v.nodes) == 0 {
		return nil
	}
	return &Pages{URL: tame(service.Dashboard), Host: tame(v.nodes[0].Host)}
}

// sandboxesMet reports whether the gate needs no more sandboxes. It is false if the gate needs all
// of them and is not open.
func (v *view) sandboxesMet() bool {
	if v.run.Control.Go.There {
		return true
	}
	require, err := gate.ParseSandboxQuorum(v.plan.SandboxQuorum)
	return err == nil && v.plan.SandboxQuorum != "all" && require.IsMet(v.run.In(signal.StateSandboxReady), v.need)
}

// slowFrom is the minimum number of nodes for one of them to count as slow, and slowBy the minimum
// delay after the median. Smaller differences are chance.
const (
	slowFrom = 4
	slowBy   = time.Second
)

// medianTook returns the median of the times until the nodes were ready; 0 for fewer than slowFrom
// nodes.
func (v *view) medianTook() time.Duration {
	var all []time.Duration
	for _, n := range v.nodes {
		if n.took > 0 {
			all = append(all, n.took)
		}
	}
	if len(all) < slowFrom {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// count returns how many nodes are at each step, and how many are ready. If the run is over, it
// leaves out the steps before the gate at which there are no nodes.
func (v *view) count(over bool) (steps []StepCount, ready int) {
	at := make(map[string]int)
	for _, n := range v.nodes {
		at[n.step]++
	}
	// First the steps of the plan in their order, then the others.
	for _, step := range []string{gate.StepJoin, gate.StepCheck, gate.StepSandbox, gate.StepWorkers, stepReady} {
		if at[step] > 0 || !over && (v.has(step) || step == stepReady) {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	for _, step := range []string{stepSpare, stepDropped, stepFailed, stepLost, stepDone} {
		if at[step] > 0 {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	return steps, at[stepReady]
}

// status returns the status of one node. If the run has ended, it does not matter what the node was
// waiting for.
func (v *view) status(n *nodeView, state State) NodeStatus {
	s := NodeStatus{Rank: n.Rank, Host: tame(n.Host), Step: n.step, Mark: markOK}
	// A node that waits for the head's service is not the one that delays the run.
	waiting := state == BringingUp && onTheWay(n.step) && (n.step != gate.StepWorkers || v.asked.HeadServiceUp)
	// A node is slow if it took more than twice the median, and considerably longer.
	slow := v.median > 0 && n.took > 2*v.median && n.took-v.median > slowBy
	switch {
	case n.step == stepFailed:
		s.Mark = markFailed
		s.Step, s.What = n.failure()
	case n.step == stepLost:
		s.Mark, s.What = markLost, "no sign of it any more"
	case n.Done != nil && len(n.Done.LeftProcesses) > 0:
		s.Mark, s.What = markLeft, tame("left running: "+n.Done.LeftProcesses[0])
	case n.step == stepDropped:
		s.Mark, s.What = markDropped, n.dropped
	case waiting:
		if s.Mark, s.What = markWaits, n.waiting(); !n.since.IsZero() {
			s.For = max(0, v.now.Sub(n.since))
		}
	case len(n.Befell) > 0:
		s.Mark, s.What = markBefallen, tame(n.Befell[len(n.Befell)-1].Message)
	case slow && (state == BringingUp || state == IsUp):
		s.Mark, s.For, s.What = markSlow, n.took, "half of the nodes were ready after "+span(v.median)
	}
	return s
}

// waiting describes what a node waits for.
func (n *nodeView) waiting() string {
	lacks := gate.LabelsOf(n.step).OneMissing
	if said := n.said[n.step]; said != "" {
		return tame(lacks + ": " + said)
	}
	return lacks
}

// failure returns the phase in which the node failed, and a sentence about it.
func (n *nodeView) failure() (step, what string) {
	failed := n.Blamed()
	if failed == nil {
		return n.step, "it has failed; its record can't be read"
	}
	return cmp.Or(tame(failed.Phase), n.step), tame(failed.Message)
}
