package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// What the jobs are told. A death must end the job within the peer timeout and
// the graces; slack is what a busy machine and Slurm take.
const (
	peerTimeout = 3 * time.Second
	joinTimeout = 8 * time.Second
	// shareTimeout is more than a share is gone that must be outwaited.
	shareTimeout = 4 * peerTimeout
	driverGrace  = 2 * time.Second
	stopGrace    = time.Second
	slack        = 10 * time.Second
	// haste is the same where nothing uses its grace up, and less than what is
	// left of a worker's pause between two looks in a calm job: the end is to
	// be seen by what else there is to see.
	haste = 5 * time.Second
	// diskTime is what a daemon gives a disk that hangs to remove its own.
	diskTime = 10 * time.Second
)

// driverCode is what a driver ends with that nothing disturbs, and failedCode
// one whose work fails.
const (
	driverCode = 42
	failedCode = 1
)

// killed is the code of what was ended by KILL.
const killed = 137

// verdict is one way in which a job may end.
type verdict struct {
	Code  int
	Kinds []health.Kind // one of these is the cause; none: the driver ended it
	Ranks []int         // whom the cause may name; nil: anybody
}

// expectation is what a schedule must come to.
type expectation struct {
	Any    []verdict     // one of these
	Within time.Duration // from the last fault to the end of every daemon that is no victim
	Freed  time.Duration // from its undoing to the end of the victims' daemons
	Apart  time.Duration // between the ends of the first daemon and the last one; 0: does not matter
	// Victims are the ranks that the faults strike themselves: their daemons
	// may end with other codes, and their records may say other things.
	Victims []int
	// All are the ranks that the head must tell of, be it as consequences.
	All []int
	// Each says that all meet the same, each for itself: who tells first, and
	// of what, is a matter of luck, and each ends with the code for what it met.
	Each bool
	// Two says that the second fault may strike when all has been told: then
	// also what a victim told counts.
	Two bool
	// Cut says that Slurm can't reach a node for so long that srun may never
	// hear of the end of its task.
	Cut bool
	// Mute says that nobody may be able to write how it ended.
	Mute bool
	// Leaves are the ranks whose own temporaries nobody is left to remove.
	Leaves []int
}

// own is the end by the driver.
var own = verdict{Code: driverCode}

// losses are the faults that make a node look lost to the others, and as what:
// by files alone, and with the lifeline.
var losses = map[what]struct{ files, lifeline []health.Kind }{
	killDaemon: {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	killTwo:    {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	killThree:  {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied}},
	hang:       {[]health.Kind{health.PeerLost}, []health.Kind{health.HostHangs}},
	lose:       {[]health.Kind{health.PeerLost}, []health.Kind{health.HostLost}},
	unplug:     {[]health.Kind{health.PeerLost}, []health.Kind{health.HostLost, health.CutOff}},
	stall:      {[]health.Kind{health.PeerLost}, []health.Kind{health.HostHangs}},
	full:       {[]health.Kind{health.PeerLost}, []health.Kind{health.DaemonDied, health.HostHangs}},
}

// expect says what a schedule must come to.
func expect(s schedule) expectation {
	e := expectation{Within: peerTimeout + driverGrace + stopGrace + slack, Two: len(s.harmful()) > 1 && named(s) != failDriver}
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
			e.Leaves = append(e.Leaves, f.Rank)
		}
		e.Each = e.Each || f.What == fullAll || f.What == stallAll
		e.Mute = e.Mute || f.What == fullAll
		e.Cut = e.Cut || f.What == lose || f.What == unplug
	}
	if traitOf(s.Faults[0].What).more > 0 && s.Lifeline && (p == atGate || p == inDriver) && !slices.Contains(e.Victims, 0) {
		e.All = e.Victims
	}
	e.Freed = e.Within
	if p == inDriver && !slices.ContainsFunc(s.harmful(), func(f fault) bool { return !traitOf(f.What).prompt }) {
		e.Within = peerTimeout + haste
	}
	if what := s.Faults[0].What; s.Lifeline && (p == atGate || p == inDriver) && (what == stall || what == stallAll) {
		e.Within, e.Freed = e.Within+shareTimeout, e.Freed+shareTimeout // it is outwaited for as long
	}
	for i, v := range e.Any {
		if len(v.Ranks) > 0 && slices.Contains(e.Victims, v.Ranks[0]) {
			e.Any[i].Ranks = e.Victims // two that are lost at once may be missed at once
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

// verdictsOf are the ends that one fault of a schedule may have.
func verdictsOf(f fault, s schedule) []verdict {
	p := s.Faults[0].Phase
	switch {
	case traitOf(f.What).harmless:
		return []verdict{own}
	case f.What == failDriver:
		return nil // it is a consequence
	case f.What == killDriver:
		return []verdict{{Code: killed}}
	case f.What == killService && p != inDrain:
		return []verdict{{code(health.ServiceDied), []health.Kind{health.ServiceDied}, []int{f.Rank}}}
	case f.What == killSandbox && p != inDrain:
		return []verdict{{code(health.SandboxDied), []health.Kind{health.SandboxDied}, []int{f.Rank}}}
	case f.What == stallAll && p != inDrain:
		return []verdict{{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil}}
	case f.What == fullAll && p != inDrain:
		// Who can't write ends, and others miss it before they meet the same.
		return whereFull(p, verdict{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil},
			verdict{code(health.PeerLost), []health.Kind{health.PeerLost, health.DaemonDied, health.HostHangs}, nil})
	}
	if f.What == stallAll { // a worker may not have seen that it is the end
		return []verdict{own, {code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, nil}}
	}
	if _, loss := losses[f.What]; loss {
		return ofLoss(f, s)
	}
	return []verdict{own}
}

// ofLoss are the ends of a job one of whose nodes is lost to the others.
func ofLoss(f fault, s schedule) []verdict {
	p, ranks := s.Faults[0].Phase, f.struck(s.Nodes)
	head := slices.Contains(ranks, 0)
	kinds := losses[f.What].files
	switch {
	case s.Faults[0].What == cutLines: // nobody's kernel answers there
		kinds = []health.Kind{health.PeerLost, health.HostLost}
	case s.Lifeline:
		kinds = losses[f.What].lifeline
	}
	if p == beforeJoin || p == inJoin || p == inServices {
		kinds = append([]health.Kind{health.PeerLost}, kinds...) // no lifeline yet
	}
	lost := verdict{code(health.PeerLost), kinds, ranks}
	missed := verdict{code(health.ShareUnusable), []health.Kind{health.ShareUnusable}, ranks}
	if p == beforeJoin && head {
		missed.Ranks = nil // there may be no job to join: each says so for itself
	}
	switch {
	case p == inDrain && !head, p == inDrain && f.What == full:
		return []verdict{own}
	case p == inDrain: // it may not have been the end yet for all
		return []verdict{own, lost, missed}
	case f.What == full:
		return whereFull(p, lost, missed)
	case p == beforeJoin, p == inJoin, f.What == stall: // also once it is outwaited no longer
		return []verdict{lost, missed}
	default:
		return []verdict{lost}
	}
}

// whereFull adds the end by the driver where all that matters may have been
// written already; beats need no room.
func whereFull(p phase, others ...verdict) []verdict {
	if p == inDriver {
		return []verdict{own}
	}
	return append(others, own)
}

func code(kind health.Kind) int { return health.OutcomeOfKind(kind).Code }

func TestExpect(t *testing.T) {
	share, lost := []health.Kind{health.ShareUnusable}, []health.Kind{health.PeerLost}
	for _, tc := range []struct {
		name    string
		s       schedule
		any     []verdict
		victims []int
	}{
		{"a service", schedule{Faults: []fault{{What: killService, Rank: 2, Phase: inDriver}}},
			[]verdict{{77, []health.Kind{health.ServiceDied}, []int{2}}}, nil},
		{"a service in the drain", schedule{Faults: []fault{{What: killService, Rank: 2, Phase: inDrain}}}, []verdict{own}, nil},
		{"a daemon, by files", schedule{Faults: []fault{{What: killDaemon, Rank: 1, Phase: atGate}}},
			[]verdict{{76, lost, []int{1}}}, []int{1}},
		{"a daemon, by the lifeline", schedule{Lifeline: true, Faults: []fault{{What: killDaemon, Rank: 1, Phase: atGate}}},
			[]verdict{{76, []health.Kind{health.DaemonDied}, []int{1}}}, []int{1}},
		{"a head before there is a job", schedule{Faults: []fault{{What: killDaemon, Phase: beforeJoin}}},
			[]verdict{{76, append(lost, lost...), []int{0}}, {66, share, nil}}, []int{0}},
		{"a head whose share is full before there is a job", schedule{Faults: []fault{{What: full, Phase: beforeJoin}}},
			[]verdict{{76, append(lost, lost...), []int{0}}, {66, share, nil}, own}, []int{0}},
		{"the driver", schedule{Faults: []fault{{What: killDriver, Phase: inDriver}}}, []verdict{{Code: 137}}, nil},
		{"a share that is full under the driver", schedule{Faults: []fault{{What: full, Rank: 3, Phase: inDriver}}}, []verdict{own}, []int{3}},
		{"two at once", schedule{Faults: []fault{{What: hang, Rank: 1, Phase: inDriver}, {What: lose, Rank: 3}}},
			[]verdict{{76, lost, []int{1, 3}}, {76, lost, []int{1, 3}}}, []int{1, 3}},
		{"a driver that fails of a loss", schedule{Lifeline: true, Faults: []fault{{What: lose, Rank: 3, Phase: inDriver}, {What: failDriver}}},
			[]verdict{{76, []health.Kind{health.HostLost}, []int{3}}}, []int{3}},
		{"a daemon whose lifeline is cut", schedule{Lifeline: true, Faults: []fault{{What: cutLines, Rank: 3, Phase: inDriver}, {What: killDaemon}}},
			[]verdict{{76, []health.Kind{health.PeerLost, health.HostLost}, []int{0}}}, []int{0}},
		{"lifelines that are cut", schedule{Lifeline: true, Faults: []fault{{What: cutLines, Rank: 3, Phase: inDriver}}}, []verdict{own}, nil},
		{"several at once", schedule{Nodes: 4, Lifeline: true, Faults: []fault{{What: killThree, Rank: 2, Phase: inDriver}}},
			[]verdict{{76, []health.Kind{health.DaemonDied}, []int{2, 3, 0}}}, []int{2, 3, 0}},
		{"one with a harmless one", schedule{Faults: []fault{{What: hang, Rank: 1, Phase: inDriver}, {What: clockBack, Rank: 3}}},
			[]verdict{{76, lost, []int{1}}}, []int{1}},
		{"a harmless one", schedule{Faults: []fault{{What: glitch, Rank: 1, Phase: inDriver}}}, []verdict{own}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := expect(tc.s)
			if !slices.EqualFunc(got.Any, tc.any, sameVerdict) || !slices.Equal(got.Victims, tc.victims) {
				t.Errorf("expected are %+v, want %+v and victims %v", got, tc.any, tc.victims)
			}
		})
	}
}

func sameVerdict(a, b verdict) bool {
	return a.Code == b.Code && slices.Equal(a.Kinds, b.Kinds) && slices.Equal(a.Ranks, b.Ranks)
}

// TestExpectAll proves that no schedule is without an expectation.
func TestExpectAll(t *testing.T) {
	for seed := range uint64(2000) {
		s := planOf(seed, sometimes)
		e := expect(s)
		if len(e.Any) == 0 || e.Within < haste || e.Freed < slack || e.Within > time.Minute {
			t.Fatalf("of %s is expected %+v", s, e)
		}
	}
}
