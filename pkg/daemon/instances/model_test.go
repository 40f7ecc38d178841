package instances

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/memory"
)

var (
	modelRuns = flag.Int("model-runs", 25, "number of runs of TestModel")
	modelSeed = flag.Uint64("model-seed", 1, "seed of the first run of TestModel")
)

// TestModel draws runs of roles in which processes exit, readiness changes, nodes are lost one by one
// and together, listings show records late and in any order, and writes fail for a while or report an
// error although they have succeeded. At the end it compares the states that the head has determined
// with what the processes show.
func TestModel(t *testing.T) {
	for i := range *modelRuns {
		seed := *modelSeed + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			m := newModel(t, seed)
			change := func(r *run) {
				r.spares = m.spares
				r.policy = func(plain memory.Policy) memory.Policy { return modelPolicy{plain, m} }
			}
			inBubbleOf(t, change, m.nodes+m.spares, m.file, m.play)
		})
	}
}

// model is a drawn run, and what is expected of it.
type model struct {
	rng           *rand.Rand
	faults        *rand.Rand // of the share; guarded by its lock
	nodes, spares int
	file          string // the definitions of the roles
	instances     []*modelInstance
	switches      switches
	log           []string

	*run
	began  time.Time
	lost   map[int]nodeLossTime // by node
	hidden map[string]time.Time // until when listings do not show a name; guarded by the share's lock
	isLate bool                 // new names are hidden for a while; guarded by the share's lock
	isFull bool                 // writes fail; guarded by the share's lock
	isOdd  bool                 // some writes report an error although they succeed; guarded by the share's lock
	isOver bool                 // the run must end: a role has too few instances left
}

// nodeLossTime is when a node was lost, and until when its processes may run.
type nodeLossTime struct{ at, until time.Time }

// modelInstance is an instance of a drawn run.
type modelInstance struct {
	role     *modelRole
	index    int
	isLost   bool
	failures int // exits and losses so far
}

func (i *modelInstance) String() string { return fmt.Sprintf("%s.%d", i.role.name, i.index) }

// modelRole is a drawn role.
type modelRole struct {
	name             string
	width            int // number of nodes of an instance
	mayRestart       bool
	primary, oneshot bool
	need             int // number of instances that must not be lost
	// changedAt is when the readiness has changed last; in the far future while it fails.
	changedAt time.Time
	instances []*modelInstance
}

// silentDelay is how long processes of a silent node may run.
const silentDelay = 20 * time.Second

// newModel draws the roles of a run.
func newModel(t *testing.T, seed uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 46)), faults: rand.New(rand.NewPCG(seed, 47)),
		switches: newSwitches(t), lost: make(map[int]nodeLossTime), hidden: make(map[string]time.Time)}
	m.nodes, m.spares = 2+m.rng.IntN(5), m.rng.IntN(4)
	for at := range 1 + m.rng.IntN(3) {
		role := &modelRole{name: string(rune('a' + at)), width: 1 + m.rng.IntN(2), mayRestart: m.rng.IntN(3) > 0}
		switch m.rng.IntN(4) {
		case 0:
			role.primary = true
		case 1:
			role.oneshot = true
		}
		count := min(m.nodes/role.width, 3) // four that fail together have a common cause
		role.need = m.rng.IntN(count + 1)
		if role.primary {
			role.need = max(1, role.need)
		}
		for index := range count {
			instance := &modelInstance{role: role, index: index}
			role.instances = append(role.instances, instance)
			m.instances = append(m.instances, instance)
		}
		m.switches.set(role.name, true)
		m.file += m.definition(role, at == 0)
	}
	m.file += "\n"
	return m
}

// definition returns the definition of a role. The first one claims all nodes, and the others share
// them.
func (m *model) definition(r *modelRole, isFirst bool) string {
	place := fmt.Sprintf("with: a, nodes: %d", len(r.instances)*r.width)
	if isFirst {
		m.nodes = len(r.instances) * r.width
		place = fmt.Sprintf("nodes: %d", m.nodes)
	}
	restarts := 0
	if r.mayRestart {
		restarts = 100
	}
	more := fmt.Sprintf("endpoints: all, ready: \"file:%s/%s\"", m.switches.dir, r.name)
	if r.oneshot {
		more = "oneshot: true"
	}
	return fmt.Sprintf("\n  - {name: %s, %s, nodes-per-instance: %d, command: serve, primary: %t, "+
		"restarts: {max: %d, window: 10h, backoff: 1s..3s}, require: {start: all, run: %d}, %s}",
		r.name, place, r.width, r.primary, restarts, r.need, more)
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%8s ", time.Since(m.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// play lets the run happen, and checks its end.
func (m *model) play(r *run) {
	m.run, m.began = r, time.Now()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("%d nodes and %d spares%s%s", m.nodes, m.spares, m.file, strings.Join(m.log, "\n"))
		}
	}()
	r.head.cfg.SilentDelay = silentDelay
	r.openGate()
	r.later()
	ended := r.awaitPrimaries()
	for range 3 + m.rng.IntN(12) {
		m.act()
		time.Sleep([]time.Duration{0, 20 * time.Millisecond, time.Second, 9 * time.Second}[m.rng.IntN(4)])
		synctest.Wait()
		m.checkCopies()
		if m.isOver || r.cause() != nil || len(ended) > 0 {
			break
		}
	}
	m.note("the faults end")
	m.setFaults(false, false, false)
	m.share.Lock()
	clear(m.hidden)
	m.share.Unlock()
	for _, i := range m.instances {
		m.switches.set(i.role.name, true)
	}
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	m.checkCopies()
	m.check(len(ended) > 0)
}

// act makes one event happen.
func (m *model) act() {
	switch m.rng.IntN(10) {
	case 0, 1, 2, 3:
		m.exitProcess()
	case 4, 5:
		m.flapRole()
	case 6, 7:
		m.loseNodes()
	case 8:
		m.setFaults(m.rng.IntN(2) == 0, false, false)
	case 9:
		m.setFaults(m.rng.IntN(2) == 0, m.rng.IntN(3) == 0, m.rng.IntN(2) == 0)
	}
}

// setFaults begins and ends faults of the share.
func (m *model) setFaults(isLate, isFull, isOdd bool) {
	m.share.Lock()
	defer m.share.Unlock()
	m.isLate, m.isFull, m.isOdd = isLate, isFull, isOdd
	m.note("late %t, full %t, odd %t", isLate, isFull, isOdd)
}

// running returns the processes of an instance that run on nodes that are not lost.
func (m *model) running(i *modelInstance) (running []*startedChild) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.tasks {
		if _, isLost := m.lost[nodeOf(one)]; strings.HasPrefix(one.name, i.String()+".") && !one.ended && !isLost {
			running = append(running, one)
		}
	}
	return running
}

// nodeOf returns the index of the node of a process.
func nodeOf(one *startedChild) int { return int(one.node[1] - '0') }

// generationOf returns the generation of a process.
func generationOf(one *startedChild) int {
	number, _ := strconv.Atoi(one.name[strings.LastIndex(one.name, ".g")+2:])
	return number
}

// exitProcess makes a process exit.
func (m *model) exitProcess() {
	i := m.instances[m.rng.IntN(len(m.instances))]
	running := m.running(i)
	if len(running) == 0 {
		return
	}
	one := running[m.rng.IntN(len(running))]
	code := m.rng.IntN(2)
	if !i.role.isReady() {
		code = 1 // an end before readiness is a failure
	}
	if code > 0 || !i.role.mayEnd() {
		m.fail(i)
	}
	m.note("%s exits with %d", one.name, code)
	one.exit <- code
	synctest.Wait()
}

// mayEnd reports whether the role's processes may end with 0.
func (r *modelRole) mayEnd() bool { return r.primary || r.oneshot }

// isReady reports whether the role's processes have been ready for a while.
func (r *modelRole) isReady() bool { return time.Since(r.changedAt) > 10*time.Second }

// fail records that an instance has failed.
func (m *model) fail(i *modelInstance) {
	i.failures++
	if !i.role.mayRestart {
		i.isLost = true
	}
	m.isOver = m.isOver || m.lacks(i.role)
}

// lacks reports whether a role has fewer instances left than it needs.
func (m *model) lacks(r *modelRole) bool {
	left := 0
	for _, i := range r.instances {
		if !i.isLost {
			left++
		}
	}
	return left < r.need
}

// flapRole makes the readiness of a role change.
func (m *model) flapRole() {
	i := m.instances[m.rng.IntN(len(m.instances))]
	on := m.rng.IntN(2) == 0
	m.note("role %s is ready: %t", i.role.name, on)
	m.switches.set(i.role.name, on)
	if i.role.changedAt = time.Now(); !on {
		i.role.changedAt = time.Now().Add(time.Hour)
	}
}

// loseNodes makes one node or two be lost, spares as well, and determines which instances that
// concerns.
func (m *model) loseNodes() {
	var alive []int
	for node := 1; node < m.nodes+m.spares; node++ {
		if _, isLost := m.lost[node]; !isLost {
			alive = append(alive, node)
		}
	}
	m.rng.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
	nodes := alive[:min(len(alive), 1+m.rng.IntN(2))]
	if len(nodes) == 0 {
		return
	}
	silent := m.rng.IntN(2) == 0
	// What the head knows of places and spares is taken for granted here.
	m.head.mu.Lock()
	spares, places := 0, 0
	for _, offer := range m.head.spares {
		if !slices.Contains(nodes, offer.NodeIndex) {
			spares++
		}
	}
	isPending := make(map[int]bool) // nodes whose spares are lost with these
	for _, v := range m.head.vacancies {
		isPending[v.node] = slices.Contains(nodes, v.spare.NodeIndex)
	}
	affected := make(map[*modelInstance]bool)
	hit := make(map[int]bool)
	for number, state := range m.head.instances {
		for _, node := range state.Evidence.Nodes {
			i, isHit := m.instances[number], slices.Contains(nodes, node) || isPending[node]
			if isHit && !state.IsEnded() && !i.isLost {
				affected[i] = true
				hit[node] = hit[node] || i.role.mayRestart
			}
		}
	}
	m.head.mu.Unlock()
	for _, needsSpare := range hit {
		if needsSpare {
			places++
		}
	}
	m.kill(nodes...)
	now := time.Now()
	loss := nodeLossTime{at: now, until: now}
	if silent {
		loss.until = now.Add(silentDelay)
	}
	for _, node := range nodes {
		m.lost[node] = loss
	}
	goesOn := m.head.LoseNodes(nodes, silent)
	m.note("nodes %v are lost, silent %t, %d places, %d spares: goes on %t", nodes, silent, places, spares, goesOn)
	m.head.mu.Lock()
	for _, i := range m.instances {
		if !affected[i] {
			continue
		}
		state := m.stateOf(i)
		switch {
		case !i.role.mayRestart:
			i.isLost = true
		case !goesOn:
		case spares >= places && state.Status == roles.StatusLost:
			m.t.Errorf("%s is lost although there are spares", i)
		case spares == 0 && state.Status != roles.StatusLost:
			m.t.Errorf("%s is %s although there are no spares", i, state.Status)
		default: // there may be spares for some of the instances only
			i.isLost = state.Status == roles.StatusLost
		}
		i.failures++
	}
	m.head.mu.Unlock()
	for _, i := range m.instances {
		m.isOver = m.isOver || m.lacks(i.role)
	}
	if !goesOn {
		if spares >= places && !m.isOver {
			m.t.Errorf("the loss of %v was not tolerated", nodes)
		}
		m.isOver = true
		m.head.cfg.Failed(health.NewFailure(health.PeerLost, "nodes %v are lost", nodes).Failure, now)
	}
}

// stateOf returns the state of an instance by the head. The caller holds the head's lock.
func (m *model) stateOf(i *modelInstance) *instanceState {
	return m.head.instances[slices.Index(m.instances, i)]
}

// checkCopies checks that all running processes of an instance are of one generation, that no process
// runs twice, and that none starts elsewhere while that of a silent node may run.
func (m *model) checkCopies() {
	m.t.Helper()
	for _, i := range m.instances {
		ranks := make(map[string]bool)
		generations := make(map[int]bool)
		for _, one := range m.running(i) {
			rank := one.name[:strings.LastIndex(one.name, ".g")]
			if ranks[rank] {
				m.t.Errorf("%s runs twice", rank)
			}
			ranks[rank] = true
			generations[generationOf(one)] = true
		}
		if len(generations) > 1 {
			m.t.Errorf("processes of %s run in generations %v", i, slices.Collect(maps.Keys(generations)))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.tasks {
		loss, isLost := m.lost[nodeOf(old)]
		if !isLost || old.ended {
			continue
		}
		rank := old.name[:strings.LastIndex(old.name, ".g")]
		for _, one := range m.tasks {
			if one.node != old.node && strings.HasPrefix(one.name, rank+".g") &&
				one.at.After(loss.at) && one.at.Before(loss.until) {
				m.t.Errorf("%s was started while %s may run", one.name, old.name)
			}
		}
	}
}

// check checks the state of the run after all faults. primariesEnded reports whether the head has
// found that all primary roles have ended.
func (m *model) check(primariesEnded bool) {
	m.t.Helper()
	if cause := m.cause(); m.isOver != (cause != nil) {
		m.t.Errorf("the run must end: %t, the cause is %+v", m.isOver, cause)
	}
	if m.isOver || m.cause() != nil {
		return
	}
	m.head.mu.Lock()
	defer m.head.mu.Unlock()
	primaries, haveEnded := false, true
	for _, i := range m.instances {
		state := m.stateOf(i)
		want := m.expected(i, state)
		// The end of a process may have been published before its node was lost, and seen after that.
		endedBefore := want == roles.StatusLost && state.Status == roles.StatusDone && i.role.mayEnd()
		if state.Status != want && !endedBefore {
			m.t.Errorf("%s is %s in generation %d, want %s", i, state.Status, state.Generation, want)
		}
		if state.Generation > i.failures {
			m.t.Errorf("%s is in generation %d after %d failures", i, state.Generation, i.failures)
		}
		if i.role.primary {
			primaries, haveEnded = true, haveEnded && (want == roles.StatusDone || want == roles.StatusLost)
		}
	}
	if primariesEnded != (primaries && haveEnded) {
		m.t.Errorf("the primary roles have ended: %t", primariesEnded)
	}
	if left := len(m.head.vacancies); left > 0 {
		m.t.Errorf("%d places have not been taken", left)
	}
}

// expected returns the state that an instance must have by its processes.
func (m *model) expected(i *modelInstance, state *instanceState) roles.InstanceStatus {
	if i.isLost {
		return roles.StatusLost
	}
	running := 0
	for _, one := range m.running(i) {
		if i.role.oneshot && !slices.Contains(state.Evidence.Nodes, nodeOf(one)) {
			continue // it prepares a spare
		}
		if generationOf(one) != state.Generation || !slices.Contains(state.Evidence.Nodes, nodeOf(one)) {
			m.t.Errorf("%s runs on %s, want generation %d on %v", one.name, one.node, state.Generation,
				state.Evidence.Nodes)
		}
		running++
	}
	switch {
	case !state.Evidence.Started: // another role lacks something
		return roles.StatusWaiting
	case running == 0 && (i.role.mayEnd()):
		return roles.StatusDone
	}
	return roles.StatusReady
}

// modelPolicy applies the faults of a model to the calls of a client.
type modelPolicy struct {
	memory.Policy
	*model
}

// View implements [memory.Policy]: each new name of a node may stay hidden for a while.
func (p modelPolicy) View(dir *memory.File, path string, part int) (names []string, more bool) {
	names, more = p.Policy.View(dir, path, part)
	if filepath.Base(path) != signal.NodesDir {
		return names, more
	}
	return slices.DeleteFunc(names, func(name string) bool {
		until, isKnown := p.hidden[name]
		if !isKnown && p.isLate {
			until = time.Now().Add(time.Duration(p.faults.Int64N(int64(8 * time.Second))))
		}
		p.hidden[name] = until
		return time.Now().Before(until)
	}), more
}

// Refuse implements [memory.Policy]: no name appears while the share is full.
func (p modelPolicy) Refuse(what memory.Step, from, path string) error {
	if p.isFull && what != memory.Step(signal.OpRemove) {
		return syscall.ENOSPC
	}
	return p.Policy.Refuse(what, from, path)
}

// Happened implements [memory.Policy]: a change may be reported as failed.
func (p modelPolicy) Happened(what memory.Step, from, path string, dir, file *memory.File, fresh bool) error {
	err := p.Policy.Happened(what, from, path, dir, file, fresh)
	if err == nil && p.isOdd && p.faults.IntN(3) == 0 && what == memory.Step(signal.OpRename) {
		return syscall.EIO
	}
	return err
}
