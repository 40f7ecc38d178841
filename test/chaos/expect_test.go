package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// The timeouts of the jobs. A failure must end the job within the peer timeout plus the grace
// periods; slack is a margin for a busy machine and for Slurm.
const (
	peerTimeout = 3 * time.Second
	joinTimeout = 8 * time.Second
	driverGrace = 2 * time.Second
	stopGrace   = 5 * time.Second // fixed
	slack       = 10 * time.Second
	// haste is the margin if no process uses its grace period. It is shorter than the rest of a
	// worker's polling interval in a calm job: the worker must notice the end by other means than its
	// next poll.
	haste = 5 * time.Second
	// diskTime is how long a daemon waits for an unresponsive disk when it removes its files.
	diskTime = 10 * time.Second
)

// driverCode is the exit code of an undisturbed driver, and failedCode that of a driver whose work
// fails.
const (
	driverCode = 42
	failedCode = 1
)

// killed is the exit code of a process that was ended by SIGKILL.
const killed = 137

// verdict is one possible outcome of a job.
type verdict struct {
	Code  int
	Kinds []health.Kind // possible kinds of the cause; nil if the driver ended the job
	Nodes []int         // nodes that the cause may name; nil means any node
}

// expectation describes the required outcome of a schedule.
type expectation struct {
	Any    []verdict     // possible verdicts
	Within time.Duration // from the last fault to the end of every daemon that is not a victim
	Freed  time.Duration // from the removal of the faults to the end of the victims
	Apart  time.Duration // between the ends of the first and the last daemon; 0 means no limit
	// Victims are the nodes that the faults strike. Their daemons may end with other codes, and their
	// records may contain other causes.
	Victims []int
	// All are the nodes that the head's result must mention, at least as consequences.
	All []int
	// Each is set if all nodes meet the same problem independently. The order of their reports is then
	// undetermined, and each daemon exits with the code of the problem it met.
	Each bool
	// Two is set if the second fault may strike after the cause has been reported. Then reports of
	// victims count, too.
	Two bool
	// Cut is set if Slurm cannot reach a node for so long that srun may never learn that its task has
	// ended.
	Cut bool
	// Mute is set if possibly no daemon can write how the job ended. Then reports of victims count, too.
	Mute bool
	// Leaves are the nodes whose daemons may leave temporary files behind.
	Leaves []int
}

// own is the verdict of a job that its driver ended.
var own = verdict{Code: driverCode}

// losses maps each fault that makes a node look lost to the kinds of failure that the other nodes
// report: with heartbeat files only, and with the peer link.
var losses = map[what]struct{ files, lifeline []health.Kind }{
	killDaemon: {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	killTwo:    {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	killThree:  {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	hang:       {[]health.Kind{health.PeerLost}, []health.Kind{health.HostHangs}},
	lose:       {[]health.Kind{health.PeerLost}, []health.Kind{health.HostLost}},
	unplug:     {[]health.Kind{health.PeerLost}, []health.Kind{health.HostLost, health.CutOff}},
	stall:      {[]health.Kind{health.PeerLost}, []health.Kind{health.HostHangs}},
	full: {[]health.Kind{health.PeerLost},
		[]health.Kind{health.DaemonDied, health.HostHangs}},
}

// expect returns the expected outcome of a schedule.
func expect(s schedule) expectation {
	e := expectation{Within: peerTimeout + driverGrace + stopGrace + slack,
		Two: len(s.harmful()) > 1 && named(s) != failDriver}
	p := s.Faults[0].Phase
	if p == beforeJoin || p == inJoin {
		e.Within += joinTimeout
	}
	for _, f := range s.Faults {
		if traitOf(f.What).harmless && len(s.harmful()) > 0 {
			continue
		}
		e.Any = append(e.Any, verdictsOf(f, s)...)
		if _, lost := losses[f.What]; lost {
			e.Victims = append(e.Victims, f.struck(s.Nodes)...)
		}
		if f.What == lose || f.What == hangDisk {
			e.Leaves = append(e.Leaves, f.Node)
		}
		e.Each = e.Each || f.What == fullAll || f.What == stallAll
		e.Mute = e.Mute || f.What == fullAll || f.What == full
		e.Cut = e.Cut || f.What == lose || f.What == unplug
	}
	if traitOf(s.Faults[0].What).more > 0 && s.Lifeline && (p == atGate || p == inDriver) &&
		!slices.Contains(e.Victims, 0) {
		e.All = e.Victims
	}
	e.Freed = e.Within
	if p == inDriver && !slices.ContainsFunc(s.harmful(), func(f fault) bool {
		return !traitOf(f.What).prompt
	}) {
		e.Within = peerTimeout + haste
	}
	for i, v := range e.Any {
		if len(v.Nodes) > 0 && slices.Contains(e.Victims, v.Nodes[0]) {
			// the cause may name all nodes that were lost at the same time
			e.Any[i].Nodes = e.Victims
		}
		if sameVerdict(v, own) {
			e.Within = max(e.Within, s.Driver+s.Faults[0].For+slack)
		}
	}
	if len(e.Any) == 1 && sameVerdict(e.Any[0], own) && len(e.Victims) == 0 && !e.Mute {
		e.Apart = haste
	}
	if s.Faults[0].What == hangDisk {
		e.Within, e.Apart = e.Within+diskTime, haste+diskTime
	}
	return e
}

// verdictsOf returns the possible verdicts for one fault of a schedule.
func verdictsOf(f fault, s schedule) []verdict {
	p := s.Faults[0].Phase
	switch {
	case traitOf(f.What).harmless:
		return []verdict{own}
	case f.What == failDriver:
		return nil // only a consequence
	case f.What == killDriver:
		return []verdict{{Code: killed}}
	case f.What == killService && p != inDrain:
		return []verdict{{code(health.ServiceDied), []health.Kind{health.ServiceDied},
			[]int{f.Node}}}
	case f.What == killSandbox && p != inDrain:
		return []verdict{{code(health.SandboxDied), []health.Kind{health.SandboxDied},
			[]int{f.Node}}}
	case f.What == stallAll && p != inDrain:
		return []verdict{{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil}}
	case f.What == fullAll && p != inDrain:
		// A daemon that cannot write ends, and others notice its loss before they meet the same problem.
		return whereFull(p,
			verdict{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil},
			verdict{code(health.PeerLost),
				[]health.Kind{health.PeerLost, health.DaemonDied, health.HostHangs}, nil})
	}
	if f.What == stallAll { // a worker may not have seen the end of the run
		return []verdict{own,
			{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil}}
	}
	if _, loss := losses[f.What]; loss {
		return ofLoss(f, s)
	}
	return []verdict{own}
}

// ofLoss returns the possible verdicts of a job if the other nodes lose the struck nodes.
func ofLoss(f fault, s schedule) []verdict {
	p, nodes := s.Faults[0].Phase, f.struck(s.Nodes)
	head := slices.Contains(nodes, 0)
	kinds := losses[f.What].files
	switch {
	case s.Faults[0].What == cutLines: // the peer's kernel does not respond
		kinds = []health.Kind{health.PeerLost, health.HostLost}
	case s.Lifeline:
		kinds = losses[f.What].lifeline
	}
	if p == beforeJoin || p == inJoin || p == inServices {
		kinds = append([]health.Kind{health.PeerLost}, kinds...) // no peer link yet
	}
	lost := verdict{code(health.PeerLost), kinds, nodes}
	missed := verdict{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nodes}
	if p == beforeJoin && head {
		missed.Nodes = nil // there may be no job to join; each node reports itself
	}
	switch {
	case p == inDrain && !head, p == inDrain && f.What == full:
		return []verdict{own}
	case p == inDrain: // some nodes may not have seen the end of the run
		return []verdict{own, lost, missed}
	case f.What == full:
		return whereFull(p, lost, missed)
	case p == beforeJoin, p == inJoin, f.What == stall: // also when the stall is no longer tolerated
		return []verdict{lost, missed}
	default:
		return []verdict{lost}
	}
}

// whereFull adds the end by the driver if all essential records may have been written before the
// share was full. Heartbeat files need no space.
func whereFull(p phase, others ...verdict) []verdict {
	if p == inDriver {
		return []verdict{own}
	}
	return append(others, own)
}

func code(kind health.Kind) int { return health.OutcomeOfKind(kind).Code }

func sameVerdict(a, b verdict) bool {
	return a.Code == b.Code && slices.Equal(a.Kinds, b.Kinds) && slices.Equal(a.Nodes, b.Nodes)
}

// TestExpectAll checks that every schedule has an expectation.
func TestExpectAll(t *testing.T) {
	for seed := range uint64(2000) {
		s := planOf(seed, sometimes)
		e := expect(s)
		if len(e.Any) == 0 || e.Within < haste || e.Freed < slack || e.Within > time.Minute {
			t.Fatalf("of %s is expected %+v", s, e)
		}
	}
}
