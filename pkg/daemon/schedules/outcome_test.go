package schedules

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// slack is the time for the steps of a detection, in addition to its deadlines.
const slack = time.Second

// check verifies all conditions that must hold for an attempt that is over. The caller must hold
// the lock of the shared file system.
func (a *attempt) check() {
	for _, d := range a.daemons {
		if d.returned == 0 && !d.crashed {
			a.world.broke(9, d.client, "has not ended, %v after the beginning", a.world.Now())
			return
		}
	}
	if a.roles != nil {
		a.checkLeftovers()
		a.roles.check()
		return
	}
	a.checkLeaving()
	a.checkCodes()
	a.checkLeftovers()
	if a.sick() {
		return
	}
	a.checkPace()
	switch head := a.daemons[0]; {
	case a.run == "":
	case head.crashed:
		a.checkClaim()
	default:
		a.checkResult(head)
	}
}

// sick reports whether any node's mount has hung for long.
func (a *attempt) sick() bool {
	return slices.ContainsFunc(a.daemons, func(d *running) bool { return d.machine.sick })
}

// outsider reports whether a daemon ended before it knew of the run: no code could be sent to it or
// received from it. It also covers a daemon whose name had not appeared when it was signalled.
func (d *running) outsider() bool {
	return !d.met || d.termed > 0 && (d.told == 0 || d.termed < d.told)
}

// survivors returns the daemons that have returned, took part, and could read and write all the
// time.
func (a *attempt) survivors() (took []*running) {
	for _, d := range a.daemons {
		if !d.crashed && !d.machine.sick && (d.rank == 0 || !d.outsider()) {
			took = append(took, d)
		}
	}
	return took
}

// mustBeUp verifies that the gate opens only when every node of the membership is up in its place.
func (a *attempt) mustBeUp() {
	team := a.team()
	if len(team) < a.needed || team[0].NodeIndex != 0 { // at least the head is needed
		a.world.broke(1, nil, "sees the gate open for %v, and %d are needed", team, a.needed)
	}
	for _, member := range team {
		if a.world.Find(a.path(signal.NodesDir,
			signal.NodeName(member.NodeIndex, a.size, signal.ServiceUpState(member.SinceGeneration)))) == nil {
			a.world.broke(1, nil, "sees the gate open, and node %d is not up", member.NodeIndex)
		}
	}
}

func (a *attempt) spares() bool { return a.needed < a.size }

// team returns the newest published membership, or all nodes if none is expected.
func (a *attempt) team() (members []membership.Member) {
	if !a.spares() {
		for node := range a.size {
			members = append(members, membership.Member{NodeIndex: node})
		}
		return members
	}
	const maxPlans = 100 // a number may be left out
	for number := range maxPlans {
		name := signal.SeriesPlan.Name(number)
		if a.world.Find(a.path(signal.ControlDir, name)) == nil {
			continue
		}
		members = nil
		for _, node := range read[roles.PlanRecord](a, signal.ControlDir, name).Offers {
			members = append(members, membership.Member{NodeIndex: node.NodeIndex, SinceGeneration: node.Since})
		}
	}
	return members
}

// needs reports whether a daemon's end ends the job: the head's always does.
func (a *attempt) needs(d *running) bool {
	return !a.spares() || d.rank == 0 || a.opened > 0 &&
		slices.ContainsFunc(a.team(), func(m membership.Member) bool { return m.NodeIndex == d.rank })
}

// doesWithout reports whether a daemon's end has no effect: the gate was opened for a membership
// without it.
func (a *attempt) doesWithout(d *running) bool { return a.opened > 0 && !a.needs(d) }

// stoodAside reports whether a daemon may have left with 0 because it could not learn of the end:
// the job had continued without it, and then the head was gone or this daemon alone was signalled.
func (a *attempt) stoodAside(d *running) bool {
	head := a.daemons[0]
	return a.spares() && d.rank != 0 && d.code == 0 && (head.crashed || head.machine.sick || d.termed > 0)
}

// mustHaveResult verifies that the result exists when the head publishes that it is finished, which
// is its last record, unless its mount prevents it.
func (a *attempt) mustHaveResult() {
	if !a.daemons[0].machine.sick && a.world.Find(a.path("", signal.NameResult)) == nil {
		a.world.broke(11, nil, "sees that the head is done, and there is no result")
	}
}

// mustBeLast verifies that the head leaves after all others that know of the end.
func (a *attempt) mustBeLast(head *running) {
	if head.signalled > 1 {
		return
	}
	for _, d := range a.survivors() {
		done := a.world.Find(a.path(signal.NodesDir, signal.NodeName(d.rank, a.size, record.StateDone)))
		if d.told > 0 && d.told < a.ended && d.returned > head.returned && (done == nil || done.Born > head.returned) {
			a.world.broke(13, head.client, "has returned at %v, and %s was not done", head.returned, d.name())
		}
	}
}

// checkLeaving verifies rule 13: no worker leaves before the end is published.
func (a *attempt) checkLeaving() {
	head := a.daemons[0]
	for _, d := range a.survivors() {
		switch {
		case a.stoodAside(d):
		case !a.world.weather.Off && head.machine.sick && (head.crashed || d.code == head.code):
			// A head that cannot write its end sends it over the peer links.
		case d.rank != 0 && !d.left:
			a.world.broke(13, d.client, "returned %d before any end was published", d.code)
		case d.rank != 0 && d.code != 0 && !d.last && d.signalled < 2 && !head.crashed && !head.machine.sick:
			a.world.broke(13, d.client, "returned %d before the head had done all it does", d.code)
		}
	}
	for _, d := range a.daemons[1:] {
		switch deadline := d.born + times.Join; {
		case d.crashed || d.machine.sick || d.met || d.termed > 0:
		case d.returned < deadline:
			a.world.broke(13, d.client, "returned %d, %v after its start, without the run", d.code, d.returned-d.born)
		case a.shown > 0 && a.shown < deadline-2*slack && d.machine.mood.Passing == 0:
			a.world.broke(3, d.client, "did not find the run until %v, which was there at %v", d.returned, a.shown)
		}
	}
}

// checkCodes verifies rule 12: the job has one code.
func (a *attempt) checkCodes() {
	control := a.published()
	var codes []int
	for _, d := range a.survivors() {
		if !a.stoodAside(d) {
			codes = append(codes, d.code)
		}
	}
	// A head that was silent for so long may come back and end the run in its own way, while the
	// others end it in theirs. If the head has crashed, another daemon whose mount hung may do so.
	head := a.daemons[0]
	back := head.machine.sick || head.crashed && a.sick()
	// The end that a head has published in its last moments may be missing in listings for a while,
	// and a peer link reports its death earlier.
	back = back || head.crashed && !a.world.weather.Off && a.ended > 0 && head.died > a.ended &&
		head.died < a.ended+staleMost
	if !back && slices.Contains(control, signal.NameOrderlyEnd) &&
		a.abortedBy(control, func(d *running) bool { return !d.machine.sick }) {
		a.world.broke(12, nil, "sees two ends: %v", control)
	}
	if !back && len(slices.Compact(slices.Clone(codes))) > 1 {
		a.world.broke(12, nil, "sees the daemons return %v", codes)
	}
	for _, d := range a.survivors() {
		switch {
		case a.run == "" && d.code != health.OutcomeOfKind(health.ShareUnusable).Code &&
			d.termed == 0 && a.plan.End != endLeave:
			a.world.broke(12, d.client, "returned %d where there was no run", d.code)
		case d.code == 0 && a.asked == 0 && !a.stoodAside(d):
			a.world.broke(10, d.client, "returned 0, and nobody had asked for the end")
		}
	}
	for _, name := range aborts(control) {
		if rec := read[record.Abort](a, signal.ControlDir, name); rec.Nonce == a.nonce {
			a.checkCause(&rec.Cause, rec.Code, name)
		}
	}
}

// published returns the names in the run's control directory.
func (a *attempt) published() (names []string) {
	if dir := a.world.Find(a.path(signal.ControlDir, "")); a.run != "" && dir != nil {
		for name := range dir.Live {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// abortedBy reports whether a daemon selected by one has published an abort.
func (a *attempt) abortedBy(control []string, one func(*running) bool) bool {
	return slices.ContainsFunc(a.daemons, func(d *running) bool {
		return one(d) && slices.Contains(control, signal.AbortName(d.rank, a.size))
	})
}

func aborts(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "abort.") })
}

// read returns a record of the run, its zero value if the record does not exist.
func read[T any](a *attempt, sub, name string) (record T) {
	if f := a.world.Find(a.path(sub, name)); f != nil {
		_ = json.Unmarshal(f.Data, &record)
	}
	return record
}

// checkCause verifies rule 11: an end with a cause names what has happened.
func (a *attempt) checkCause(cause *record.Failure, code int, where string) {
	if want := health.OutcomeOfCause(*cause).Code; want != code {
		a.world.broke(12, nil, "sees %s with code %d, where %q has %d", where, code, cause.Kind, want)
	}
	blamed, ended := false, a.ended
	if cause.NodeIndex == 0 && a.daemons[0].machine.sick {
		ended = max(ended, a.judged) // it did not know of an end that others have published
	}
	switch kind := cause.Kind; kind {
	case health.PeerLost, health.DaemonDied, health.HostLost, health.HostHangs, health.CutOff:
		blamed = len(cause.LostNodes) > 0 && a.all(cause.LostNodes, func(d *running) bool {
			return d.crashed && (d.died < ended || d.rank == 0 && d.died < a.ended+staleMost) || d.machine.sick ||
				// The head's mount and a peer's network are both disturbed: the two cannot be distinguished.
				cause.NodeIndex == 0 && a.daemons[0].machine.sick && d.machine.disturbed
		})
	case health.ShareUnusable:
		blamed = len(cause.LostNodes) > 0 && a.all(cause.LostNodes,
			func(d *running) bool { return d.told == 0 || a.ended-d.told < slack }) ||
			a.daemons[cause.NodeIndex].machine.sick
	case health.ServiceDied, health.DriverFailed:
		blamed = a.roles.blames(cause)
	case health.DeadlinePassed: // a node whose mount hung during the start
		blamed = a.roles != nil && a.sick()
	case health.Terminated, health.Interrupted:
		blamed = a.all([]int{cause.NodeIndex}, func(d *running) bool { return d.termed > 0 })
	}
	if !blamed {
		a.world.broke(11, nil, "sees %s blame node %d for %q (%s), lost %v; crashed %v, told to end %v, sick %v",
			where, cause.NodeIndex, cause.Kind, cause.Message, cause.LostNodes,
			a.ranks(func(d *running) bool { return d.crashed }),
			a.ranks(func(d *running) bool { return d.termed > 0 }),
			a.ranks(func(d *running) bool { return d.machine.sick }))
	}
}

func (a *attempt) all(nodes []int, is func(*running) bool) bool {
	return !slices.ContainsFunc(nodes, func(node int) bool { return !is(a.daemons[node]) })
}

func (a *attempt) ranks(are func(*running) bool) (nodes []int) {
	for _, d := range a.daemons {
		if are(d) {
			nodes = append(nodes, d.rank)
		}
	}
	return nodes
}

// checkResult verifies that the result of the head says how the run ended.
func (a *attempt) checkResult(head *running) {
	a.mustBeLast(head)
	control := a.published()
	result := read[record.Result](a, "", signal.NameResult)
	switch orderly := slices.Contains(control, signal.NameOrderlyEnd); {
	case result.Nonce != a.nonce || result.Code != head.code:
		a.world.broke(11, head.client, "returned %d and left the result %+v", head.code, result)
	case orderly && (head.code != 0 || result.Cause != nil):
		a.world.broke(12, head.client, "returned %d at an orderly end, with the cause %+v", head.code, result.Cause)
	case !orderly && !slices.Contains(control, signal.AbortName(0, a.size)):
		a.world.broke(12, head.client, "returned %d and has published no end: %v", head.code, control)
	case !orderly && (result.Cause == nil || !slices.Contains(control, signal.NameHeadFinished)):
		a.world.broke(11, head.client, "returned %d and left the result %+v, control %v", head.code, result, control)
	case !orderly:
		a.checkCause(result.Cause, result.Code, signal.NameResult)
		a.checkVerdict(head, result.Cause)
	}
}

// checkVerdict verifies that no consequence is blamed if a cause was known.
func (a *attempt) checkVerdict(head *running, cause *record.Failure) {
	if kind := cause.Kind; kind != health.PeerLost && kind != health.Terminated {
		return
	}
	for node := range a.size {
		name := signal.NodeName(node, a.size, record.StateFailed)
		known := head.knows[a.path(signal.NodesDir, name)]
		other := read[record.Failure](a, signal.NodesDir, name)
		if other.Kind == health.Interrupted && known > 0 && known < a.judged && !a.doesWithout(a.daemons[node]) {
			a.world.broke(11, head.client, "blames node %d for %q, and knew that node %d was "+
				"interrupted", cause.NodeIndex, cause.Kind, node)
		}
	}
}

// checkClaim verifies that, if the head has died without publishing an end, the daemons that
// declared it lost leave one result.
func (a *attempt) checkClaim() {
	control, took := a.published(), slices.DeleteFunc(a.survivors(), a.stoodAside)
	if len(took) == 0 || slices.Contains(control, signal.NameOrderlyEnd) ||
		slices.Contains(control, signal.AbortName(0, a.size)) {
		return
	}
	result := read[record.Result](a, "", signal.NameResult)
	if result.Nonce != a.nonce || result.Cause == nil || result.Code != took[0].code &&
		!a.daemons[result.NodeIndex].crashed {
		a.world.broke(11, took[0].client, "returned %d, the head has crashed, and the result is %+v",
			took[0].code, result)
		return
	}
	a.checkCause(result.Cause, result.Code, signal.NameResult)
}

// leaving is the maximum duration of a daemon's end after the published end: the grace periods and
// the final messages.
const leaving = 6 * time.Second

// bringUp is the maximum time from the last daemon's start to the open gate, if a second poll is a
// second later.
const bringUp = 4 * time.Second

// checkPace verifies rule 9: a death ends the job in time, all daemons follow soon, and the gate
// opens if it can.
func (a *attempt) checkPace() {
	var last time.Duration
	for _, d := range a.daemons {
		last = max(last, d.born)
		switch {
		case d.crashed && a.needs(d) && a.heard(d) && (a.ended == 0 || a.ended > d.died+prompt):
			a.world.broke(9, d.client, "crashed at %v, which a peer link told, and the end was "+
				"published at %v only", d.died, a.ended)
		case d.crashed && a.needs(d) && a.witnessed(d, 0) && (a.ended == 0 || a.ended > d.died+peerTimeout+slack):
			a.world.broke(9, d.client, "crashed at %v, and the end was published at %v only", d.died, a.ended)
		case !d.crashed && d.returned > max(a.ended, d.born+times.Join)+leaving:
			a.world.broke(9, d.client, "returned at %v, and the end was published at %v", d.returned, a.ended)
		}
	}
	if len(a.plan.Faults) == 0 && a.asked > last+bringUp && (a.opened == 0 || a.opened > last+bringUp) {
		a.world.broke(9, nil, "sees the gate open at %v, and the last daemon start at %v", a.opened, last)
	}
}

// witnessed reports whether there was another daemon that could notice a death and had joined at
// least the given time before it.
func (a *attempt) witnessed(dead *running, joined time.Duration) bool {
	return dead.told > 0 && slices.ContainsFunc(a.daemons, func(d *running) bool {
		return a.needs(d) && (dead.rank == 0) != (d.rank == 0) && !d.crashed && d.termed == 0 &&
			d.told > 0 && d.told+joined < dead.died
	})
}

// heard reports whether a peer link must have reported a death: another daemon had one at that
// time, and the network was not disturbed.
func (a *attempt) heard(dead *running) bool {
	if a.world.weather.Off || !a.witnessed(dead, connecting) || dead.died < dead.told+connecting ||
		a.ended > 0 && a.ended < dead.died {
		return false
	}
	return !slices.ContainsFunc(a.daemons, func(d *running) bool {
		// A daemon that dies next may have been about to publish the end.
		return d.machine.disturbed || d != dead && d.crashed && d.died >= dead.died
	})
}

// prompt is the maximum time from a death that a peer link reports to the published end: a few
// dozen calls of the slowest file system.
const prompt = time.Second

// connecting is the maximum time from the join of a node to its peer link.
const connecting = 500 * time.Millisecond

// checkLeftovers verifies that a daemon that has returned has removed its temporary files.
func (a *attempt) checkLeftovers() {
	for _, d := range a.daemons {
		if !d.crashed && !d.machine.sick && len(d.temporaries) > 0 {
			a.world.broke(2, d.client, "has returned and left %v", d.temporaries)
		}
	}
}
