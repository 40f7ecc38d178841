package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// gateWaits returns what the gate waits for, in the order of the sequence. It lists each node once, with
// the first step that the node lacks.
func (v *statusView) gateWaits() (waits []GateWait) {
	for i := range v.unmetSteps {
		unmet := &v.unmetSteps[i]
		isElsewhere := func(node int) bool { return v.nodes[node].step != unmetStep(unmet) }
		nodes := slices.DeleteFunc(slices.Clone(unmet.Nodes), isElsewhere)
		if len(nodes) == 0 && len(unmet.Nodes) > 0 {
			continue // each node lacks an earlier step
		}
		wait := GateWait{Step: string(unmet.Step), NodeIndices: nodes}
		switch {
		case unmet.Role != nil:
			wait.Role, wait.What = unmet.Role.Name, membership.DescribeCounts(unmet.Role)
		case len(nodes) == 0:
			wait.What = textutil.TruncateText(v.plan.Framework, maxNodeListLength) + " does not report all nodes yet"
		default:
			wait.What = membership.LabelsOf(unmet.Step).OneMissing
		}
		if len(nodes) > 0 {
			wait.Nodes = v.formatNodeList(nodes)
		}
		waits = append(waits, wait)
	}
	if len(waits) == 0 && v.run.Roles == nil && len(v.plan.Roles) > 0 {
		waits = append(waits, GateWait{Step: stepWorkers, What: "the roles are not placed yet"})
	}
	return waits
}

// describeNext describes what can happen next. It returns the latest time for it, or nil if that is
// unknown.
func (v *statusView) describeNext(s Status) (what string, deadline *time.Time) {
	linger, hasRoles := v.run.Control.LingerRecord, len(v.plan.Roles) > 0
	primaries := listRoles(s.Roles, func(role RoleStatus) bool { return role.Primary })
	switch {
	case s.NextAttempt > 0:
		return fmt.Sprintf("attempt %d of this launch", s.NextAttempt+1), nil
	case s.Requeued:
		return "a requeue of the job", nil
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
		return v.describeRanksEnd(), nil
	case s.State == StateUp && v.plan.Driver != "":
		return "the job ends when the driver ends", nil
	case s.State == StateUp:
		return untilStopped + s.Path, nil
	case len(s.Waits) == 0:
		return "the gate opens", nil
	case s.Waits[0].Step == stepJoin, s.Waits[0].Step == stepCheck:
		return v.describeFirstDeadline(s.Waits)
	case s.Waits[0].Role != "":
		return v.describeRoleDeadline()
	case hasRoles:
		return "the head places the roles, and they start", nil
	default:
		return "the gate opens when it does", nil
	}
}

// describeRanksEnd describes when the run of ranks of flags ends.
func (v *statusView) describeRanksEnd() string {
	for i := range v.progress {
		role := &v.progress[i]
		switch left := role.Restarts.Max - v.run.Roles.Roles[i].RestartCount(); {
		case role.BuiltIn != roles.BuiltInRanks:
		case role.Placement.RanksGoOn:
			return "the job ends when all ranks have ended"
		case left > 0:
			return fmt.Sprintf("the job ends when all ranks have ended, or when one fails: "+
				"they may be started again %d of %d times", left, role.Restarts.Max)
		}
	}
	return "the job ends when all ranks have ended, or when one fails"
}

// untilStopped describes what ends a run without a driver, before its path.
const untilStopped = "the job stays up until it is stopped: bringupd stop "

// describeRoleDeadline describes the first late instance that may end the wait for roles by failing, and
// returns until when it must be ready; nil if that is unknown.
func (v *statusView) describeRoleDeadline() (what string, deadline *time.Time) {
	var first *roles.LateInstance
	setting := ""
	for i := range v.unmetSteps {
		role := v.unmetSteps[i].Role
		if role == nil {
			continue
		}
		for j := range role.Late {
			late := &role.Late[j]
			by := late.Since.Add(role.StartTimeout())
			isStarting := late.Status == roles.StatusStarting && !late.Since.IsZero()
			if isStarting && (deadline == nil || by.Before(*deadline)) {
				first, deadline, setting = late, &by, timeoutSetting(role.Definition)
			}
		}
	}
	if first == nil {
		return "the gate opens when these roles have what they require", nil
	}
	what = fmt.Sprintf("%s on %s must be ready (%s)", first.Name, v.formatNodeList([]int{first.Node}), setting)
	if v.need < len(v.nodes) && setting == startTimeout {
		what += ", or the node is dropped"
	}
	return what, deadline
}

const startTimeout = "--start-timeout"

// timeoutSetting returns the setting of the time within which an instance must be ready.
func timeoutSetting(role *roles.Definition) string {
	switch {
	case role.BuiltIn != "":
		return startTimeout
	case role.Oneshot:
		return "timeout of the role"
	}
	return "ready.timeout of the role"
}

// describeFirstDeadline describes the wait for nodes with the earliest deadline, and returns that
// deadline; nil if none is known.
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
	if v.need < len(v.nodes) {
		what = "late nodes are dropped: the job waits until "
	}
	what += strings.ReplaceAll(labels.Condition, "%s", who) + " (" + labels.TimeoutFlags + ")"
	if first.IsZero() {
		return what, nil
	}
	return what, &first
}

// waitDeadline returns the earliest deadline of a wait for nodes, and the index of the node to which it
// applies. The time is zero if none is known.
func (v *statusView) waitDeadline(wait GateWait) (at time.Time, node int) {
	switch {
	case v.start.IsZero():
		return at, 0
	case wait.Step == stepJoin && v.plan.JoinTimeout > 0:
		return v.start.Add(v.plan.JoinTimeout), wait.NodeIndices[0]
	case wait.Step != stepCheck:
		return at, 0
	}
	for _, of := range wait.NodeIndices {
		// A time that is not after the head's start means that no step of the node is known.
		since := v.nodes[of].since
		if by := since.Add(v.plan.CheckTimeout); since.After(v.start) && (at.IsZero() || by.Before(at)) {
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
