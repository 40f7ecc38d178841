package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// gateWaits returns the steps that the gate waits for, in the order of the sequence. It lists each
// node once, with the first step that the node lacks.
func (v *statusView) gateWaits() (waits []GateWait) {
	for _, unmet := range v.unmetSteps {
		step := string(unmet.Step)
		isElsewhere := func(node int) bool { return v.nodes[node].step != step }
		nodes := slices.DeleteFunc(slices.Clone(unmet.Nodes), isElsewhere)
		wait := GateWait{Step: step, What: membership.LabelsOf(unmet.Step).OneMissing, NodeIndices: nodes}
		switch {
		case len(nodes) > 0:
			wait.Nodes = v.formatNodeList(nodes)
		case len(unmet.Nodes) > 0:
			continue // each node lacks an earlier step
		case step != stepHead:
			framework := textutil.TruncateText(v.plan.Framework, maxNodeListLength)
			wait.What = framework + " does not report all nodes yet"
		}
		waits = append(waits, wait)
	}
	// Roles start when all nodes have passed their checks.
	if wait := v.waitingRoles(); len(waits) == 0 && len(v.plan.Roles) > 0 && wait != nil {
		waits = append(waits, *wait)
	}
	return waits
}

// describeNext describes what can happen next. It returns the latest time for it, or nil if that is
// unknown.
func (v *statusView) describeNext(s Status) (what string, deadline *time.Time) {
	linger, hasRoles := v.run.Control.LingerRecord, len(v.plan.Roles) > 0
	primaries := listRoles(s.Roles, func(role RoleStatus) bool { return role.Primary })
	switch {
	case s.Over():
		return "nothing: the run is over", nil
	case s.State == StateEnding:
		return "the nodes end their processes, and the head writes the result", nil
	case s.State == StateUp && linger != nil:
		end := linger.WrittenAt.Add(linger.InspectTime)
		return "everything else ends (--clean=none), or earlier with bringupd stop " + s.Path, &end
	case s.State == StateUp && hasRoles && (primaries != "" || v.run.Roles == nil):
		return "the job ends when its primary roles have ended: " + primaries, nil
	case s.State == StateUp && hasRoles:
		return untilStopped + s.Path, nil
	case s.State == StateUp && v.plan.HasRanks:
		return "the job ends when all ranks have ended, or when one fails", nil
	case s.State == StateUp && v.hasStep(string(record.PhaseDriver)):
		return "the job ends when the driver ends", nil
	case s.State == StateUp:
		return untilStopped + s.Path, nil
	case len(s.Waits) == 0:
		return "the gate opens", nil
	case s.Waits[0].Step != stepWorkers || len(s.Waits[0].NodeIndices) > 0:
		return v.describeFirstDeadline(s.Waits)
	case hasRoles:
		return "the gate opens when these roles have what they require (ready.timeout of each)", nil
	default:
		return "the gate opens when it does", nil
	}
}

// untilStopped describes what ends a run without a driver, before its path.
const untilStopped = "the job stays up until it is stopped: bringupd stop "

// describeFirstDeadline describes the wait with the earliest deadline, and returns that deadline;
// nil if none is known.
func (v *statusView) describeFirstDeadline(waits []GateWait) (what string, deadline *time.Time) {
	var first time.Time
	step, nodes := waits[0].Step, waits[0].NodeIndices
	for _, wait := range waits {
		if at, node := v.waitDeadline(wait); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first, step, nodes = at, wait.Step, []int{node}
			if wait.Step == stepJoin {
				nodes = wait.NodeIndices // all of them have the same deadline
			}
		}
	}
	labels := membership.LabelsOf(record.Phase(step))
	who := textutil.TruncateText(v.formatNodeList(nodes), maxNodeListLength)
	what = "the job fails unless "
	if v.need < len(v.nodes) && step != stepHead {
		what = "late nodes are dropped: the job waits until "
	}
	what += strings.ReplaceAll(labels.Condition, "%s", who) + " (" + labels.TimeoutFlags + ")"
	if first.IsZero() {
		return what, nil
	}
	return what, &first
}

// waitDeadline returns the earliest deadline of a wait, and the index of the node to which it
// applies. The time is zero if none is known.
func (v *statusView) waitDeadline(wait GateWait) (at time.Time, node int) {
	within := v.plan.PhaseTimeouts[record.Phase(wait.Step)]
	switch {
	case within <= 0 || v.start.IsZero():
		return at, 0
	case wait.Step == stepJoin:
		return v.start.Add(within), wait.NodeIndices[0]
	case wait.Step == stepHead && len(v.nodes) == 0:
		return v.start.Add(within), 0
	case wait.Step == stepHead:
		return laterTime(v.start, v.nodes[0].since).Add(within), 0
	case wait.Step == stepSandbox && v.run.Job != nil && len(v.run.Job.Steps) > 0:
		return at, 0 // it depends on when the step of the sandboxes began
	}
	for _, of := range wait.NodeIndices {
		// A time that is not after the head's start means that no step of the node is known.
		since := v.nodes[of].since
		if by := since.Add(within); since.After(v.start) && (at.IsZero() || by.Before(at)) {
			at, node = by, of
		}
	}
	return at, node
}

func (v *statusView) formatNodeList(nodes []int) string {
	id := launcher.Identity{Size: len(v.nodes)}
	if v.run.Job != nil {
		id.Steps = v.run.Job.Steps
	}
	return id.FormatNodes(nodes, func(member int) string {
		node := record.NodeOfMember(member, id.Size)
		if node < 0 || node >= len(v.nodes) {
			return ""
		}
		return v.nodes[node].Host
	})
}
