package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/membership/gate"
	"github.com/bringupd/bringupd/pkg/roles"
)

// waits is what the gate waits for, in the order of the sequence: each node
// once, for the first thing that it lacks.
func (v *view) waits() (waits []Wait) {
	for _, lack := range v.lacks {
		ranks := slices.DeleteFunc(slices.Clone(lack.Nodes), func(rank int) bool { return v.nodes[rank].step != lack.Step })
		wait := Wait{Step: lack.Step, What: gate.LabelsOf(lack.Step).OneMissing, Ranks: ranks}
		switch {
		case len(ranks) > 0:
			wait.Nodes = v.who(ranks)
		case len(lack.Nodes) > 0:
			continue // each lacks something else first
		case lack.Step != gate.StepHead:
			wait.What = textutil.TruncateText(tame(v.plan.Framework), mostNodesShown) + " has not counted all nodes yet"
		}
		waits = append(waits, wait)
	}
	return waits
}

// next is what can happen next, and when at the latest where that is known.
func (v *view) next(s Status) (what string, deadline *time.Time) {
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
	switch {
	case len(s.Waits) == 0:
		return "the gate opens", nil
	case s.Waits[0].Step == gate.StepWorkers && len(s.Waits[0].Ranks) == 0:
		return "the gate opens, when it has", nil
	}
	return v.nextDeadline(s.Waits)
}

// nextDeadline is the one that passes first.
func (v *view) nextDeadline(waits []Wait) (what string, deadline *time.Time) {
	var first time.Time
	step, ranks := waits[0].Step, waits[0].Ranks
	for _, wait := range waits {
		if at, rank, known := v.deadline(wait); known && (first.IsZero() || at.Before(first)) {
			first, step, ranks = at, wait.Step, []int{rank}
			if wait.Step == gate.StepJoin {
				ranks = wait.Ranks // it is the same for all of them
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

// deadline is the first one of those that a wait has, and whose.
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
		// From the head's start on a node has come nowhere that would be known.
		since := v.nodes[of].since
		if by := since.Add(within); since.After(v.start) && (!known || by.Before(at)) {
			at, rank, known = by, of, true
		}
	}
	return at, rank, known
}

// stepDeadline returns the deadline of the sandboxes of another step, and the first node that waits
// for one. It counts from the job's start until a daemon of that step appears, and is not known
// from then on, nor before the head's node has passed its checks.
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

// who is a list of ranks for people: their hosts, where those tell them apart.
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

// local tells whether the nodes are of one machine, which has one name.
func (v *view) local() bool {
	return len(v.nodes) > 1 && v.nodes[0].Host != "" && v.nodes[0].Host == v.nodes[1].Host
}
