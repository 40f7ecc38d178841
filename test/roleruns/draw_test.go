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
)

// allKinds lists the kinds in the order in which seeds use them.
var allKinds = []kind{killProcess, killShell, exitZero, exitCode, finishProcess, badRestart, killTwo, badStart, killAll, hang, hangInstance, killDaemon, loseDaemon, noFault}

// fault is a fault in a run.
type fault struct {
	kind        kind
	role        string
	index, rank int
	code        int // with which the process exits by itself
	node        int // member index of the daemon
}

func (f fault) String() string {
	if f.isDaemon() {
		return fmt.Sprintf("%s: member %d", f.kind, f.node)
	}
	return fmt.Sprintf("%s: %s.%d.%d code %d", f.kind, f.role, f.index, f.rank, f.code)
}

// isDaemon reports whether the fault is the death of a daemon.
func (f fault) isDaemon() bool { return f.kind == killDaemon || f.kind == loseDaemon }

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
		return fmt.Sprintf("no process of %s.%d has used CPU time or printed anything for %s", r.name, f.index, hangTimeout)
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
func draw(seed uint64) schedule {
	random := rand.New(rand.NewPCG(seed, 29))
	first := allKinds[seed%uint64(len(allKinds))]
	for {
		s := schedule{seed: seed, nodes: 2 + random.IntN(3)}
		if first == loseDaemon || random.IntN(4) == 0 {
			s.spares = random.IntN(3)
		}
		s.roles = drawRoles(random, s.nodes)
		drawJobSteps(seed, s.roles)
		for _, r := range s.roles {
			r.hangs = first == hangInstance && r.primary
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
	m := newModel(*s)
	if first == badStart {
		if s.bad = candidates(random, m, badStart); s.bad == nil {
			return false
		}
	}
	m.bringUp(s.bad)
	if first == noFault {
		return true
	}
	isThere := first == badStart
	for range 1 + random.IntN(maxSteps) {
		if m.end != nil {
			break
		}
		kind := first
		if isThere && (first != killAll || random.IntN(2) == 0) {
			kind = allKinds[random.IntN(6)] // the others take long, or end the run
		}
		next := candidates(random, m, kind)
		if next == nil {
			continue
		}
		isThere = true
		s.steps = append(s.steps, next)
		m.applyStep(next)
	}
	return isThere
}

// candidates draws the faults of one step of a kind, which is possible in the state of the model, or
// returns nil.
func candidates(random *rand.Rand, m *model, k kind) step {
	if k == killDaemon || k == loseDaemon {
		return drawDaemon(random, m, k)
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
		return r.isProbed(f.rank) && s.generation < r.restarts
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

// drawDaemon draws the death of a daemon: for killDaemon one that ends the run, and otherwise one
// that does not. It returns nil if there is none.
func drawDaemon(random *rand.Rand, m *model, k kind) step {
	var all step
	for member := range record.MemberIndex(0, 1+len(jobSteps(m.roles)), m.size) {
		f := fault{kind: k, node: member}
		after := m.clone()
		after.apply(f)
		if !m.dead[member] && (after.end != nil) == (k == killDaemon) {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return step{all[random.IntN(len(all))]}
}
