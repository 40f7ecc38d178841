package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// statusView is a run with the data that all parts of its status need.
type statusView struct {
	run          *Run
	now          time.Time
	start        time.Time // start of the head; zero if unknown
	plan         record.Plan
	need         int         // number of nodes that the driver needs
	nodes        []*nodeView // in node order
	requirements membership.Requirements
	unmetSteps   []membership.UnmetStep // steps that the gate waits for
	// medianReady is the time within which half of the nodes became ready; 0 if that is known of too
	// few nodes.
	medianReady time.Duration
}

// nodeView is a node with its present step.
type nodeView struct {
	*Node
	step         string
	since        time.Time     // when it reached the step; zero if unknown
	readyAfter   time.Duration // from the head's start until it was ready; 0 if unknown
	dropReason   string        // reason for which the job dropped it; empty if it did not
	lastReported membership.LastReported
}

// Steps of a node that lacks nothing, or from which nothing is required any more. Package gate has
// the other steps.
const (
	stepReady   = "ready"
	StepFailed  = markFailed
	StepLost    = markLost
	StepDropped = markDropped
	stepSpare   = "spare"
	stepDone    = "done"
)

// newStatusView evaluates a run for its status at the time now.
func newStatusView(run *Run, now time.Time) *statusView {
	v := &statusView{run: run, now: now, start: run.Control.Job.At, plan: planOrDefault(run), need: run.Size()}
	if v.plan.NodesNeeded > 0 {
		v.need = min(v.need, v.plan.NodesNeeded)
	}
	// Determine the requirements of the gate.
	v.requirements = membership.Requirements{
		NeedChecks: v.hasStep(string(record.PhaseCheck)), NeedSandboxes: v.hasStep(string(record.PhaseSandbox)) && !v.hasEnoughSandboxes(), NeedServices: v.hasStep(string(record.PhaseWorkers)),
		// No other service can be up before the head's, even if the record of the head's is missing.
		HeadServiceUp: !v.hasStep(string(record.PhaseHead)) || run.Control.Head.Exists || len(run.NodesInState(record.StateServiceUp)) > 0, FrameworkPending: v.hasStep(string(record.PhaseWorkers)) && v.plan.Framework != "none",
	}
	for i := range run.Nodes {
		v.nodes = append(v.nodes, &nodeView{Node: &run.Nodes[i]})
	}
	// Add why nodes were dropped, and what they last reported.
	for _, d := range run.DroppedNodes() {
		if d.NodeIndex >= 0 && d.NodeIndex < len(v.nodes) {
			v.nodes[d.NodeIndex].dropReason = cmp.Or(sanitizeText(d.Reason), "dropped")
		}
	}
	for _, event := range run.Events {
		if event.NodeIndex < len(v.nodes) {
			v.nodes[event.NodeIndex].lastReported.RecordEvent(event.Name, event.Fields)
		}
	}
	for _, n := range v.nodes {
		n.step = v.run.FinalStep(n.Node)
	}
	// Determine the step of each node.
	v.unmetSteps = v.requirements.UnmetSteps(v.nodesMissing)
	v.assignSteps()
	v.medianReady = v.medianReadyTime()
	return v
}

// nodesMissing returns the indices of the nodes that should be in a state but are not, in order. A
// sandbox and a service are required of members only, not of spares.
func (v *statusView) nodesMissing(state record.State) (nodes []int) {
	ofTeam := state == record.StateSandboxReady || state == record.StateServiceUp
	for _, n := range v.nodes {
		if n.step != "" || ofTeam && !v.isMember(n.NodeIndex) {
			continue
		}
		if _, there := v.reachedState(n.Node, state); !there {
			nodes = append(nodes, n.NodeIndex)
		}
	}
	return nodes
}

// assignSteps determines the step of each node, and since when the node is at it.
func (v *statusView) assignSteps() {
	// A node is at the first step that it lacks.
	for _, lack := range v.unmetSteps {
		for _, node := range lack.Nodes {
			if n := v.nodes[node]; n.step == "" {
				n.step = string(lack.Step)
			}
		}
	}
	for _, n := range v.nodes {
		if n.step != "" && !isPendingStep(n.step) {
			continue
		}
		_, up := v.reachedState(n.Node, record.StateServiceUp)
		switch {
		case n.step != "":
		case !v.isMember(n.NodeIndex):
			n.step = stepSpare
		case v.requirements.NeedServices && !up: // it waits for the head's service
			n.step = string(record.PhaseWorkers)
		default:
			n.step = stepReady
		}
		v.setStepTime(n)
	}
}

// isPendingStep reports whether a step is one that a node has not completed.
func isPendingStep(step string) bool {
	return slices.Contains([]string{string(record.PhaseJoin), string(record.PhaseCheck), string(record.PhaseSandbox), string(record.PhaseWorkers)}, step)
}

// setStepTime determines since when a node is at its step.
func (v *statusView) setStepTime(n *nodeView) {
	// Take the latest time of the states before the node's step.
	n.since = v.start
	unknown := false // a state is so new that its time has not been written yet
	for _, way := range []struct {
		step  string
		state record.State
		asked bool
	}{
		{string(record.PhaseJoin), record.StateJoined, true}, {string(record.PhaseCheck), record.StateChecked, v.requirements.NeedChecks},
		{string(record.PhaseSandbox), record.StateSandboxReady, v.requirements.NeedSandboxes}, {string(record.PhaseWorkers), record.StateServiceUp, v.requirements.NeedServices},
	} {
		if way.step == n.step || way.step == string(record.PhaseSandbox) && n.step == stepSpare {
			break
		}
		s, there := v.reachedState(n.Node, way.state)
		if way.asked && there {
			unknown = unknown || s.At.IsZero()
			n.since = laterTime(n.since, s.At)
		}
	}
	switch n.step {
	case string(record.PhaseWorkers):
		// its service cannot start before the head's is up
		n.since = laterTime(n.since, v.run.Control.Head.At)
	case stepReady:
		if !unknown && !v.start.IsZero() && n.since.After(v.start) {
			n.readyAfter = n.since.Sub(v.start)
		}
	}
	if unknown {
		n.since = time.Time{}
	}
}

// laterTime returns the later of two times.
func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// planOrDefault returns the plan of a run. Older heads do not record a plan; it is derived then
// from the records that exist.
func planOrDefault(run *Run) record.Plan {
	if run.Job != nil && run.Job.Plan != nil {
		return *run.Job.Plan
	}
	plan := record.Plan{Framework: "none", Phases: []record.Phase{record.PhaseJoin, record.PhaseDriver}}
	for state, steps := range map[record.State][]record.Phase{
		record.StateChecked: {record.PhaseCheck}, record.StateSandboxReady: {record.PhaseSandbox}, record.StateServiceUp: {record.PhaseHead, record.PhaseWorkers},
	} {
		if len(run.NodesInState(state)) > 0 || state == record.StateServiceUp && run.Control.Head.Exists {
			plan.Phases = append(plan.Phases, steps...)
		}
	}
	return plan
}

// hasStep reports whether the plan of the run includes a step.
func (v *statusView) hasStep(step string) bool {
	return slices.Contains(v.plan.Phases, record.Phase(step))
}

// reachedState returns a state of a node if it counts. A service that came up before the node got
// its present place does not count.
func (v *statusView) reachedState(n *Node, state record.State) (NodeState, bool) {
	since := 0
	if team := v.run.Control.Membership; team != nil && state == record.StateServiceUp {
		if place := team.PlaceOf(n.NodeIndex); place >= 0 {
			since = team.Members[place].SinceGeneration
		}
	}
	for _, s := range n.States {
		if s.Word == state && (state != record.StateServiceUp || s.Generation >= since) {
			return s, true
		}
	}
	return NodeState{}, false
}

// isMember reports whether a node is a member, and not a spare.
func (v *statusView) isMember(node int) bool {
	return v.run.Control.Membership == nil || v.run.Control.Membership.PlaceOf(node) >= 0
}

// serviceDashboard returns the dashboard of the head's service, or nil if there is none or the
// service is not up.
func (v *statusView) serviceDashboard() *Dashboard {
	service := v.run.Control.HeadRecord
	if service == nil || service.Dashboard == "" || len(v.nodes) == 0 {
		return nil
	}
	return &Dashboard{URL: sanitizeText(service.Dashboard), Host: sanitizeText(v.nodes[0].Host)}
}

// hasEnoughSandboxes reports whether the gate needs no more sandboxes. It is false if the gate
// needs all of them and is not open.
func (v *statusView) hasEnoughSandboxes() bool {
	if v.run.Control.Go.Exists {
		return true
	}
	require, err := membership.ParseSandboxQuorum(v.plan.SandboxQuorum)
	return err == nil && v.plan.SandboxQuorum != "all" && require.IsMet(v.run.NodesInState(record.StateSandboxReady), v.need)
}

// minNodesForSlow is the minimum number of nodes for one of them to count as slow, and minSlowDelay
// the minimum delay after the median. Smaller differences are chance.
const (
	minNodesForSlow = 4
	minSlowDelay    = time.Second
)

// medianReadyTime returns the median of the times until the nodes were ready; 0 for fewer than
// minNodesForSlow nodes.
func (v *statusView) medianReadyTime() time.Duration {
	var all []time.Duration
	for _, n := range v.nodes {
		if n.readyAfter > 0 {
			all = append(all, n.readyAfter)
		}
	}
	if len(all) < minNodesForSlow {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// countSteps returns how many nodes are at each step, and how many are ready. If the run is over,
// it leaves out the steps before the gate at which there are no nodes.
func (v *statusView) countSteps(over bool) (steps []StepCount, ready int) {
	at := make(map[string]int)
	for _, n := range v.nodes {
		at[n.step]++
	}
	// First the steps of the plan in their order, then the others.
	for _, step := range []string{string(record.PhaseJoin), string(record.PhaseCheck), string(record.PhaseSandbox), string(record.PhaseWorkers), stepReady} {
		if at[step] > 0 || !over && (v.hasStep(step) || step == stepReady) {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	for _, step := range []string{stepSpare, StepDropped, StepFailed, StepLost, stepDone} {
		if at[step] > 0 {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	return steps, at[stepReady]
}

// nodeStatus returns the status of one node. If the run has ended, it does not matter what the node
// was waiting for.
func (v *statusView) nodeStatus(n *nodeView, state RunState) NodeStatus {
	s := NodeStatus{NodeIndex: n.NodeIndex, Host: sanitizeText(n.Host), Step: n.step, Mark: markOK}
	// A node that waits for the head's service is not the one that delays the run.
	waiting := state == StateBringingUp && isPendingStep(n.step) && (n.step != string(record.PhaseWorkers) || v.requirements.HeadServiceUp)
	// A node is slow if it took more than twice the median, and considerably longer.
	slow := v.medianReady > 0 && n.readyAfter > 2*v.medianReady && n.readyAfter-v.medianReady > minSlowDelay
	switch {
	case n.step == StepFailed:
		s.Mark = markFailed
		s.Step, s.What = n.describeFailure()
	case n.step == StepLost:
		s.Mark, s.What = markLost, "it shows no activity any more"
	case n.Done != nil && len(n.Done.LeftProcesses) > 0:
		s.Mark, s.What = markLeftover, sanitizeText("left running: "+n.Done.LeftProcesses[0])
	case n.step == StepDropped:
		s.Mark, s.What = markDropped, n.dropReason
	case waiting:
		if s.Mark, s.What = markWaiting, n.waitReason(); !n.since.IsZero() {
			s.For = max(0, v.now.Sub(n.since))
		}
	case len(n.EventRecords) > 0:
		s.Mark, s.What = markEvent, sanitizeText(n.EventRecords[len(n.EventRecords)-1].Message)
	case slow && (state == StateBringingUp || state == StateUp):
		s.Mark, s.For, s.What = markSlow, n.readyAfter, "half of the nodes were ready after "+formatDuration(v.medianReady)
	}
	return s
}

// waitReason describes what a node waits for.
func (n *nodeView) waitReason() string {
	lacks := membership.LabelsOf(record.Phase(n.step)).OneMissing
	if said := n.lastReported[record.Phase(n.step)]; said != "" {
		return sanitizeText(lacks + ": " + said)
	}
	return lacks
}

// describeFailure returns the phase in which the node failed, and a sentence about it.
func (n *nodeView) describeFailure() (step, what string) {
	failed := n.OwnFailure()
	if failed == nil {
		return n.step, "it has failed; its record cannot be read"
	}
	return cmp.Or(sanitizeText(string(failed.Phase)), n.step), sanitizeText(failed.Message)
}
