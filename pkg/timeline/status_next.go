package timeline

import (
	"slices"
	"strconv"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// waits is what the gate waits for, in the order of the sequence.
func (v *view) waits() (waits []Wait) {
	at := make(map[string][]int)
	forHead := false
	for i := range v.nodes {
		n := &v.nodes[i]
		if v.waitsForHead(n) {
			forHead = true
			continue
		}
		at[n.step] = append(at[n.step], i)
	}
	for _, step := range []string{stepJoin, stepCheck, stepSandbox, stepHead, stepWorkers} {
		if step == stepHead && forHead {
			waits = append(waits, Wait{Step: step, What: whatOf(step)})
		}
		if ranks := at[step]; len(ranks) > 0 {
			waits = append(waits, Wait{Step: step, What: whatOf(step), Ranks: ranks, Nodes: v.who(ranks)})
		}
	}
	if len(waits) == 0 && v.counted() {
		waits = append(waits, Wait{Step: stepWorkers, What: prose.Cut(tame(v.plan.Framework), mostNodesShown) + " has not counted all nodes yet"})
	}
	return waits
}

// counted tells whether a framework counts the nodes before the gate opens.
func (v *view) counted() bool {
	return v.plan != nil && v.has(stepWorkers) && v.plan.Framework != "none"
}

// next is what can happen next, and when at the latest where that is known.
func (v *view) next(s Status) (what string, deadline *time.Time) {
	switch s.State {
	case Finished, HasFailed:
		return "nothing: the run is over", nil
	case Ending:
		return "the nodes end what they run, and the head writes the result", nil
	case IsUp:
		if v.plan == nil || v.has("driver") {
			return "the driver's end ends the job", nil
		}
		return "the job stays up until it is stopped: bringupd stop " + s.Path, nil
	}
	switch {
	case len(s.Waits) == 0:
		return "the gate opens", nil
	case s.Waits[0].Step == stepWorkers && len(s.Waits[0].Ranks) == 0:
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
			if wait.Step == stepJoin {
				ranks = wait.Ranks // it is the same for all of them
			}
		}
	}
	what = "the job fails unless " + v.mended(step, ranks)
	if v.need < len(v.nodes) && step != stepHead {
		what = "who is late is dropped: the job waits until " + v.mended(step, ranks)
	}
	if flag := flags[step]; flag != "" {
		what += " (" + flag + ")"
	}
	if first.IsZero() {
		return what, nil
	}
	return what, &first
}

// mended is what has to become true of a step's ranks.
func (v *view) mended(step string, ranks []int) string {
	switch who := prose.Cut(v.who(ranks), mostNodesShown); step {
	case stepJoin:
		return who + " has joined"
	case stepCheck:
		return "the checks have passed on " + who
	case stepSandbox:
		return "the sandbox is ready on " + who
	case stepHead:
		return whatHead
	default:
		return "the service is up on " + who
	}
}

const whatHead = "the head's service is up"

// flags are those that set a step's deadline.
var flags = map[string]string{
	stepJoin: "--join-timeout", stepCheck: "--setup-timeout, --check-timeout", stepSandbox: "--sandbox-timeout",
	stepHead: "--service-timeout", stepWorkers: "--service-timeout",
}

// deadline is the first one of those that a wait has, and whose.
func (v *view) deadline(wait Wait) (at time.Time, rank int, known bool) {
	if v.plan == nil || v.plan.Deadlines[wait.Step] <= 0 || v.start.IsZero() {
		return at, 0, false
	}
	within := v.plan.Deadlines[wait.Step]
	switch wait.Step {
	case stepJoin:
		return v.start.Add(within), wait.Ranks[0], true
	case stepHead:
		since := v.start
		if len(v.nodes) > 0 && v.nodes[0].since.After(since) {
			since = v.nodes[0].since
		}
		return since.Add(within), 0, true
	}
	for _, of := range wait.Ranks {
		n := &v.nodes[of]
		// From the head's start on a node has come nowhere that would be known.
		if !n.since.After(v.start) {
			continue
		}
		if by := n.since.Add(within); !known || by.Before(at) {
			at, rank, known = by, of, true
		}
	}
	return at, rank, known
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
			return prose.Ranks(ranks)
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

func compactHosts(hosts []string) string { return roles.CompactNodeList(hosts) }

func parseCount(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}
