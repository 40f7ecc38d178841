package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

type statusView struct {
	run        *Run
	now        time.Time
	start      time.Time // start of the head; zero if unknown
	plan       record.Plan
	need       int         // number of nodes that the driver needs
	nodes      []*nodeView // in node order
	unmetSteps []membership.UnmetStep
	progress   []roles.Progress  // of the roles, in their order
	probes     map[string]string // what the probe of each late instance has last reported
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

// stepOrder lists the steps in the order in which they are shown.
var stepOrder = []string{
	stepJoin, stepCheck, stepSandbox, stepWorkers, stepReady, stepSpare, stepDropped, stepFailed, stepLost, stepDone,
}

// isPendingStep reports whether a step is one that a node has not completed.
func isPendingStep(step string) bool { return slices.Contains(stepOrder[:4], step) }

func newStatusView(run *Run, now time.Time) *statusView {
	v := &statusView{run: run, now: now, start: run.Control.Job.At, need: run.Size(),
		plan: record.Plan{Framework: "none"}}
	if run.Job != nil && run.Job.Plan != nil {
		v.plan = *run.Job.Plan
	}
	if v.plan.NodesNeeded > 0 {
		v.need = min(v.need, v.plan.NodesNeeded)
	}
	for i := range run.Nodes {
		n := &nodeView{Node: &run.Nodes[i], step: run.finalStep(&run.Nodes[i])}
		n.since = v.lastStateTime(n.Node)
		v.nodes = append(v.nodes, n)
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
	v.readProgress()
	required := membership.Requirements{
		NeedChecks: run.Job.HasChecks(), FrameworkPending: v.plan.Framework != "none", Roles: v.progress,
	}
	v.unmetSteps = required.UnmetSteps(v.nodesMissing)
	v.assignSteps()
	return v
}

// readProgress determines how far the roles have come, and what their late instances do.
func (v *statusView) readProgress() {
	if v.run.Roles == nil {
		return
	}
	v.probes = v.lastProbes()
	for i := range v.run.Roles.Roles {
		role := &v.run.Roles.Roles[i]
		progress := role.Progress(v.run.Size())
		for j := range progress.Late {
			v.describeLate(progress.RolePlan, &progress.Late[j])
		}
		v.progress = append(v.progress, progress)
	}
}

// describeLate adds to a late instance what it does, and since when it can have done so if its start is
// not known.
func (v *statusView) describeLate(role *roles.RolePlan, late *roles.LateInstance) {
	// When the daemons of a further step have begun is not known.
	isOfStep := role.BuiltIn == roles.BuiltInSandbox && v.run.Job != nil && len(v.run.Job.Steps) > 0
	if late.Since.IsZero() && role.BuiltIn.IsService() && !isOfStep && late.Node < len(v.nodes) {
		since := v.nodes[late.Node].since
		if role.BuiltIn == roles.BuiltInWorker {
			since = laterTime(since, v.run.Control.Head.At)
		}
		if since.After(v.start) { // otherwise no state of the node is known
			late.Since = since
		}
	}
	late.Last = v.run.LastLines[late.Log]
	probe := v.probes[instanceKey(role, late.Name, late.Node)]
	switch {
	case late.Last == "":
		late.Last = probe
	case probe != "":
		late.Last += " (" + probe + ")"
	}
}

// lastProbes returns what the probe of each instance has last reported, for those that are not ready,
// by their keys.
func (v *statusView) lastProbes() map[string]string {
	last := make(map[string]string)
	for _, event := range v.run.Events {
		if event.Name != eventlog.ProbeChanged {
			continue
		}
		for _, key := range processKeys(event.Child, event.NodeIndex) {
			// Of a larger instance, a process that is ready does not hide one that is not.
			if event.Seen != "" || key == event.Child || strings.Contains(key, "@") {
				last[key] = event.Seen // empty for a successful probe
			}
		}
	}
	return last
}

// nodesMissing returns the indices of the nodes that should be in a state but are not, in order.
func (v *statusView) nodesMissing(state record.State) (nodes []int) {
	for _, n := range v.nodes {
		if n.step == "" && !n.HasReached(state) {
			nodes = append(nodes, n.NodeIndex)
		}
	}
	return nodes
}

// assignSteps determines the step of each node.
func (v *statusView) assignSteps() {
	// A node is at the first step that it lacks.
	for _, unmet := range v.unmetSteps {
		for _, node := range unmet.Nodes {
			if n := v.nodes[node]; n.step == "" && unmet.Role == nil {
				n.step = string(unmet.Step)
			}
		}
	}
	// After its checks it is at the step of its first instance that the gate still requires.
	for i := range v.progress {
		if progress := &v.progress[i]; !progress.Primary && !progress.IsMet() {
			v.assignRoleStep(progress, v.run.Roles.Roles[i].Instances)
		}
	}
	haveServices := len(v.run.NodesInState(record.StateServiceUp)) > 0
	for _, n := range v.nodes {
		isMember := v.isMember(n.NodeIndex)
		switch {
		case n.step != "":
		case !isMember:
			n.step = stepSpare
		default:
			n.step = stepReady
		}
		wasReady := n.HasReached(record.StateJoined) && (n.HasReached(record.StateServiceUp) || !haveServices)
		if isMember && wasReady && !isPendingStep(n.step) {
			n.readyAt = n.since
		}
	}
}

// assignRoleStep assigns the step of a role to the nodes with instances that are not ready.
func (v *statusView) assignRoleStep(progress *roles.Progress, instances []Instance) {
	step := stepOf(progress.Definition)
	for i := range instances {
		if instances[i].LateNode < 0 || instances[i].IsOver() {
			continue
		}
		for _, node := range instances[i].Nodes {
			isEarlier := func(n *nodeView) bool {
				return n.step == "" || isPendingStep(n.step) &&
					slices.Index(stepOrder, step) < slices.Index(stepOrder, n.step)
			}
			if node < len(v.nodes) && isEarlier(v.nodes[node]) {
				v.nodes[node].step = step
			}
		}
	}
}

// stepOf returns the step of a node whose instance of a role is not ready.
func stepOf(role *roles.Definition) string {
	if role.BuiltIn == roles.BuiltInSandbox {
		return stepSandbox
	}
	return stepWorkers
}

// unmetStep returns the step of the nodes that lack something.
func unmetStep(unmet *membership.UnmetStep) string {
	if unmet.Role != nil {
		return stepOf(unmet.Role.Definition)
	}
	return string(unmet.Step)
}

// lastStateTime returns the latest time at which a node has reached a state of the sequence, or that of
// the head's start. It is zero if one of these times is unknown, because the state is new.
func (v *statusView) lastStateTime(n *Node) time.Time {
	since := v.start
	for _, state := range n.States {
		switch state.Word {
		case record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp:
			if state.At.IsZero() {
				return time.Time{}
			}
			since = laterTime(since, state.At)
		}
	}
	return since
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
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

// countSteps returns how many nodes are at each step, and how many are ready. A step without nodes is
// listed if nodes may still come to it.
func (v *statusView) countSteps(over bool) (steps []StepCount, ready int) {
	at := make(map[string]int)
	for _, n := range v.nodes {
		at[n.step]++
	}
	for _, step := range stepOrder {
		if at[step] > 0 || !over && v.mayReach(step) {
			steps = append(steps, StepCount{step, at[step]})
		}
	}
	return steps, at[stepReady]
}

// mayReach reports whether nodes may come to a step.
func (v *statusView) mayReach(step string) bool {
	switch step {
	case stepJoin, stepReady:
		return true
	case stepCheck:
		return v.run.Job.HasChecks()
	}
	return slices.ContainsFunc(v.progress,
		func(p roles.Progress) bool { return !p.Primary && stepOf(p.Definition) == step })
}

// nodeStatus returns the status of one node. If the run has ended, it does not matter what the node
// was waiting for.
func (v *statusView) nodeStatus(n *nodeView, state RunState) NodeStatus {
	s := NodeStatus{NodeIndex: n.NodeIndex, Host: n.Host, Step: n.step, Mark: markOK, ReadyAt: n.readyAt}
	switch {
	case n.step == stepFailed:
		s.Mark = markFailed
		s.Step, s.What = n.describeFailure()
	case n.isLost:
		s.Mark, s.What = markLost, "the run goes on without it"
	case n.step == stepLost:
		s.Mark, s.What = markLost, "it shows no activity any more"
	case n.Done != nil && len(n.Done.LeftProcesses) > 0:
		s.Mark, s.What = markLeftover, "left running: "+n.Done.LeftProcesses[0]
	case n.step == stepDropped:
		s.Mark, s.What = markDropped, n.dropReason
	case state == StateBringingUp && isPendingStep(n.step):
		v.describeWait(n, &s)
	case len(n.EventRecords) > 0:
		s.Mark, s.What = markEvent, n.EventRecords[len(n.EventRecords)-1].Message
	}
	return s
}

// describeWait describes what is awaited from a node. One whose instances wait for other roles is not
// the one that delays the run.
func (v *statusView) describeWait(n *nodeView, s *NodeStatus) {
	since := n.since
	for i := range v.unmetSteps {
		unmet := &v.unmetSteps[i]
		if unmetStep(unmet) != n.step || !slices.Contains(unmet.Nodes, n.NodeIndex) {
			continue
		}
		s.Mark = markWaiting
		if unmet.Role == nil {
			s.What = v.checkReason(n)
			break
		}
		of := func(late roles.LateInstance) bool { return late.Node == n.NodeIndex }
		late := unmet.Role.Late[slices.IndexFunc(unmet.Role.Late, of)]
		s.What = late.Name + " is not ready"
		if late.Last != "" {
			s.What += ": " + late.Last
		}
		if !late.Since.IsZero() {
			since = late.Since
		}
		break
	}
	if s.Mark == markWaiting && !since.IsZero() {
		s.For = max(0, v.now.Sub(since))
	}
}

// checkReason describes what is awaited from a node that has not joined, or not passed its checks.
func (v *statusView) checkReason(n *nodeView) string {
	lacks := membership.LabelsOf(record.Phase(n.step)).OneMissing
	reported := string(n.lastReported)
	switch {
	case n.step != stepCheck:
		return lacks
	case reported == membership.SetupRuns, reported == "":
		lacks = cmp.Or(reported, lacks)
		reported = v.run.LastLines[signal.LogName(membership.SetupName, n.NodeIndex, v.run.Size())]
	}
	if reported == "" {
		return lacks
	}
	return lacks + ": " + reported
}

func (n *nodeView) describeFailure() (step, what string) {
	failed := n.ownFailure()
	if failed == nil {
		return n.step, "it has failed; its record cannot be read"
	}
	return cmp.Or(string(failed.Phase), n.step), failed.Message
}
