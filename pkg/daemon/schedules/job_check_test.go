package schedules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// The functions of this file check a job by its processes alone. Their callers hold the lock of the
// shared file system. All accept a nil job.

const (
	// noticing is the maximum time from an event until the head has drawn its conclusions, and the run
	// has an end that it requires.
	noticing = 12 * time.Second
	// late is the maximum time until the head sees what a node has published.
	late = backMost + lateMost + time.Second
)

func (k *task) isLive() bool { return k.ended == 0 && !k.on.crashed }

// mayEnd reports whether processes of the role may end with 0.
func (r *jobRole) mayEnd() bool { return r.Primary || r.Oneshot }

// tasksOf returns all processes of an instance so far.
func (j *jobRun) tasksOf(role, index int) (tasks []*task) {
	for _, k := range j.tasks {
		if k.role == role && k.index == index {
			tasks = append(tasks, k)
		}
	}
	return tasks
}

// begin records the start of a process, and checks that no other generation of its instance runs,
// nor a copy of it.
func (j *jobRun) begin(own *task) {
	j.world.Lock()
	defer j.world.Unlock()
	own.began = j.world.Now()
	j.world.note(own.on.client, "starts", own.String(), nil)
	for _, k := range j.tasksOf(own.role, own.index) {
		isCopy := k.rank == own.rank && k.generation == own.generation
		switch {
		case own.on.crashed:
		case k.isLive() && (k.generation != own.generation || k.rank == own.rank):
			j.world.broke(18, own.on.client, "starts %s while %s runs", own, k)
		case isCopy && !k.on.mayBeGone() && !j.Roles[own.role].Oneshot:
			j.world.broke(18, own.on.client, "starts %s after %s has run", own, k)
		}
	}
	j.tasks = append(j.tasks, own)
}

// end records the end of a process, and returns its exit code.
func (j *jobRun) end(k *task, code int, byItself bool) int {
	j.world.Lock()
	defer j.world.Unlock()
	k.ended, k.code, k.byItself = j.world.Now(), code, byItself && !k.on.crashed
	what := fmt.Sprintf("ends with %d, by itself %t", code, k.byItself)
	j.world.note(k.on.client, what, k.String(), nil)
	j.judge(k.String())
	return code
}

// lose records that a daemon has crashed, and its processes with it.
func (j *jobRun) lose(d *running) {
	if j == nil {
		return
	}
	for _, k := range j.tasks {
		k.killed = k.killed || k.on == d && k.ended == 0
	}
	j.judge(d.name())
}

// hasFailed reports whether a process has ended by itself as it must not, and mayBeUnready whether
// it may have been stopped because it was not ready in time.
func (j *jobRun) hasFailed(k *task) bool {
	return k.ended > 0 && k.byItself && (k.code != 0 || !j.Roles[k.role].mayEnd())
}

func (j *jobRun) mayBeUnready(k *task) bool {
	limit := k.began + readyTimeout
	isOff := func(s span) bool { return s.from <= limit && (s.to == 0 || s.to >= limit-2*slack) }
	return j.Roles[k.role].Probed && k.told >= limit-slack && slices.ContainsFunc(j.off[k.role], isOff)
}

// isDone reports whether all processes of a generation of an instance have ended with 0.
func (j *jobRun) isDone(role, index int) bool {
	ended := make(map[int]int) // number of processes by generation
	for _, k := range j.tasksOf(role, index) {
		if k.ended > 0 && k.byItself && !j.hasFailed(k) {
			ended[k.generation]++
		}
	}
	for _, count := range ended {
		if count >= j.Roles[role].Width {
			return true
		}
	}
	return false
}

// mayBeGone reports whether the head may have taken a daemon for lost.
func (d *running) mayBeGone() bool { return d.crashed || d.machine.sick || d.termed > 0 }

// fate determines whether an instance may be lost, and whether it must be.
func (j *jobRun) fate(role, index int) (may, must bool) {
	r := &j.Roles[role]
	gone, isHit := j.ranks((*running).mayBeGone), false
	first := index / r.PerNode * r.Width // of the nodes on which it is at first
	for _, node := range gone {
		d := j.daemons[node]
		wasThere := func(k *task) bool { return k.on == d }
		isHit = isHit || node >= first && node < first+r.Width || j.opened == 0 || d.died < j.opened ||
			slices.ContainsFunc(j.tasksOf(role, index), wasThere)
	}
	surely, maybe := make(map[int]bool), make(map[int]bool) // generations that have failed
	readyAt, wasReady := j.readyAt[[2]int{role, index}]
	isEarly, isKilled := false, false
	for _, k := range j.tasksOf(role, index) {
		isKilled = isKilled || k.killed
		if !j.hasFailed(k) && !j.mayBeUnready(k) {
			continue
		}
		maybe[k.generation] = true
		surely[k.generation] = surely[k.generation] || k.told == 0
		isEarly = isEarly || !r.mayEnd() && (!wasReady || k.ended < readyAt+late)
	}
	count := 0
	for _, is := range surely {
		if is {
			count++
		}
	}
	may = len(maybe) > r.Restarts || isEarly || isHit && (r.Restarts == 0 || len(gone) > j.Spares)
	must = !isHit && count > r.Restarts || isKilled && r.Restarts == 0 && j.opened > 0
	return may, must
}

// mayAndMustEnd determines whether the run may have come to its end by itself, and whether it must
// have: a role has too few instances left, or all primary ones have ended.
func (j *jobRun) mayAndMustEnd() (mayFail, mayFinish, must bool) {
	hasPrimary, isFinished := false, true
	mayFinish = true
	gone := j.ranks((*running).mayBeGone)
	mayFail = j.opened == 0 && len(gone) > j.Spares // there is no plan without enough nodes
	for role := range j.Roles {
		r := &j.Roles[role]
		mayLose, mustLose, done := 0, 0, 0
		for index := range r.Count {
			may, surely := j.fate(role, index)
			isDone := j.isDone(role, index)
			if may {
				mayLose++
			}
			if surely && !isDone {
				mustLose++
			}
			if isDone {
				done++
			}
			if r.Primary {
				mayFinish = mayFinish && (isDone || may)
				isFinished = isFinished && (isDone && !may || surely && !isDone)
			}
		}
		mayFail = mayFail || mayLose > r.Count-max(r.Start, r.Run)
		must = must || mustLose > r.Count-r.Run
		hasPrimary = hasPrimary || r.Primary
		isFinished = isFinished && (!r.Primary || done >= r.Run)
	}
	return mayFail, mayFinish && hasPrimary, must || isFinished && hasPrimary && j.opened > 0
}

// judge records when the run cannot go on any more. That is open again if a fault of a node follows
// before the head knows the exit: of that fault the exit may be a consequence.
func (j *jobRun) judge(by string) {
	_, _, must := j.mayAndMustEnd()
	must = must || j.daemons[0].crashed
	now := j.world.Now()
	switch isKnown := slices.ContainsFunc(j.tasks, j.isKnownCause); {
	case must && j.doomed == 0:
		j.doomed, j.doomedBy = now, by
	case !must && !isKnown && now < j.doomed+late:
		j.doomed, j.doomedBy = 0, ""
	}
}

// isKnownCause reports whether a process has ended the run by its exit, and the head knows that:
// the exit is published, a moment later, and no peer link was disturbed that carries it.
func (j *jobRun) isKnownCause(k *task) bool {
	isLinked := !k.on.machine.disturbed && !j.daemons[0].machine.disturbed
	return k.ended > 0 && k.ended == j.doomed && k.isPublished && isLinked
}

// instanceOf returns the role and the index of an instance by its number.
func (j *jobRun) instanceOf(number int) (role, index int) {
	for role = range j.Roles {
		if number < j.Roles[role].Count {
			return role, number
		}
		number -= j.Roles[role].Count
	}
	panic("there is no such instance")
}

// isMark reports whether a name is that of a mark of an instance.
func isMark(n signal.StateName) bool {
	return n.Instance != signal.NoInstance && n.State != record.StateIdle && !signal.IsStepState(n.State)
}

// marked checks what a node publishes about an instance.
func (j *jobRun) marked(name string) {
	mark, is := signal.ParseStateName(name, j.size)
	if !is || !isMark(mark) {
		return
	}
	role, index := j.instanceOf(mark.Instance)
	var own *task
	for _, k := range j.tasksOf(role, index) {
		if k.generation == mark.Generation && k.on.rank == mark.Member {
			own = k
		}
	}
	isTrue := own != nil
	switch now := j.world.Now(); record.InstanceState(mark.State) {
	case record.InstanceReady:
		isTrue = isTrue && j.mayBeReady(own)
		at, of := [3]int{role, index, mark.Generation}, [2]int{role, index}
		if j.readyOn[at] == nil {
			j.readyOn[at] = make(map[int]bool)
		}
		j.readyOn[at][mark.Member] = true
		if _, known := j.readyAt[of]; !known && len(j.readyOn[at]) >= j.Roles[role].Width {
			j.readyAt[of] = now
		}
	case record.InstanceUnready:
		isTrue = isTrue && len(j.off[role]) > 0
	case record.InstanceDone:
		isTrue = isTrue && j.Roles[role].mayEnd() && own.ended > 0 && own.byItself && own.code == 0
	case record.InstanceExited:
		rec := read[record.InstanceExit](j.attempt, signal.NodesDir, name)
		isTrue = isTrue && (j.hasFailed(own) && rec.Code == own.code || j.mayBeUnready(own))
		if own != nil {
			own.isPublished = true
		}
	case record.InstanceStopped:
		isTrue = own == nil || own.ended > 0
	}
	if !isTrue {
		j.world.broke(1, j.daemons[mark.Member].client, "publishes %s, and its process is %v", name, own)
	}
}

// mustBeReady checks that the gate opens only when enough instances can have been ready, or are
// done.
func (j *jobRun) mustBeReady() {
	for role := range j.Roles {
		r := &j.Roles[role]
		count := 0
		for index := range r.Count {
			ready := make(map[int]int) // number of processes by generation; a spare may repeat some
			for _, k := range j.tasksOf(role, index) {
				if j.mayBeReady(k) && (!r.Oneshot || k.ended > 0) {
					ready[k.generation]++
				}
			}
			if slices.Max(append(slices.Collect(maps.Values(ready)), 0)) >= r.Width {
				count++
			}
		}
		if !r.Primary && count < r.Start {
			j.world.broke(1, nil, "sees the gate open, and role %s has only %d instances", r.Name, count)
		}
	}
}

// mayBeReady reports whether the probe of a process has not failed all the time since its start.
func (j *jobRun) mayBeReady(k *task) bool {
	isOff := func(s span) bool { return s.from < k.began && s.to == 0 }
	return !j.Roles[k.role].Probed || !slices.ContainsFunc(j.off[k.role], isOff)
}

// checkUp checks a run in which nothing has happened for a while: it has ended, as it must, or all
// of its instances that are not lost run.
func (j *jobRun) checkUp() {
	j.world.Lock()
	defer j.world.Unlock()
	if j.run == "" || j.ended > 0 || j.daemons[0].mayBeGone() {
		return
	}
	if j.doomed > 0 {
		j.world.broke(23, nil, "sees the run go on after %v and %s", j.doomed, j.doomedBy)
		return
	}
	for role := range j.Roles {
		for index := range j.Roles[role].Count {
			may, must := j.fate(role, index)
			live, fine, newest := 0, 0, -1 // processes of the newest generation
			for _, k := range j.tasksOf(role, index) {
				if k.generation > newest && !k.on.crashed {
					live, fine, newest = 0, 0, k.generation
				}
				switch {
				case k.generation == newest && k.isLive():
					live, fine = live+1, fine+1
				case k.generation == newest && k.ended > 0 && k.byItself && !j.hasFailed(k):
					fine++
				}
			}
			isFine := live > 0 && fine == j.Roles[role].Width && !must || live == 0 && may
			if !isFine && !j.isDone(role, index) {
				j.world.broke(23, nil, "sees %d processes of generation %d of %s.%d run, and %d are done",
					live, newest, j.Roles[role].Name, index, fine-live)
			}
		}
	}
}

// check checks the end of a job.
func (j *jobRun) check() {
	for _, k := range j.tasks {
		if k.isLive() {
			j.world.broke(14, k.on.client, "has ended, and %s still runs", k)
		}
	}
	head, control := j.daemons[0], j.published()
	if j.run != "" && head.crashed && !j.sick() {
		j.checkClaim()
	}
	if j.run == "" || head.crashed || head.machine.sick || head.outsider() {
		return
	}
	j.mustBeLast(head)
	result := read[record.Result](j.attempt, "", signal.NameResult)
	orderly := slices.Contains(control, signal.NameOrderlyEnd)
	want := head.code
	if orderly {
		want = 0
	}
	for _, d := range j.survivors() {
		if d != head && d.code != want && !j.stoodAside(d) {
			j.world.broke(12, d.client, "returned %d, and the head %d", d.code, head.code)
		}
	}
	mayFail, mayFinish, _ := j.mayAndMustEnd()
	switch {
	case result.Nonce != j.nonce || result.Code != head.code || orderly == (result.Cause != nil):
		j.world.broke(11, head.client, "returned %d and left the result %+v", head.code, result)
	case orderly:
		if (!mayFinish || head.code != 0) && !j.mayStopWith(head.code) {
			j.world.broke(12, head.client, "returned %d at an orderly end, asked for at %v, may finish %t",
				head.code, j.asked, mayFinish)
		}
	default:
		j.checkCause(result.Cause, result.Code, signal.NameResult)
		kind := result.Cause.Kind
		isLoss := health.IsPeerLoss(kind) || kind == health.ShareUnusable || kind == health.DeadlinePassed
		if !mayFail && !health.IsRequestedEnd(kind) && (!isLoss || !j.sick()) {
			j.world.broke(11, head.client, "returned %d for %q, and no role lacks instances",
				head.code, result.Cause.Message)
		}
	}
	if j.doomed > 0 && !j.sick() && j.asked == 0 && head.termed == 0 && j.ended > j.doomed+noticing {
		j.world.broke(9, head.client, "ended the run at %v, which could not go on after %v and %s",
			j.ended, j.doomed, j.doomedBy)
	}
}

// mayStopWith reports whether a run that was asked to end may return a code: that of a primary role
// that was stopped.
func (j *jobRun) mayStopWith(code int) bool {
	if j.asked == 0 {
		return false
	}
	codes := []int{0}
	for _, r := range j.Roles {
		if r.Primary && j.plan.End == endStop {
			codes = append(codes, r.StopCode, health.StoppedOutcome.Code, 137)
		}
	}
	return slices.Contains(codes, code)
}

// blames reports whether the cause names a process whose failure can have ended the run.
func (j *jobRun) blames(cause *record.Failure) bool {
	if j == nil {
		return false
	}
	return slices.ContainsFunc(j.tasks, func(k *task) bool {
		name := fmt.Sprintf("%s.%d", j.Roles[k.role].Name, k.index)
		if j.Roles[k.role].Width > 1 {
			name += fmt.Sprintf(".%d", k.rank)
		}
		may, _ := j.fate(k.role, k.index)
		isTrue := j.hasFailed(k) && (cause.ExitText == "" || cause.Code == k.code) || j.mayBeUnready(k)
		isFirst := j.doomed == 0 || k.ended < j.doomed+late
		return name == cause.Child && k.on.rank == cause.NodeIndex && may && isTrue && isFirst
	})
}

// mayWrite reports whether a node may write a name because of the roles.
func (j *jobRun) mayWrite(node int, s spot) bool {
	if j == nil {
		return false
	}
	name := strings.TrimPrefix(s.name, ".")
	has := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if s.sub == signal.ControlDir && node == 0 {
		return slices.ContainsFunc([]string{"plan.", "start.", "inst.", "live.", "lost.", "end."}, has)
	}
	isLog := func(r jobRole) bool { return has(r.Name + "-") }
	return s.sub == signal.LogsDir && slices.ContainsFunc(j.Roles, isLog)
}

// mayRemove reports whether the names of an old state of roles may be removed.
func (j *jobRun) mayRemove(s spot) bool {
	mark, is := signal.ParseStateName(s.name, 0)
	isOld := strings.HasPrefix(s.name, "live.") || strings.HasPrefix(s.name, "inst.")
	return j != nil && (s.sub == signal.NodesDir && is && isMark(mark) || s.sub == signal.ControlDir && isOld)
}
