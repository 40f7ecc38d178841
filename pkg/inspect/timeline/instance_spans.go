package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// InstanceSpan is a time in which an instance was in one state.
type InstanceSpan struct {
	Status     roles.InstanceStatus
	Generation int
	From, To   time.Time // on the head's clock; To is that of the next span, or zero for the last one
}

// instanceChange is a time at which the evidence about an instance changes.
type instanceChange struct {
	at    time.Time
	apply func(seen *roles.Evidence)
}

// InstanceSpans returns the spans of each instance from the beginning of the run, by its number.
// The last one has the state that the instance has in Roles. It is nil if the roles are not placed,
// and incomplete if the events were not read.
func (r *Run) InstanceSpans() map[int][]InstanceSpan {
	if r.Roles == nil {
		return nil
	}
	changes := r.collectChanges()
	spans := make(map[int][]InstanceSpan)
	for i := range r.Roles.Roles {
		role := &r.Roles.Roles[i]
		startedAt := r.startOf(role)
		for j := range role.Instances {
			instance := &role.Instances[j]
			own := slices.Concat(changes[instance.Number], r.builtInChanges(role, instance), r.endChanges())
			own = append(own, instanceChange{r.preparedAt(instance, startedAt), setStarted})
			spans[instance.Number] = r.replay(instance, own, roles.Evidence{
				Role: role.RolePlan, Nodes: instance.Nodes,
				ReadyAtStart: roles.IsReadyAtStart(role.Definition, role.StartRule),
			})
		}
	}
	return spans
}

func setStarted(seen *roles.Evidence) { seen.Started = true }

// replay determines the state of an instance after each change of the evidence.
func (r *Run) replay(instance *Instance, changes []instanceChange, seen roles.Evidence) []InstanceSpan {
	slices.SortStableFunc(changes, func(a, b instanceChange) int { return a.at.Compare(b.at) })
	var spans []InstanceSpan
	add := func(status roles.InstanceStatus, generation int, at time.Time) {
		last := len(spans) - 1
		switch {
		case last >= 0 && spans[last].Status == status && spans[last].Generation == generation:
			return
		case last >= 0 && !at.After(spans[last].From): // both at once, or the events are incomplete
			at = spans[last].From
			spans = spans[:last]
		case last >= 0:
			spans[last].To = at
		}
		spans = append(spans, InstanceSpan{Status: status, Generation: generation, From: at})
	}
	fold := func(at time.Time) {
		state := roles.Fold(seen)
		if state.Status == roles.StatusLost && state.Generation < instance.Generation {
			state.Status = roles.StatusRestarting // whatever its role says
		}
		add(state.Status, state.Generation, at)
	}
	fold(r.Control.Job.At)
	newest := r.Control.Job.At
	for _, change := range changes {
		if !change.at.IsZero() {
			newest = change.at
			change.apply(&seen)
			seen.GivenUp = instance.Status == roles.StatusLost && isNewestFailed(&seen, instance)
			fold(change.at)
		}
	}
	// The newest events may not be in the log yet.
	for _, node := range instance.Nodes {
		if node < len(r.Nodes) && r.Nodes[node].LastSign.After(newest) && !seen.RunEnded {
			newest = r.Nodes[node].LastSign
		}
	}
	add(instance.Status, instance.Generation, newest)
	return spans
}

// isNewestFailed reports whether the newest generation of an instance has failed.
func isNewestFailed(seen *roles.Evidence, instance *Instance) bool {
	state := roles.Fold(*seen)
	return state.HasFailed && state.Generation == instance.Generation
}

// collectChanges returns the changes that the events of all nodes show, by the number of the
// instance: its marks, and the orders of the head.
func (r *Run) collectChanges() map[int][]instanceChange {
	changes := make(map[int][]instanceChange)
	add := func(number int, e *Event, apply func(*roles.Evidence)) {
		changes[number] = append(changes[number], instanceChange{e.At.Add(-e.Took()), apply})
	}
	for i := range r.Events {
		e := &r.Events[i]
		if e.Name != eventlog.RecordPublished || !strings.Contains(e.Record, ".g") {
			continue // it has no generation
		}
		listed := (&signal.DirSnapshot{Names: []string{e.Record}}).ParseListing(len(r.Nodes))
		for _, mark := range listed.Instances() {
			add(mark.Instance, e, func(seen *roles.Evidence) { seen.Marks.Add(mark) })
		}
		for number, order := range listed.InstanceOrders() {
			add(number, e, func(seen *roles.Evidence) {
				seen.Generation = max(seen.Generation, order.Start)
				seen.FailedBefore = max(seen.FailedBefore, order.Stop)
			})
		}
	}
	return changes
}

// startOf returns when a role was started; zero if it has not been.
func (r *Run) startOf(role *Role) time.Time {
	ordered := func(e Event) bool {
		return e.Name == eventlog.RecordPublished && e.Record == signal.StartName(role.Name)
	}
	switch found := slices.IndexFunc(r.Events, ordered); {
	case found >= 0:
		return r.Events[found].At.Add(-r.Events[found].Took())
	case role.StartRule == roles.StartWithPlan && role.BuiltIn == roles.BuiltInWorker && len(role.After) > 0:
		return r.Control.Head.At
	case role.StartRule == roles.StartWithPlan:
		return r.Control.Job.At
	case role.StartRule == roles.StartAtGate:
		return r.Control.Go.At
	}
	return time.Time{}
}

// preparedAt returns when an instance of a role that was started at a time could start: when its
// nodes had joined and passed their checks. It is zero if one of them has not.
func (r *Run) preparedAt(instance *Instance, startedAt time.Time) time.Time {
	states := []record.State{record.StateJoined}
	if r.Job.HasChecks() {
		states = append(states, record.StateChecked)
	}
	for _, index := range instance.Nodes {
		if index >= len(r.Nodes) || startedAt.IsZero() {
			continue
		}
		for _, state := range states {
			switch at := r.Nodes[index].reachedAt(state); {
			case !r.Nodes[index].HasReached(state):
				return time.Time{}
			case at.After(startedAt):
				startedAt = at
			}
		}
	}
	return startedAt
}

// endChanges returns the end of the run.
func (r *Run) endChanges() []instanceChange {
	at := r.Control.Drain.At
	switch {
	case r.Control.Drain.Exists:
	case len(r.Control.Aborts) > 0:
		at = r.Control.Aborts[0].WrittenAt
	case r.Result != nil:
		at = r.Result.WrittenAt
	}
	return []instanceChange{{at, func(seen *roles.Evidence) { seen.RunEnded = true }}}
}

// builtInChanges returns the changes of an instance of a role for which flags stand, as far as
// records of the nodes or their phases show them instead of marks.
func (r *Run) builtInChanges(role *Role, instance *Instance) (changes []instanceChange) {
	add := func(node int, state record.InstanceState, at time.Time) {
		// The generations of services are not restarts.
		mark := record.InstanceMark{
			Node: node, Instance: instance.Number, State: state, Generation: instance.Generation,
		}
		changes = append(changes, instanceChange{at, func(seen *roles.Evidence) { seen.Marks.Add(mark) }})
	}
	if role.BuiltIn == "" {
		return nil
	}
	for _, index := range instance.Nodes {
		if index >= len(r.Nodes) {
			continue
		}
		node := &r.Nodes[index]
		switch role.BuiltIn {
		case roles.BuiltInHead:
			add(index, record.InstanceReady, r.Control.Head.At)
		case roles.BuiltInWorker:
			add(index, record.InstanceReady, node.reachedAt(record.StateServiceUp))
		case roles.BuiltInSandbox:
			add(index, record.InstanceReady, node.reachedAt(record.StateSandboxReady))
		case roles.BuiltInDriver:
			for _, span := range node.Phases {
				if span.Phase == string(record.PhaseDriver) && span.OK && !span.Open {
					add(index, record.InstanceDone, span.To)
				}
			}
		}
		for _, f := range node.Failures {
			isOfRank := role.BuiltIn == roles.BuiltInRanks && f.WorldRank != nil
			if isOfRank || f.Child == string(role.BuiltIn) {
				add(index, record.InstanceExited, node.Clock.ToHeadTime(f.WrittenAt).Add(-f.RecordDelay))
			}
		}
	}
	return changes
}

// reachedAt returns when the node reached a state; zero if it has not, or if that is unknown.
func (n *Node) reachedAt(state record.State) time.Time {
	at := slices.IndexFunc(n.States, func(s NodeState) bool { return s.Word == state })
	if at < 0 {
		return time.Time{}
	}
	return n.States[at].At
}
