package chaos

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// what is a kind of fault. Its text is the title of its row in test/faults/README.md.
type what string

// The faults. Those without a stated duration last until all other nodes have ended, and are then
// removed.
const (
	killDaemon   what = "kill -9 of a daemon"
	killTwo      what = "kill -9 of two daemons at once"
	killThree    what = "kill -9 of three daemons at once"
	killService  what = "kill -9 of a service"
	killSandbox  what = "kill -9 of a sandbox"
	killDriver   what = "kill -9 of the driver"
	failDriver   what = "a node is lost, and the driver then fails"
	hang         what = "SIGSTOP of all processes of a node"
	pause        what = "SIGSTOP of all processes of a node, for less than 1 s"
	slow         what = "a node gets only part of the CPU time, for some seconds"
	lose         what = "a node is lost: its network is down, then all processes are killed"
	unplug       what = "a node's network is down, and its shared file system does not respond"
	glitch       what = "the same for less than half the peer timeout"
	filterAll    what = "a node's packet filter drops all TCP, for some seconds"
	filterLine   what = "a node's packet filter drops the peer link's port"
	cutLines     what = "the packets of all peer links are dropped until the end"
	stall        what = "the shared file system of a node does not respond"
	stallAll     what = "the shared file system of all nodes does not respond"
	stallShort   what = "the shared file system of all nodes does not respond for less than 1 s"
	stallLong    what = "the shared file system of all nodes does not respond for two to three peer timeouts"
	hangDisk     what = "the disk with TMPDIR of a node does not respond"
	full         what = "the shared file system of a node is full"
	fullAll      what = "the shared file system of all nodes is full"
	unheard      what = "standard error is full and not read"
	clockForward what = "the clock of a node jumps an hour ahead"
	clockBack    what = "the clock of a node jumps an hour back"
)

// phase is the phase of the run in which a fault is injected; the fault may strike a little later.
type phase string

const (
	beforeJoin phase = "before the join" // srun has been started
	inJoin     phase = "join"            // the job is published
	inServices phase = "services"        // the head's service is up
	atGate     phase = "gate"            // all services are up
	inDriver   phase = "driver"          // the driver runs
	inDrain    phase = "drain"           // the end is published
)

var phases = []phase{beforeJoin, inJoin, inServices, atGate, inDriver, inDrain}

// fault is one injected fault. It is plain data, like everything in a schedule.
type fault struct {
	What what `json:"what"`
	Node int  `json:"rank"`
	// phase of the first fault; a second one follows it
	Phase phase         `json:"phase"`
	After time.Duration `json:"after_ns"`        // delay after the phase's start or the first fault
	For   time.Duration `json:"for_ns,omitzero"` // 0 means until all other nodes have ended
}

// unread reports whether no process reads the daemons' output.
func (s schedule) unread() bool { return s.Faults[0].What == unheard }

// harmful returns the faults that must end the job.
func (s schedule) harmful() (faults []fault) {
	for _, f := range s.Faults {
		if !traitOf(f.What).harmless {
			faults = append(faults, f)
		}
	}
	return faults
}

// struck returns the nodes that a fault strikes, in a job of the given number of nodes.
func (f fault) struck(nodes int) []int {
	struck := []int{f.Node}
	for more := 1; more <= traitOf(f.What).more; more++ {
		struck = append(struck, (f.Node+more)%nodes)
	}
	return struck
}

// schedule is the test plan for one job, derived from a seed.
type schedule struct {
	Seed     uint64  `json:"seed"`
	Nodes    int     `json:"nodes"`
	Lifeline bool    `json:"lifeline"`
	Faults   []fault `json:"faults"` // one, or two at the same time
	// Driver is how long the driver runs if nothing ends it.
	Driver time.Duration `json:"driver_ns"`
	// Calm makes workers poll as if the gate had been open for a long time.
	Calm bool `json:"calm,omitzero"`
}

func (s schedule) String() string {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// trait describes when a fault is possible, and its effects.
type trait struct {
	what   what
	phases []phase
	// harmless faults must not be noticed; they last between least and most.
	harmless    bool
	least, most time.Duration
	// onShare faults need a hostile mount, whose faults can be set.
	onShare bool
	// aside faults cut the network and need a share that does not depend on it.
	aside bool
	// paired faults may be combined with a second one.
	paired bool
	// more is the number of additional nodes that are struck: the next ones.
	more int
	// lined faults have an effect only if there is a peer link.
	lined bool
	// prompt faults are noticed at once, or by a peer's missing heartbeats, if the driver runs.
	prompt bool
}

var (
	// The driver phase counts twice, because a job spends most of its life in it.
	anyPhase   = []phase{beforeJoin, inJoin, inServices, atGate, inDriver, inDriver, inDrain}
	withChild  = []phase{inServices, atGate, inDriver, inDrain}
	joined     = []phase{inJoin, inServices, atGate, inDriver, inDrain}
	driverOnly = []phase{inDriver}
)

const second = time.Second

// traits lists the faults in the order in which consecutive seeds use them.
var traits = []trait{
	{what: killDaemon, phases: anyPhase, paired: true, prompt: true},
	{what: stall, phases: anyPhase, onShare: true},
	{what: pause, phases: anyPhase, harmless: true, least: second / 5, most: second},
	{what: killService, phases: withChild, paired: true, prompt: true},
	{what: unplug, phases: anyPhase, paired: true, prompt: true},
	{what: glitch, phases: anyPhase, harmless: true, least: second, most: peerTimeout * 9 / 20},
	{what: hang, phases: anyPhase, paired: true, prompt: true},
	{what: full, phases: anyPhase, onShare: true},
	{what: clockForward, phases: anyPhase, harmless: true},
	{what: killSandbox, phases: withChild, paired: true, prompt: true},
	{what: stallAll, phases: anyPhase, onShare: true},
	{what: filterAll, phases: joined, harmless: true, aside: true, least: 2 * second,
		most: 6 * second},
	{what: lose, phases: anyPhase, paired: true, prompt: true},
	{what: fullAll, phases: anyPhase, onShare: true},
	{what: slow, phases: anyPhase, harmless: true, least: second, most: 4 * second},
	{what: killDriver, phases: driverOnly, prompt: true},
	{what: killTwo, phases: anyPhase, more: 1, prompt: true},
	{what: killThree, phases: anyPhase, more: 2, prompt: true},
	{what: hangDisk, phases: []phase{inDriver, inDrain}, harmless: true, onShare: true},
	{what: stallLong, phases: driverOnly, harmless: true, onShare: true, lined: true,
		least: 2 * peerTimeout, most: 3 * peerTimeout},
	{what: unheard, phases: withChild, harmless: true, paired: true},
	{what: cutLines, phases: driverOnly, harmless: true, lined: true, paired: true},
	// With files only, the loss cannot be detected soon enough.
	{what: failDriver, phases: driverOnly, prompt: true, lined: true},
	{what: stallShort, phases: anyPhase, harmless: true, onShare: true, least: second / 5,
		most: second},
	{what: clockBack, phases: anyPhase, harmless: true},
	{what: filterLine, phases: joined, harmless: true, lined: true, least: 2 * second,
		most: 6 * second},
}

func traitOf(w what) trait {
	for _, t := range traits {
		if t.what == w {
			return t
		}
	}
	panic("no such fault: " + string(w))
}

// named returns the main fault of a schedule.
func named(s schedule) what {
	if last := s.Faults[len(s.Faults)-1].What; last == failDriver {
		return last
	}
	return s.Faults[0].What
}

// world describes the environment for which schedules are drawn.
type world struct {
	nodes    int
	knobs    bool   // faults of the share can be set
	wired    bool   // the share uses the nodes' network
	lifeline string // "on" or "off" for all jobs, otherwise drawn per seed
}

// ciRuns is the number of schedules that CI runs. Each fault occurs at least once.
const ciRuns = 26

// longDriver is longer than every fault that ends the job.
const longDriver = 90 * second

// planOf draws the schedule of a seed. The first fault is not random, so that a few dozen
// consecutive seeds cover all faults.
func planOf(seed uint64, w world) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	s := schedule{Seed: seed, Nodes: w.nodes}
	var deck []trait
	for _, t := range traits {
		if w.has(t) {
			deck = append(deck, t)
		}
	}
	first := deck[seed%uint64(len(deck))]
	coin := r.IntN(2) == 0 // always drawn, so that the later draws do not depend on w
	s.Lifeline = w.lifeline == "on" || w.lifeline != "off" && (first.lined || coin)
	s.Faults = []fault{draw(r, first, w.nodes)}
	if what := first.what; what == stall || what == stallAll {
		s.Lifeline = false // with it, the job tolerates an outage of ten minutes
	}
	switch {
	case first.what == failDriver:
		s.Faults = failing(r, s.Faults[0], w)
	case first.more > 0 && r.IntN(2) == 0: // a surviving head reports more
		s.Faults[0].Node = 1 + r.IntN(w.nodes-1-first.more)
	}
	if w.wired && first.what == glitch {
		s.Faults[0].For /= 2 // TCP's back-off may double the outage
	}
	if third := r.IntN(3); first.paired && (third == 0 || third == 1 && first.harmless) {
		s.Faults = append(s.Faults, partner(r, deck, s.Faults[0], w.nodes))
	}
	s.Driver = driverTime(s)
	s.Calm = s.Lifeline && r.IntN(3) > 0 // with files only, polling intervals stay short
	return s
}

// has reports whether the fault is possible in this environment. A share can be disconnected only
// if its faults can be set or if it uses the network.
func (w world) has(t trait) bool {
	switch {
	case t.what == unplug, t.what == glitch:
		return w.knobs || w.wired
	case t.lined && w.lifeline == "off", t.more+1 >= w.nodes:
		return false
	case t.aside:
		return !w.wired
	default:
		return w.knobs || !t.onShare
	}
}

// lasting is the approximate duration of each phase; a fault is injected within it.
var lasting = map[phase]time.Duration{
	beforeJoin: second / 10, inJoin: second / 10, inServices: second / 4, atGate: second / 20,
	inDriver: second, inDrain: second / 2,
}

func draw(r *rand.Rand, t trait, nodes int) fault {
	f := fault{What: t.what, Node: r.IntN(nodes), Phase: t.phases[r.IntN(len(t.phases))]}
	if r.IntN(4) == 0 {
		f.Node = 0 // choose the head more often than other nodes
	}
	f.After = upTo(r, lasting[f.Phase])
	if t.what == killDriver {
		f.Node = 0
	}
	if t.most > 0 {
		f.For = t.least + upTo(r, t.most-t.least)
	}
	return f
}

// partner draws a second fault on another node: one that ends the job, or a harmless one that must
// not be blamed.
func partner(r *rand.Rand, deck []trait, first fault, nodes int) fault {
	var fitting []trait
	for _, t := range deck {
		leaps := t.what == clockForward || t.what == clockBack
		if (t.paired && !t.harmless || leaps) && slices.Contains(t.phases, first.Phase) {
			fitting = append(fitting, t)
		}
	}
	f := draw(r, fitting[r.IntN(len(fitting))], nodes)
	f.Phase = first.Phase
	f.Node = (first.Node + 1 + r.IntN(nodes-1)) % nodes
	return f
}

// failing returns two faults: the loss of a worker's node, and a driver that fails because of it,
// possibly before any daemon has noticed the loss.
func failing(r *rand.Rand, f fault, w world) []fault {
	of := []what{killDaemon, lose}
	if w.has(traitOf(unplug)) {
		of = append(of, unplug)
	}
	loss := draw(r, traitOf(of[r.IntN(len(of))]), w.nodes)
	loss.Phase, loss.After = f.Phase, f.After
	loss.Node = 1 + r.IntN(w.nodes-1) // not the head, whose loss would also end the driver
	f.Node, f.After = 0, upTo(r, second/2)
	return []fault{loss, f}
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)+1)) / time.Millisecond * time.Millisecond
}

// driverTime returns a short duration if the driver must or may end the job.
func driverTime(s schedule) time.Duration {
	first := s.Faults[0]
	switch {
	case first.Phase == inDrain:
		return second / 5
	case traitOf(first.What).harmless && len(s.harmful()) > 0:
		return longDriver
	case traitOf(first.What).harmless:
		return max(first.For, second) + second
	case first.What == full, first.What == fullAll:
		return 4 * second
	default:
		return longDriver
	}
}

var sometimes = world{nodes: 4, knobs: true}

// TestPlanDrawsAll checks that the seeds cover all faults, phases and combinations.
func TestPlanDrawsAll(t *testing.T) {
	faults, at := make(map[what]int), make(map[phase]int)
	pairs, lined, calm := 0, 0, 0
	for seed := range uint64(600) {
		s := planOf(seed, sometimes)
		named := named(s)
		faults[named]++
		at[s.Faults[0].Phase]++
		if s.Lifeline {
			lined++
		}
		if s.Calm {
			calm++
		}
		for _, f := range s.Faults {
			if trait := traitOf(f.What); !slices.Contains(trait.phases, s.Faults[0].Phase) ||
				f.For < trait.least || f.For > trait.most {
				t.Errorf("seed %d: %+v does not fit", seed, f)
			}
			if f.Node < 0 || f.Node >= s.Nodes {
				t.Errorf("seed %d: there is no node %d", seed, f.Node)
			}
		}
		if len(s.Faults) == 2 && named != failDriver {
			pairs++
			if s.Faults[0].Node == s.Faults[1].Node {
				t.Errorf("seed %d: both faults strike node %d", seed, s.Faults[0].Node)
			}
		}
	}
	inCI := make(map[what]bool)
	for seed := range uint64(ciRuns) {
		inCI[named(planOf(1+seed, sometimes))] = true
	}
	for _, trait := range traits {
		if faults[trait.what] < 15 || !inCI[trait.what] {
			t.Errorf("%q is drawn %d times of 600, in CI: %v", trait.what, faults[trait.what],
				inCI[trait.what])
		}
	}
	for _, p := range phases {
		if at[p] < 40 {
			t.Errorf("%q is drawn %d times of 600", p, at[p])
		}
	}
	if pairs < 30 || lined < 250 || lined > 400 || calm < 150 {
		t.Errorf("of 600 schedules %d are pairs, %d have a peer link, %d of them are calm",
			pairs, lined, calm)
	}
}

// TestPlanWithoutKnobs checks that no fault is drawn that is impossible on a share whose faults
// cannot be set.
func TestPlanWithoutKnobs(t *testing.T) {
	for _, wired := range []bool{false, true} {
		bare := world{nodes: 4, wired: wired, lifeline: "off"}
		for seed := range uint64(100) {
			for _, f := range planOf(seed, bare).Faults {
				if trait := traitOf(f.What); trait.onShare || trait.lined ||
					trait.aside == wired && trait.aside || f.What == unplug && !wired {
					t.Errorf("wired %v: seed %d draws %q", wired, seed, f.What)
				}
			}
		}
	}
}
