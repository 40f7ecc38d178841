package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

type statusView struct {
	run          *Run
	now          time.Time
	start        time.Time // start of the head; zero if unknown
	plan         record.Plan
	need         int         // number of nodes that the driver needs
	nodes        []*nodeView // in node order
	requirements membership.Requirements
	unmetSteps   []membership.UnmetStep // steps that the gate waits for
}

type nodeView struct {
	*Node
	step         string
	since        time.Time // when it reached the step; zero if unknown
	readyAt      time.Time // when it met all requirements of the gate; zero if unknown, or if it does not
	dropReason   string    // reason for which the job dropped it; empty if it did not
	lastReported membership.LastReported
}

// Steps of a node. The first ones are those that it may lack, in their order. The others are those of
// a node that lacks nothing, or from which nothing is required any more.
const (
	stepJoin    = string(record.PhaseJoin)
	stepCheck   = string(record.PhaseCheck)
	stepSandbox = string(record.PhaseSandbox)
	stepWorkers = string(record.PhaseWorkers)
	stepReady   = "ready"
	stepSpare   = "spare"
	stepDropped = markDropped
	stepFailed  = markFailed
	stepLost    = markLost
	stepDone    = "done"
)

// stepHead is the step of the head's service, which the gate may lack, but no node.
const stepHead = string(record.PhaseHead)

// stepOrder lists the steps in the order in which they are shown.
var stepOrder = []string{
	stepJoin, stepCheck, stepSandbox, stepWorkers, stepReady, stepSpare, stepDropped, stepFailed, stepLost, stepDone,
}

// isPendingStep reports whether a step is one that a node has not completed.
func isPendingStep(step string) bool { return slices.Contains(stepOrder[:4], step) }

func newStatusView(run *Run, now time.Time) *statusView {
	v := &statusView{run: run, now: now, start: run.Control.Job.At, need: run.Size()}
	v.plan = record.Plan{Framework: "none", Phases: []record.Phase{record.PhaseJoin, record.PhaseDriver}}
	if run.Job != nil && run.Job.Plan != nil {
		v.plan = *run.Job.Plan
	}
	if v.plan.NodesNeeded > 0 {
		v.need = min(v.need, v.plan.NodesNeeded)
	}
	v.requirements = membership.Requirements{
		NeedChecks:    v.hasStep(stepCheck),
		NeedSandboxes: v.hasStep(stepSandbox) && !v.hasEnoughSandboxes(),
		NeedServices:  v.hasStep(stepWorkers),
		// No other service can be up before the head's, even if the record of the head's is missing.
		HeadServiceUp: !v.hasStep(stepHead) || run.Control.Head.Exists ||
			len(run.NodesInState(record.StateServiceUp)) > 0,
		FrameworkPending: v.hasStep(stepWorkers) && v.plan.Framework != "none",
	}
	for i := range run.Nodes {
		v.nodes = append(v.nodes, &nodeView{Node: &run.Nodes[i], step: run.finalStep(&run.Nodes[i])})
	}
	// Add why nodes were dropped, and what they last reported.
	for _, d := range run.droppedNodes() {
		if d.NodeIndex >= 0 && d.NodeIndex < len(v.nodes) {
			v.nodes[d.NodeIndex].dropReason = cmp.Or(d.Reason, "dropped")
		}
	}
	for _, event := range run.Events {
		if event.NodeIndex < len(v.nodes) {
			v.nodes[event.NodeIndex].lastReported.RecordEvent(event.Name, event.Fields)
		}
	}
	v.unmetSteps = v.requirements.UnmetSteps(v.nodesMissing)
	v.assignSteps()
	return v
}

// nodesMissing returns the indices of the nodes that should be in a state but are not, in order.
func (v *statusView) nodesMissing(state record.State) (nodes []int) {
	for _, n := range v.nodes {
		if _, there := v.reachedState(n.Node, state); n.step == "" && !there && v.isRequired(n.Node, state) {
			nodes = append(nodes, n.NodeIndex)
		}
	}
	return nodes
}

// isRequired reports whether the gate may require a state of a node: a sandbox and a service are
// required of members only, not of spares.
func (v *statusView) isRequired(n *Node, state record.State) bool {
	return state != record.StateSandboxReady && state != record.StateServiceUp || v.isMember(n.NodeIndex)
}

// assignSteps determines the step of each node, and since when the node is at it.
func (v *statusView) assignSteps() {
	// A node is at the first step that it lacks.
	for _, unmet := range v.unmetSteps {
		for _, node := range unmet.Nodes {
			if n := v.nodes[node]; n.step == "" {
				n.step = string(unmet.Step)
			}
		}
	}
	for _, n := range v.nodes {
		_, up := v.reachedState(n.Node, record.StateServiceUp)
		switch {
		case n.step != "":
		case !v.isMember(n.NodeIndex):
			n.step = stepSpare
		case v.requirements.NeedServices && !up: // it waits for the head's service
			n.step = stepWorkers
		default:
			n.step = stepReady
		}
		v.setStepTimes(n)
	}
}

// setStepTimes determines since when a node is at its step, and when it was ready: at the latest time
// of the states before.
func (v *statusView) setStepTimes(n *nodeView) {
	n.since = v.start
	isReady, isKnown := true, true
	for _, goal := range []struct {
		state record.State
		asked bool
	}{
		{record.StateJoined, true},
		{record.StateChecked, v.requirements.NeedChecks},
		{record.StateSandboxReady, v.requirements.NeedSandboxes},
		{record.StateServiceUp, v.requirements.NeedServices},
	} {
		if !goal.asked || !v.isRequired(n.Node, goal.state) {
			continue
		}
		s, there := v.reachedState(n.Node, goal.state)
		if !there {
			isReady = false
			break
		}
		isKnown = isKnown && !s.At.IsZero() // a new state may have no time yet
		n.since = laterTime(n.since, s.At)
	}
	switch {
	case !isKnown:
		n.since = time.Time{}
	case n.step == stepWorkers:
		n.since = laterTime(n.since, v.run.Control.Head.At) // its service cannot start before the head's is up
	case isReady && v.isMember(n.NodeIndex):
		n.readyAt = n.since
	}
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (v *statusView) hasStep(step string) bool {
	return slices.Contains(v.plan.Phases, record.Phase(step))
}

// reachedState returns a state of a node if it counts. A service that came up before the node got
// its present place does not count.
func (v *statusView) reachedState(n *Node, state record.State) (NodeState, bool) {
	since := 0
	if team := v.run.Control.Team; team != nil && state == record.StateServiceUp {
		if place := team.PlaceOf(n.NodeIndex); place >= 0 {
			since = team.Offers[place].Since
		}
	}
	for _, s := range n.States {
		if s.Word == state && (state != record.StateServiceUp || s.Generation >= since) {
			return s, true
		}
	}
	return NodeState{}, false
}

func (v *statusView) isMember(node int) bool {
	return v.run.Control.Team == nil || v.run.Control.Team.PlaceOf(node) >= 0
}

// serviceDashboard returns the dashboard of the head's service, or nil if there is none or the
// service is not up.
func (v *statusView) serviceDashboard() *Dashboard {
	service := v.run.Control.HeadRecord
	if service == nil || service.Dashboard == "" || len(v.nodes) == 0 {
		return nil
	}
	return &Dashboard{URL: service.Dashboard, Host: v.nodes[0].Host}
}

// hasEnoughSandboxes reports whether the gate needs no more sandboxes. It is false if the gate
// needs all of them and is not open.
func (v *statusView) hasEnoughSandboxes() bool {
	if v.run.Control.Go.Exists {
		return true
	}
	require, err := membership.ParseSandboxQuorum(v.plan.SandboxQuorum)
	ready := v.run.NodesInState(record.StateSandboxReady)
	return err == nil && v.plan.SandboxQuorum != "all" && require.IsMet(ready, v.need)
}

// countSteps returns how many nodes are at each step, and how many are ready. A step without nodes is
// listed if nodes may still come to it.
func (v *statusView) countSteps(over bool) (steps []StepCount, ready int) {
	at := make(map[string]int)
	for _, n := range v.nodes {
		at[n.step]++
	}
	for _, step := range stepOrder {
		if at[step] > 0 || !over && (v.hasStep(step) || step == stepReady) {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	return steps, at[stepReady]
}

// nodeStatus returns the status of one node. If the run has ended, it does not matter what the node
// was waiting for.
func (v *statusView) nodeStatus(n *nodeView, state RunState) NodeStatus {
	s := NodeStatus{NodeIndex: n.NodeIndex, Host: n.Host, Step: n.step, Mark: markOK, ReadyAt: n.readyAt}
	// A node that waits for the head's service is not the one that delays the run.
	waiting := state == StateBringingUp && isPendingStep(n.step) &&
		(n.step != stepWorkers || v.requirements.HeadServiceUp)
	switch {
	case n.step == stepFailed:
		s.Mark = markFailed
		s.Step, s.What = n.describeFailure()
	case n.step == stepLost:
		s.Mark, s.What = markLost, "it shows no activity any more"
	case n.Done != nil && len(n.Done.LeftProcesses) > 0:
		s.Mark, s.What = markLeftover, "left running: "+n.Done.LeftProcesses[0]
	case n.step == stepDropped:
		s.Mark, s.What = markDropped, n.dropReason
	case waiting:
		if s.Mark, s.What = markWaiting, n.waitReason(); !n.since.IsZero() {
			s.For = max(0, v.now.Sub(n.since))
		}
	case len(n.EventRecords) > 0:
		s.Mark, s.What = markEvent, n.EventRecords[len(n.EventRecords)-1].Message
	}
	return s
}

func (n *nodeView) waitReason() string {
	lacks := membership.LabelsOf(record.Phase(n.step)).OneMissing
	if reported := n.lastReported[record.Phase(n.step)]; reported != "" {
		return lacks + ": " + reported
	}
	return lacks
}

func (n *nodeView) describeFailure() (step, what string) {
	failed := n.ownFailure()
	if failed == nil {
		return n.step, "it has failed; its record cannot be read"
	}
	return cmp.Or(string(failed.Phase), n.step), failed.Message
}
