package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/membership/gate"
	"github.com/bringupd/bringupd/pkg/roles"
)

// waits returns the steps that the gate waits for, in the order of the sequence. It lists each node
// once, with the first step that the node lacks.
func (v *view) waits() (waits []Wait) {
	for _, lack := range v.lacks {
		ranks := slices.DeleteFunc(slices.Clone(lack.Nodes), func(rank int) bool { return v.nodes[rank].step != lack.Step })
		wait := Wait{Step: lack.Step, What: gate.LabelsOf(lack.Step).OneMissing, Ranks: ranks}
		switch {
		case len(ranks) > 0:
			wait.Nodes = v.who(ranks)
		case len(lack.Nodes) > 0:
			continue // each node lacks an earlier step
		case lack.Step != gate.StepHead:
			wait.What = textutil.TruncateText(tame(v.plan.Framework), mostNodesShown) + " has not counted all nodes yet"
		}
		waits = append(waits, wait)
	}
	return waits
}

// next describes what can happen next. It returns the latest time for it, or nil if that is
// unknown.
func (v *view) next(s Status) (what string, deadline *time.Time) {
	// Describe the states other than bringing-up.
	switch s.State {
	case Finished, HasFailed:
		return "nothing: the run is over", nil
	case Ending:
		return "the nodes end what they run, and the head writes the result", nil
	case IsUp:
		if look := v.run.Control.Look; look != nil {
			end := look.WrittenAt.Add(look.InspectTime)
			return "all else ends (--clean-after), or sooner by bringupd stop " + s.Path, &end
		}
		if v.plan.HasRanks {
			return "the end of the last rank ends the job, or the first that fails", nil
		}
		if v.has(gate.StepDriver) {
			return "the driver's end ends the job", nil
		}
		return "the job stays up until it is stopped: bringupd stop " + s.Path, nil
	}
	// During bring-up, it depends on the steps that the gate waits for.
	switch {
	case len(s.Waits) == 0:
		return "the gate opens", nil
	case s.Waits[0].Step == gate.StepWorkers && len(s.Waits[0].Ranks) == 0:
		return "the gate opens, when it has", nil
	}
	return v.nextDeadline(s.Waits)
}

// nextDeadline describes the wait with the earliest deadline, and returns that deadline; nil if
// none is known.
func (v *view) nextDeadline(waits []Wait) (what string, deadline *time.Time) {
	var first time.Time
	step, ranks := waits[0].Step, waits[0].Ranks
	for _, wait := range waits {
		if at, rank, known := v.deadline(wait); known && (first.IsZero() || at.Before(first)) {
			first, step, ranks = at, wait.Step, []int{rank}
			if wait.Step == gate.StepJoin {
				ranks = wait.Ranks // all of them have the same deadline
			}
		}
	}
	words, who := gate.LabelsOf(step), textutil.TruncateText(v.who(ranks), mostNodesShown)
	what = "the job fails unless "
	if v.need < len(v.nodes) && step != gate.StepHead {
		what = "who is late is dropped: the job waits until "
	}
	what += strings.ReplaceAll(words.Condition, "%s", who) + " (" + words.TimeoutFlags + ")"
	if first.IsZero() {
		return what, nil
	}
	return what, &first
}

// deadline returns the earliest deadline of a wait, and the index of the node to which it applies.
func (v *view) deadline(wait Wait) (at time.Time, rank int, known bool) {
	within := v.plan.PhaseTimeouts[wait.Step]
	switch {
	case within <= 0 || v.start.IsZero():
		return at, 0, false
	case wait.Step == gate.StepJoin:
		return v.start.Add(within), wait.Ranks[0], true
	case wait.Step == gate.StepHead && len(v.nodes) == 0:
		return v.start.Add(within), 0, true
	case wait.Step == gate.StepHead:
		return later(v.start, v.nodes[0].since).Add(within), 0, true
	case wait.Step == gate.StepSandbox && v.run.Job != nil && v.run.Job.SandboxStep:
		return v.stepDeadline(wait, within)
	}
	for _, of := range wait.Ranks {
		// A time that is not after the head's start means that no step of the node is known.
		since := v.nodes[of].since
		if by := since.Add(within); since.After(v.start) && (!known || by.Before(at)) {
			at, rank, known = by, of, true
		}
	}
	return at, rank, known
}

// stepDeadline returns the deadline of the sandboxes of a separate step, and the first node that
// waits for one. The timeout counts from the job's start. The deadline is unknown once a daemon of
// that step has appeared, and before the head's node has passed its checks.
func (v *view) stepDeadline(wait Wait, within time.Duration) (at time.Time, rank int, known bool) {
	head := v.nodes[0]
	if head.step == gate.StepJoin || head.step == gate.StepCheck {
		return at, 0, false
	}
	for _, of := range wait.Ranks {
		if v.nodes[of].SandboxBeat > 0 {
			return at, 0, false
		}
	}
	return later(v.start.Add(within), head.since), wait.Ranks[0], true
}

// who formats a list of nodes for people: as hosts if these are distinct, otherwise as indices.
func (v *view) who(ranks []int) string {
	var hosts []string
	seen := make(map[string]bool)
	for _, rank := range ranks {
		if rank < 0 || rank >= len(v.nodes) {
			continue
		}
		host := v.nodes[rank].Host
		if host == "" || seen[host] || v.local() {
			ranks = slices.Clone(ranks)
			slices.Sort(ranks)
			return textutil.FormatRanks(ranks)
		}
		seen[host] = true
		hosts = append(hosts, host)
	}
	return tame(roles.CompactNodeList(hosts))
}

// local reports whether all nodes are on one machine, and thus have the same host name.
func (v *view) local() bool {
	return len(v.nodes) > 1 && v.nodes[0].Host != "" && v.nodes[0].Host == v.nodes[1].Host
}
