package schedules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// plan is the schedule that follows from a seed: how the mounts misbehave, which faults occur on
// which node, and when. The times of all steps follow from the seed, too.
type plan struct {
	Seed     uint64
	Shift    uint64 // the steps are drawn as for seed+Shift
	Size     int
	Needed   int    // number of nodes that the driver needs; the others are spares
	Moods    []mood // one per node's mount
	Weather  weather
	Leftover string // what another launch has left under the run's name: "", run, torn or file
	Attempts []attemptPlan
	Job      *jobPlan // roles and what happens to them; nil: the daemons run nothing
}

// attemptPlan is one launch of the daemons.
type attemptPlan struct {
	Start  time.Duration   // from the beginning of the schedule
	Late   []time.Duration // delay of each node's start
	Faults []fault
	End    string        // stop, leave, or cancel
	After  time.Duration // from the attempt's start to its end
}

// fault is a fault that occurs on one daemon, at one of its own steps.
type fault struct {
	Rank int
	Step int           // 0: at the time At
	At   time.Duration // from the start of the attempt
	What string
	For  time.Duration // duration of a stall
}

// The kinds of fault of a daemon.
const (
	crash     = "crash"     // it is killed, and its next step is not made
	term      = "term"      // it receives SIGTERM
	interrupt = "interrupt" // it receives SIGINT
	stall     = "stall"     // its node's mount does not answer for a while
	cut       = "cut"       // its peer links break, and can be established again
	parted    = "part"      // its node is cut off from the network for a while, but not from the shared file system
)

// harmless is the time for which a mount may hang without being noticed.
const harmless = 300 * time.Millisecond

// The ways in which an attempt ends if no fault has ended it.
const (
	endStop   = "stop"   // another process requests the orderly end
	endLeave  = "leave"  // the head is asked to leave
	endCancel = "cancel" // all daemons receive SIGTERM, as by scancel
)

// most is the maximum number of nodes.
const most = 5

func planOf(seed, shift uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := plan{Seed: seed, Shift: shift, Size: 2 + r.IntN(most-1)}
	p.Leftover = []string{"", "", "run", "torn", "file"}[r.IntN(5)]
	base := moodOf(r)
	for range p.Size {
		p.Moods = append(p.Moods, base)
		base = moodOf(r)
	}
	p.Attempts = append(p.Attempts, attemptOf(r, p.Size, 0))
	if r.IntN(4) == 0 {
		p.Attempts = append(p.Attempts, attemptOf(r, p.Size, time.Second/2+upTo(r, 8*time.Second)))
	}
	p.disturb(rand.New(rand.NewPCG(seed, 1)))
	p.belate(rand.New(rand.NewPCG(seed, 2)))
	if p.Needed = p.Size; r.IntN(4) == 0 {
		p.Needed = 1 + r.IntN(p.Size)
	}
	return p
}

// belate makes some of the mounts show an old state.
func (p *plan) belate(r *rand.Rand) {
	for i := range p.Moods {
		p.Moods[i].Late = []time.Duration{0, 0, lateMost / 10, lateMost}[r.IntN(4)]
		p.Moods[i].Back = []int{0, 0, 20, 300}[r.IntN(4)]
	}
}

// disturb adds the network's latency and faults.
func (p *plan) disturb(r *rand.Rand) {
	p.Weather = weather{
		Off:     r.IntN(5) == 0,
		Latency: []time.Duration{20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond}[r.IntN(3)],
	}
	for i := range p.Attempts {
		// With peer links a daemon makes few steps once the gate is open.
		if r.IntN(4) == 0 {
			at := time.Second/2 + upTo(r, 4*time.Second)
			p.Attempts[i].After = at + upTo(r, 4*time.Second)
			p.Attempts[i].Faults = append(p.Attempts[i].Faults, fault{
				Rank: max(0, r.IntN(p.Size+2)-2), At: at,
				What: []string{crash, crash, crash, term, interrupt}[r.IntN(5)],
			})
		}
		if p.Weather.Off || r.IntN(3) > 0 {
			continue
		}
		for range 1 + r.IntN(3) {
			f := fault{Rank: r.IntN(p.Size), What: []string{cut, parted}[r.IntN(2)]}
			if r.IntN(2) == 0 {
				f.Step = 1 + r.IntN(60)
			} else {
				f.At = upTo(r, 6*time.Second)
			}
			if f.What == parted {
				f.For = upTo(r, []time.Duration{harmless, 2 * peerTimeout, 5 * peerTimeout}[r.IntN(3)])
			}
			p.Attempts[i].Faults = append(p.Attempts[i].Faults, f)
		}
	}
}

func moodOf(r *rand.Rand) mood {
	m := mood{Latency: []time.Duration{50 * time.Microsecond, 200 * time.Microsecond,
		time.Millisecond, 4 * time.Millisecond}[r.IntN(4)]}
	if r.IntN(3) == 0 {
		return m
	}
	m.Absent = []time.Duration{0, time.Second, 20 * time.Second}[r.IntN(3)]
	m.Stale = []time.Duration{0, 20 * time.Millisecond, staleMost}[r.IntN(3)]
	m.Jumps = r.IntN(3) == 0
	m.Torn = r.IntN(3) == 0
	m.Passing = []int{0, 20, 100}[r.IntN(3)]
	m.Refuse = []int{0, 0, 20}[r.IntN(3)]
	m.Lost = []int{0, 0, 30}[r.IntN(3)]
	return m
}

// staleMost is the maximum age of a listing: an old listing must not make a living peer look dead.
const staleMost = peerTimeout / 10

// backMost is the age of a single old listing between two current ones.
const backMost = peerTimeout

// lateMost is the maximum delay of a record after its name.
const lateMost = peerTimeout / 4

func attemptOf(r *rand.Rand, size int, start time.Duration) attemptPlan {
	a := attemptPlan{Start: start, After: upTo(r,
		[]time.Duration{time.Second, 4 * time.Second, 9 * time.Second}[r.IntN(3)])}
	_ = r.IntN(8) // keeps what follows from a seed
	a.End = []string{endStop, endStop, endLeave, endCancel}[r.IntN(4)]
	longest := []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second}[r.IntN(3)]
	for range size {
		a.Late = append(a.Late, upTo(r, longest))
	}
	switch r.IntN(10) {
	case 0: // the head dies, and a worker is interrupted
		a.Faults = []fault{{Rank: 0, Step: 1 + r.IntN(60), What: crash},
			{Rank: size - 1, Step: 1 + r.IntN(60), What: interrupt}}
	case 1: // a worker's mount hangs for about the peer timeout, while the run ends
		a.Faults = []fault{{Rank: size - 1, Step: 1 + r.IntN(80), What: stall, For: peerTimeout/2 +
			upTo(r, 2*peerTimeout)}}
		a.After = upTo(r, 2*time.Second)
	default:
		for range []int{0, 0, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(10)] {
			a.Faults = append(a.Faults, faultOf(r, size))
		}
	}
	return a
}

// faultOf draws a fault. It prefers the head and the steps of the bring-up.
func faultOf(r *rand.Rand, size int) fault {
	f := fault{Rank: max(0, r.IntN(size+2)-2), Step: 1 + r.IntN([]int{25, 60, 400}[r.IntN(3)])}
	f.What = []string{crash, crash, crash, crash, crash, term, term, interrupt, stall, stall}[r.IntN(10)]
	if f.What == stall {
		f.For = upTo(r, []time.Duration{harmless, 2 * peerTimeout, 5 * peerTimeout}[r.IntN(3)])
	}
	return f
}

func upTo(r *rand.Rand, longest time.Duration) time.Duration {
	return 1 + time.Duration(r.Int64N(int64(longest)))
}

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, shifted by %d: %d nodes, %d of them needed, leftover %q, network "+
		"%+v\n", p.Seed, p.Shift, p.Size, p.Needed, p.Leftover, p.Weather)
	for node, m := range p.Moods[:p.Size] {
		fmt.Fprintf(&b, "  mount of node %d: %+v\n", node, m)
	}
	for i, a := range p.Attempts {
		fmt.Fprintf(&b, "  attempt %d: starts at %v, each rank later by %v; %s after %v; faults %+v\n",
			i, a.Start, a.Late[:p.Size], a.End, a.After, a.Faults)
	}
	b.WriteString(p.Job.String())
	return b.String()
}
