package roleruns

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// kind is a kind of fault.
type kind string

const (
	killProcess   kind = "kill -9 of a process"
	killShell     kind = "kill -9 of the shell around a process"
	killAll       kind = "kill -9 of all instances of a role"
	killTwo       kind = "kill -9 of two instances"
	exitZero      kind = "a service exits with 0"
	exitCode      kind = "a process exits with a code"
	finishProcess kind = "a primary process ends"
	hang          kind = "a process hangs"
	hangInstance  kind = "all processes of an instance hang"
	killDaemon    kind = "kill -9 of a daemon"
	loseDaemon    kind = "kill -9 of a daemon that is not needed"
	badStart      kind = "a start fails"
	badRestart    kind = "kill -9, and the restart fails"
	noFault       kind = "no fault"
	flap          kind = "a process closes its port"
	loseTwo       kind = "kill -9 of the daemons of an instance"
	fillShare     kind = "kill -9 of a process while the share is full"
	freezeDaemon  kind = "a daemon is frozen"
	stopRun       kind = "bringupd stop"
)

// singleKinds lists the kinds that concern one state of a process or a daemon. The first six are
// those that follow other faults.
var singleKinds = []kind{
	killProcess, killShell, exitZero, exitCode, finishProcess, badRestart, killTwo, badStart, killAll,
	hang, hangInstance, killDaemon, loseDaemon, noFault, stopRun,
}

// allKinds lists the kinds in the order in which seeds use them: a fifth of them are flaps, a fifth
// two losses, a tenth full shares, and a tenth frozen daemons.
var allKinds = func() (all []kind) {
	others := []kind{flap, loseTwo, fillShare, flap, loseTwo, freezeDaemon}
	for i, single := range singleKinds {
		all = append(all, single)
		if i%2 == 1 {
			all = append(all, others[:3]...)
			others = append(others[3:], others[:3]...)
		}
	}
	return all
}()

// kindsOf returns the kinds whose names contain a text, as allKinds orders them.
func kindsOf(text string) []kind {
	return slices.DeleteFunc(slices.Clone(allKinds), func(k kind) bool {
		return !strings.Contains(string(k), text)
	})
}

// fault is a fault in a run.
type fault struct {
	kind        kind
	role        string
	index, rank int
	code        int // with which the process exits by itself
	node        int // member index of the daemon
	// after is the time after the first fault of the step, for loseTwo; the time after which a daemon
	// goes on, 0 for never; and the time for which the share is full.
	after time.Duration
	stays bool // a flap: the port stays closed
}

func (f fault) String() string {
	switch {
	case f.kind == stopRun:
		return string(f.kind)
	case f.isDaemon():
		return fmt.Sprintf("%s: member %d, %s", f.kind, f.node, f.after)
	case f.kind == flap || f.kind == fillShare:
		process := fmt.Sprintf("%s.%d.%d", f.role, f.index, f.rank)
		return fmt.Sprintf("%s: %s, %s, stays %t", f.kind, process, f.after, f.stays)
	}
	return fmt.Sprintf("%s: %s.%d.%d code %d", f.kind, f.role, f.index, f.rank, f.code)
}

// isDaemon reports whether the fault concerns a daemon.
func (f fault) isDaemon() bool {
	return f.kind == killDaemon || f.kind == loseDaemon || f.kind == loseTwo || f.kind == freezeDaemon
}

// isLoss reports whether the daemon is lost by the fault: one that goes on soon is not.
func (f fault) isLoss() bool {
	return f.isDaemon() && (f.kind != freezeDaemon || f.after == 0 || f.after > peerTimeout)
}

// exitCode returns the code of the process as bringupd sees it.
func (f fault) exitCode() int {
	switch f.kind {
	case exitCode, exitZero, badStart:
		return f.code
	case hangInstance:
		return 124
	}
	return 137
}

// how returns a part of the message of the cause.
func (f fault) how(r *role) string {
	switch {
	case f.kind == hang:
		return "hangs: its probe"
	case f.kind == hangInstance:
		return fmt.Sprintf("no process of %s.%d has used CPU time or printed anything for %s",
			r.name, f.index, hangTimeout)
	case f.kind == badStart && r.isProbed(f.rank):
		return fmt.Sprintf("died before it was ready: exit code %d", f.code)
	case f.kind == exitZero:
		return "ended with 0, but it must run"
	case f.kind == exitCode || f.kind == badStart:
		return fmt.Sprintf("exit code %d", f.code)
	case r.behaviour.shell && f.kind != killShell:
		return "exit code 137"
	}
	return "killed by SIGKILL"
}

// step has faults that happen at the same time.
type step []fault

// schedule is the plan for one run.
type schedule struct {
	seed   uint64
	nodes  int // that the roles use
	spares int // nodes besides these
	roles  []*role
	bad    []fault // starts that fail
	steps  []step
	// isStoppedEarly means that it is stopped as soon as there is a run directory.
	isStoppedEarly bool
}

// has reports whether the schedule has a fault of a kind.
func (s schedule) has(k kind) bool {
	return slices.ContainsFunc(s.steps, func(one step) bool { return one[0].kind == k })
}

// size returns the number of nodes of the launch.
func (s schedule) size() int { return s.nodes + s.spares }

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes and %d spares\n", s.seed, s.nodes, s.spares)
	for _, f := range s.bad {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	for i, one := range s.steps {
		fmt.Fprintf(&b, "  step %d: %v\n", i+1, one)
	}
	return b.String() + formatFile(s, "$DIR")
}

// setupName is the name of the oneshot role.
const setupName = "setup"

// maxSteps is the highest number of steps of a run.
const maxSteps = 4

// draw returns the schedule of a seed. Consecutive seeds use the kinds of faults in turn.
func draw(seed uint64, kinds []kind) schedule {
	random := rand.New(rand.NewPCG(seed, 29))
	first := kinds[seed%uint64(len(kinds))]
	for {
		s := schedule{seed: seed, nodes: 2 + random.IntN(3)}
		if first == loseDaemon || first == freezeDaemon || random.IntN(4) == 0 {
			s.spares = random.IntN(3)
		}
		if first == loseTwo {
			s.nodes, s.roles = drawPairs(random)
			s.spares = random.IntN(4)
		} else {
			s.roles = drawRoles(random, s.nodes)
			drawJobSteps(seed, s.roles)
		}
		for _, r := range s.roles {
			r.hangs = first == hangInstance && r.primary
			if first == flap && r.primary {
				r.probe = []string{"", "tcp", "http"}[random.IntN(3)]
			}
		}
		layOut(s.roles, s.nodes)
		if drawFaults(random, &s, first) {
			return s
		}
	}
}

// drawJobSteps gives some of the roles of every third seed a further job step.
func drawJobSteps(seed uint64, roles []*role) {
	random := rand.New(rand.NewPCG(seed, 30))
	if random.IntN(3) > 0 {
		return
	}
	for _, r := range roles {
		r.jobStep = []string{"", "boxed", "apart"}[random.IntN(3)]
	}
}

// jobSteps returns the names of the further job steps of roles, in the order of the roles.
func jobSteps(roles []*role) (names []string) {
	for _, r := range roles {
		if r.jobStep != "" && !slices.Contains(names, r.jobStep) {
			names = append(names, r.jobStep)
		}
	}
	return names
}

// drawRoles draws 3 to 6 roles.
func drawRoles(random *rand.Rand, nodes int) (roles []*role) {
	add := func(r *role) *role {
		r.start, r.run = -1, -1
		r.restarts, r.backoff = random.IntN(3), 50*time.Millisecond
		r.behaviour.shell = random.IntN(3) == 0
		roles = append(roles, r)
		return r
	}
	if random.IntN(3) == 0 {
		setup := add(&role{name: setupName, nodes: "all", oneshot: true})
		setup.explicitAfter = true
	}
	free := nodes - 1
	for range 2 + random.IntN(2) {
		r := drawService(random, nodes, &free, roles)
		r.name = "service-" + string(rune('a'+len(roles)))
		add(r)
		drawPolicies(random, r)
	}
	for range 1 + random.IntN(2) {
		r := add(&role{name: "primary-" + string(rune('a'+len(roles))), primary: true})
		switch random.IntN(4) {
		case 0:
			r.nodes, r.ranksPer = "all", 1+random.IntN(2)
		case 1:
			r.nodes, r.perNode = "head", 1+random.IntN(2)
		case 2:
			r.nodes = "all"
		default:
			r.nodes = "head"
		}
	}
	return roles
}

// drawPairs draws roles of which one has an instance on each of one or two pairs of nodes, without
// the node of the head, and returns the number of nodes.
func drawPairs(random *rand.Rand) (nodes int, roles []*role) {
	pairs := 1 + random.IntN(2)
	nodes = 1 + 2*pairs
	add := func(r *role) *role {
		r.start, r.run, r.explicitAfter = -1, -1, !r.primary
		r.restarts, r.backoff = random.IntN(3), 50*time.Millisecond
		roles = append(roles, r)
		return r
	}
	drawPolicies(random, add(&role{name: "first", nodes: "1", perNode: 1 + random.IntN(2)}))
	pair := &role{name: "pair", nodes: fmt.Sprint(2 * pairs), nodesPer: 2, ranksPer: random.IntN(3)}
	drawPolicies(random, add(pair))
	switch random.IntN(4) {
	case 0:
		drawPolicies(random, add(&role{name: "everywhere", nodes: "all"}))
	case 1:
		where := []string{"1", ""}[random.IntN(2)]
		drawPolicies(random, add(&role{name: "beside", with: "pair", nodes: where}))
	}
	add(&role{name: "primary", nodes: "head", primary: true})
	return nodes, roles
}

// drawService draws where a service runs, and after which roles.
func drawService(random *rand.Rand, nodes int, free *int, earlier []*role) *role {
	r := &role{explicitAfter: true}
	last := len(earlier) - 1
	switch shape := random.IntN(6); {
	case shape == 0 && *free >= 2:
		r.nodes, r.nodesPer, r.ranksPer = "2", 2, 1+random.IntN(2)
		*free -= 2
	case shape <= 2 && *free >= 1:
		count := 1 + random.IntN(*free)
		r.nodes, r.perNode = fmt.Sprint(count), 1+random.IntN(2)
		*free -= count
	case shape == 3 && last >= 0 && earlier[last].name != setupName:
		r.with, r.nodes = earlier[last].name, []string{"1", ""}[random.IntN(2)]
	case shape == 4:
		r.nodes = "head"
		r.perNode = 1 + random.IntN(2)
	case shape == 5:
		r.nodes, r.ranksPer = "head", 2
	default:
		r.nodes = "all"
	}
	for _, other := range earlier {
		if random.IntN(2) == 0 {
			r.after = append(r.after, other.name)
		}
	}
	return r
}

// drawPolicies draws the probes of a service, what it requires, and how it ends.
func drawPolicies(random *rand.Rand, r *role) {
	r.probe = []string{"", "tcp", "http", "exec"}[random.IntN(4)]
	r.alive = r.probe == "http" && random.IntN(2) == 0
	r.allEndpoints = random.IntN(3) == 0
	switch random.IntN(6) {
	case 0:
		r.behaviour.stubborn = true
	case 1:
		r.behaviour.stopSignal = []string{"INT", "HUP"}[random.IntN(2)]
	}
	r.start = -1
}

// drawRequirements draws how many instances the roles require, which are known when they are placed.
func drawRequirements(random *rand.Rand, roles []*role) {
	for _, r := range roles {
		n := len(r.places)
		if n >= minCommon {
			r.backoff = time.Second // all of them must be seen to be down at once
		}
		if r.oneshot || random.IntN(2) == 0 {
			continue
		}
		r.run = max(0, n-1-random.IntN(2))
		if n > 1 && random.IntN(2) == 0 {
			r.start = max(r.run, n-1)
		}
	}
}

// drawFaults draws the steps of a run, one of them of a certain kind. It reports whether the roles
// make that possible.
func drawFaults(random *rand.Rand, s *schedule, first kind) bool {
	drawRequirements(random, s.roles)
	s.isStoppedEarly = first == stopRun && random.IntN(3) == 0
	m := newModel(*s)
	if first == badStart {
		if s.bad = candidates(random, m, badStart); s.bad == nil {
			return false
		}
	}
	m.bringUp(s.bad)
	if first == noFault || s.isStoppedEarly {
		return true
	}
	isThere := first == badStart || first == stopRun
	for range 1 + random.IntN(maxSteps) {
		if m.end != nil || s.has(loseTwo) {
			break // of two losses there are several states in which the run may be
		}
		kind := first
		if isThere && (first != killAll && first != flap || random.IntN(2) == 0) {
			kind = singleKinds[random.IntN(6)] // the others take long, or end the run
		}
		next := candidates(random, m, kind)
		if first == flap && isThere && random.IntN(2) == 0 {
			next = m.onlyFlapped(random, kind) // two events of one instance
		}
		if next == nil {
			continue
		}
		isThere = true
		s.steps = append(s.steps, next)
		m.applyStep(next)
	}
	if first == stopRun {
		s.steps = append(s.steps, step{{kind: stopRun}})
		return m.end == nil
	}
	return isThere
}

// candidates draws the faults of one step of a kind, which is possible in the state of the model, or
// returns nil.
func candidates(random *rand.Rand, m *model, k kind) step {
	switch k {
	case killDaemon, loseDaemon, freezeDaemon:
		return drawDaemon(random, m, k)
	case loseTwo:
		return drawTwoDaemons(random, m)
	}
	var all step
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			for rank := range s.done {
				f := fault{kind: k, role: r.name, index: i, rank: rank, code: 1 + random.IntN(120)}
				if k == exitZero || k == finishProcess {
					f.code = 0
				}
				if f.isPossible(r, s) {
					all = append(all, f)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	chosen := all[random.IntN(len(all))]
	switch k {
	case flap:
		chosen.stays = random.IntN(3) == 0
	case fillShare:
		chosen.after = time.Duration(1+random.IntN(4)) * time.Second
	case killAll:
		return killsOfAll(m, chosen)
	case killTwo:
		other := all[random.IntN(len(all))]
		if other.role == chosen.role && other.index == chosen.index {
			return nil
		}
		return step{chosen, other}
	}
	return step{chosen}
}

// isPossible reports whether a fault is possible in a state of its instance.
func (f fault) isPossible(r *role, s *state) bool {
	if f.kind == badStart {
		return r.isProbed(f.rank) || r.oneshot || r.primary && !r.spans(f.index) && len(r.places[f.index]) == 1
	}
	if s.lost || r.oneshot || s.done[f.rank] {
		return false
	}
	switch f.kind {
	case flap:
		return r.isProbed(f.rank) && r.probe != "exec" && !r.alive && !s.unready[f.rank]
	case killShell:
		return r.behaviour.shell
	case exitZero:
		return !r.primary
	case finishProcess:
		return r.primary
	case hang:
		return r.alive && r.isProbed(f.rank)
	case hangInstance:
		return r.hangs
	case badRestart:
		return r.isProbed(f.rank) && !r.primary && s.generation < r.restarts
	}
	return true
}

// killsOfAll returns the kills of all instances of the role of a fault.
func killsOfAll(m *model, f fault) (all step) {
	for i, s := range m.states[f.role] {
		rank := slices.Index(s.done, false)
		if rank < 0 || s.lost {
			return nil
		}
		all = append(all, fault{kind: killAll, role: f.role, index: i, rank: rank})
	}
	if len(all) > 5 || len(all) < 2 {
		return nil
	}
	return all
}

// onlyFlapped draws a fault of a kind in an instance with a process whose port has been closed.
func (m *model) onlyFlapped(random *rand.Rand, k kind) step {
	only := m.clone()
	for _, r := range m.roles {
		for _, s := range only.states[r.name] {
			s.lost = s.lost || !s.flapped
		}
	}
	return candidates(random, only, k)
}

// drawDaemon draws the death of a daemon: for killDaemon one that ends the run, for loseDaemon one
// that does not, and for freezeDaemon any but that of the head. It returns nil if there is none.
func drawDaemon(random *rand.Rand, m *model, k kind) step {
	var all step
	for member := range record.MemberIndex(0, 1+len(jobSteps(m.roles)), m.size) {
		f := fault{kind: k, node: member}
		after := m.clone()
		after.apply(f)
		isDrawn := (after.end != nil) == (k == killDaemon)
		if k == freezeDaemon {
			isDrawn = member > 0 && member < m.size
		}
		if !m.dead[member] && isDrawn {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	f := all[random.IntN(len(all))]
	if k == freezeDaemon {
		f.after = []time.Duration{0, peerTimeout / 4, 3 * peerTimeout}[random.IntN(3)]
	}
	return step{f}
}

// drawTwoDaemons draws the deaths of the daemons of both nodes of an instance, at once or one
// shortly after the other.
func drawTwoDaemons(random *rand.Rand, m *model) step {
	states := m.states["pair"]
	nodes := slices.Clone(states[random.IntN(len(states))].nodes)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if random.IntN(2) == 0 {
		slices.Reverse(nodes)
	}
	delays := []time.Duration{0, orderedDelay / 10, orderedDelay, 2 * time.Second}
	second := fault{kind: loseTwo, node: nodes[1], after: delays[random.IntN(len(delays))]}
	return step{{kind: loseTwo, node: nodes[0]}, second}
}
