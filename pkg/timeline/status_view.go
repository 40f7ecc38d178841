package timeline

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// view is a run with what all parts of its status need.
type view struct {
	run   *Run
	now   time.Time
	start time.Time // when the head began; zero where nobody tells
	plan  *signal.Plan
	need  int
	nodes []nodeView
	steps map[string]bool // that there are in this run
	// enough says that the gate needs no more sandboxes.
	enough bool
	// median is the time that half of the nodes took until they were ready; 0
	// where that is not known of enough of them.
	median time.Duration
}

// nodeView is a node with where it is.
type nodeView struct {
	*Node
	step    string
	since   time.Time     // when it came there; zero where that is not known
	took    time.Duration // from the head's start until it was ready; 0 where not known
	dropped string        // why the job did without it
	lost    bool          // the end says that it is missed
	spare   bool          // it stands by
	said    words
}

// The steps that a node comes through, besides those that have no work.
const (
	stepJoin    = "join"
	stepCheck   = "check"
	stepSandbox = "sandbox"
	stepHead    = "head"
	stepWorkers = "workers"
	stepReady   = "ready"
	stepFailed  = "failed"
	stepLost    = "lost"
	stepDropped = "dropped"
	stepSpare   = "spare"
	stepDone    = "done"
)

func newView(run *Run, now time.Time) *view {
	v := &view{run: run, now: now, need: run.Size()}
	if run.Job != nil {
		v.start, v.plan = run.Job.At, run.Job.Plan
	}
	if v.start.IsZero() {
		v.start = run.Control.Job.At
	}
	if v.plan != nil && v.plan.Need > 0 && v.plan.Need < v.need {
		v.need = v.plan.Need
	}
	v.steps, v.enough = v.stepsOf(), v.sandboxesMet()
	dropped, lost := v.dropped(), v.lost()
	said := v.said()
	v.nodes = make([]nodeView, len(run.Nodes))
	for i := range run.Nodes {
		n := nodeView{Node: &run.Nodes[i]}
		n.lost = slices.Contains(lost, n.Rank)
		n.dropped, n.said = dropped[n.Rank], said[n.Rank]
		v.place(&n)
		v.nodes[i] = n
	}
	v.median = v.medianTook()
	return v
}

// dropped is why the job does without nodes, by rank.
func (v *view) dropped() map[int]string {
	why := make(map[int]string)
	var all []signal.DroppedRank
	if v.run.Control.Team != nil {
		all = append(all, v.run.Control.Team.Dropped...)
	}
	if v.run.Result != nil {
		all = append(all, v.run.Result.Dropped...)
	}
	for _, d := range all {
		why[d.Rank] = tame(d.Why)
		if why[d.Rank] == "" {
			why[d.Rank] = "dropped"
		}
	}
	return why
}

// lost are the ranks that the first cause misses.
func (v *view) lost() []int {
	if v.run.Result != nil && v.run.Result.Cause != nil {
		return v.run.Result.Cause.Lost
	}
	if v.run.Result == nil && len(v.run.Control.Aborts) > 0 {
		return v.run.Control.Aborts[0].Cause.Lost
	}
	return nil
}

// words are what a node says last that it waits for.
type words struct{ checks, probe string }

// said is what the nodes say, by rank.
func (v *view) said() map[int]words {
	said := make(map[int]words)
	for _, event := range v.run.Events {
		w := said[event.Rank]
		switch event.Name {
		case trail.Waits:
			w.checks = event.Checks
		case trail.Probe:
			w.probe = event.Seen
		default:
			continue
		}
		said[event.Rank] = w
	}
	return said
}

// stepsOf are the steps of the run. One of an older head tells no plan: then
// what is there says so.
func (v *view) stepsOf() map[string]bool {
	steps := map[string]bool{stepJoin: true}
	if v.plan != nil {
		for _, step := range v.plan.Steps {
			steps[step] = true
		}
		return steps
	}
	serves := v.run.Control.Head.There || len(v.run.In(signal.Up)) > 0
	steps[stepCheck], steps[stepSandbox] = len(v.run.In(signal.Checked)) > 0, len(v.run.In(signal.Sandbox)) > 0
	steps[stepHead], steps[stepWorkers] = serves, serves
	return steps
}

func (v *view) has(step string) bool { return v.steps[step] }

// place finds out at which step a node is, and since when.
func (v *view) place(n *nodeView) {
	n.since = v.start
	unknown := false // when it came to where it is: what is new is not written yet
	reached := func(state string) bool {
		s, there := v.reached(n.Node, state)
		if there && s.At.After(n.since) {
			n.since = s.At
		}
		unknown = unknown || there && s.At.IsZero()
		return there
	}
	member := v.member(n.Rank)
	switch {
	case n.dropped != "":
		n.step = stepDropped
	case n.lost && !n.In(signal.Done):
		n.step = stepLost
	case n.blamed() != nil || len(n.Failures) == 0 && n.In(signal.Failed):
		n.step = stepFailed
	case n.In(signal.Done), len(n.Failures) > 0:
		n.step = stepDone
	case !reached(signal.Joined):
		n.step = stepJoin
	case v.has(stepCheck) && !reached(signal.Checked):
		n.step = stepCheck
	case v.run.Control.Team != nil && !member:
		n.step, n.spare = stepSpare, true
	case v.has(stepSandbox) && !v.enough && !reached(signal.Sandbox):
		n.step = stepSandbox
	case v.has(stepWorkers) && !reached(signal.Up):
		n.step = stepWorkers
		// It can't begin before the head's service is up.
		if head := v.run.Control.Head.At; head.After(n.since) {
			n.since = head
		}
	default:
		n.step = stepReady
		if !unknown && !v.start.IsZero() && n.since.After(v.start) {
			n.took = n.since.Sub(v.start)
		}
	}
	if unknown {
		n.since = time.Time{}
	}
}

// reached returns the state of a node, where it counts: a service that is up in
// a place that the node has not any more does not.
func (v *view) reached(n *Node, state string) (NodeState, bool) {
	since := 0
	if team := v.run.Control.Team; team != nil && state == signal.Up {
		if place := team.Place(n.Rank); place >= 0 {
			since = team.Members[place].Since
		}
	}
	for _, s := range n.States {
		if s.Word == state && (state != signal.Up || s.Generation >= since) {
			return s, true
		}
	}
	return NodeState{}, false
}

func (v *view) member(rank int) bool {
	return v.run.Control.Team == nil || v.run.Control.Team.Place(rank) >= 0
}

// sandboxesMet tells whether the gate needs no more sandboxes, where it does not
// need all of them.
func (v *view) sandboxesMet() bool {
	if v.run.Control.Go.There {
		return true
	}
	if v.plan == nil {
		return false
	}
	ready := v.run.In(signal.Sandbox)
	switch v.plan.Sandboxes {
	case "all", "":
		return false
	case "any":
		return len(ready) > 0
	case "head":
		return len(ready) > 0 && ready[0] == 0
	default:
		need, ok := parseCount(v.plan.Sandboxes)
		return ok && len(ready) >= need
	}
}

// slowFrom is how many nodes there must be for one of them to be slow, and
// slowBy what it must be later than the median at least: below, it is chance.
const (
	slowFrom = 4
	slowBy   = time.Second
)

func (v *view) medianTook() time.Duration {
	var all []time.Duration
	for i := range v.nodes {
		if took := v.nodes[i].took; took > 0 {
			all = append(all, took)
		}
	}
	if len(all) < slowFrom {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// count is where the nodes are, and how many are ready. Of a run that is over,
// only those matter where some are.
func (v *view) count(over bool) (steps []StepCount, ready int) {
	at := make(map[string]int)
	for i := range v.nodes {
		at[v.nodes[i].step]++
	}
	for _, step := range []string{stepJoin, stepCheck, stepSandbox, stepWorkers, stepReady} {
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

// status is one node's. What a run that has ended waited for is no matter.
func (v *view) status(i int, state State) NodeStatus {
	n := &v.nodes[i]
	s := NodeStatus{Rank: n.Rank, Host: tame(n.Host), Step: n.step, Mark: markOK}
	waiting := state == BringingUp && slices.Contains([]string{stepJoin, stepCheck, stepSandbox, stepWorkers}, n.step)
	switch {
	case n.step == stepFailed:
		s.Mark = markFailed
		s.Step, s.What = n.failure()
	case n.step == stepLost:
		s.Mark, s.What = markLost, "no sign of it any more"
	case n.Done != nil && len(n.Done.Left) > 0:
		s.Mark, s.What = markLeft, tame("left running: "+n.Done.Left[0])
	case n.step == stepDropped:
		s.Mark, s.What = markDropped, n.dropped
	case waiting && !v.waitsForHead(n):
		s.Mark, s.What, s.For = markWaits, n.waiting(), v.ago(n.since)
	case len(n.Befell) > 0:
		s.Mark, s.What = markBefallen, tame(n.Befell[len(n.Befell)-1].What)
	case v.slow(n) && (state == BringingUp || state == IsUp):
		s.Mark, s.For, s.What = markSlow, n.took, "half of the nodes were ready after "+span(v.median)
	}
	return s
}

// waiting is what a node waits for.
func (n *nodeView) waiting() string {
	said := n.said.probe
	if n.step == stepCheck {
		said = n.said.checks
	}
	if said == "" || n.step == stepJoin {
		return whatOf(n.step)
	}
	return tame(whatOf(n.step) + ": " + said)
}

// blamed is what failed on the node first; nil where it has recorded but that it
// misses others.
func (n *nodeView) blamed() *signal.FailedRecord {
	for i := range n.Failures {
		if lost := n.Failures[i].Lost; len(lost) == 0 || slices.Contains(lost, n.Rank) {
			return &n.Failures[i]
		}
	}
	return nil
}

// failure is where the node failed, and the sentence of it.
func (n *nodeView) failure() (step, what string) {
	failed := n.blamed()
	if failed == nil {
		return n.step, "it has failed; its record can't be read"
	}
	if step = tame(failed.Phase); step == "" {
		step = n.step
	}
	return step, tame(failed.What)
}

func (v *view) slow(n *nodeView) bool {
	return v.median > 0 && n.took > 2*v.median && n.took-v.median > slowBy
}

// waitsForHead tells whether a node can do nothing before the head's service is
// up.
func (v *view) waitsForHead(n *nodeView) bool {
	return n.step == stepWorkers && v.has(stepHead) && !v.run.Control.Head.There
}

// ago is how long ago something was; 0 where that is not known.
func (v *view) ago(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(0, v.now.Sub(at))
}

// whatOf says what a node lacks.
func whatOf(step string) string {
	switch step {
	case stepJoin:
		return "has not joined"
	case stepCheck:
		return "has not passed its checks"
	case stepSandbox:
		return "its sandbox is not ready"
	case stepHead:
		return "the head's service is not up"
	default:
		return "its service is not up"
	}
}
