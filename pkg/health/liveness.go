package health

import (
	"slices"
	"time"
)

// Tempo is how liveness is timed: everything follows from the time that may
// pass from a death to the end of the whole job.
type Tempo struct {
	Beat   time.Duration // between two beats of a daemon
	Silent time.Duration // without a new beat, a peer is lost
	Look   time.Duration // longest pause between two looks at the share
}

const (
	// fewNodes is how many nodes may ask of the share what they like.
	fewNodes = 5
	// rareLook and rareBeat bound how much less often each of many nodes looks
	// and beats: a look is three calls and a beat is one, which with a peer
	// timeout of 10 s makes half a call a second and node.
	rareLook = 14
	rareBeat = 3.2
)

// HeadTempo divides the peer timeout for the head of size nodes: five eighths
// of it without a beat make a peer lost, which forgives four beats of few nodes
// that came late, and one of many; the rest is for looking and for the others
// to end.
func HeadTempo(peerTimeout time.Duration, size int) Tempo {
	beat := WorkerTempo(peerTimeout, size).Beat
	return Tempo{Beat: peerTimeout / 8, Silent: max(peerTimeout*5/8, 2*beat), Look: peerTimeout / 10}
}

// WorkerTempo is that of the others: where they are many, each asks less of the
// share, and hears of the end later.
func WorkerTempo(peerTimeout time.Duration, size int) Tempo {
	less := min(max(float64(size)/fewNodes, 1), rareLook)
	return Tempo{
		Beat:   time.Duration(float64(peerTimeout/8) * min(less, rareBeat)),
		Silent: peerTimeout * 5 / 8,
		Look:   time.Duration(float64(peerTimeout/10) * less),
	}
}

// Liveness knows which peers have been heard of lately. Its user tells it what
// each look showed, with the times of the user's own monotonic clock; beats are
// only compared with earlier beats of the same peer, and must count up. It is not safe for
// concurrent use.
type Liveness struct {
	tempo Tempo
	last  time.Time
	peers map[int]pulse
}

type pulse struct {
	beat  int64
	since time.Time     // when the beat was first seen, or a sign of life was heard
	heard bool          // the peer was heard since the last look
	owed  time.Duration // what Excuse takes off, of the last time without looks
}

// NewLiveness returns a liveness that knows no peer.
func NewLiveness(tempo Tempo) *Liveness {
	return &Liveness{tempo: tempo, peers: make(map[int]pulse)}
}

// Look tells what a look at the time now has shown: the newest beat of each peer
// that is expected to live. A peer that is not in beats is forgotten.
//
// Where the look before was long ago, we were the slow ones: of that time only
// one pause counts against the peers. That one does, so that a share on which
// every look is slow hides a death for longer, but not for good. For peers that
// are heard in another way all of it counts, as they need no look.
func (l *Liveness) Look(beats map[int]int64, now time.Time) {
	var blind time.Duration
	if gap := now.Sub(l.last); !l.last.IsZero() && gap > 2*l.tempo.Look {
		blind = gap - l.tempo.Look
	}
	l.last = now
	known := l.peers
	l.peers = make(map[int]pulse, len(beats))
	for rank, beat := range beats {
		p, ok := known[rank]
		switch {
		// A lower one is no sign of life, but a listing older than the last,
		// or one that missed the name while it changed.
		case !ok || beat > p.beat:
			p = pulse{beat: beat, since: now}
		case p.heard:
			p.heard, p.owed = false, blind
		default:
			p.since, p.owed = p.since.Add(blind), 0
		}
		l.peers[rank] = p
	}
}

// Hear tells, after a look, when a peer that is heard in another way than by
// looks gave its last sign of life, by the user's own clock. It does nothing for
// a peer that is not known.
func (l *Liveness) Hear(rank int, at time.Time) {
	if p, ok := l.peers[rank]; ok {
		if p.heard = true; at.After(p.since) {
			p.since = at
		}
		l.peers[rank] = p
	}
}

// Excuse tells, after a look, that a peer which is heard in another way has said
// that the share does not answer it. If we could not look for a while either, it
// is not the peer that is at fault: that time does not count against it.
func (l *Liveness) Excuse(rank int) {
	if p, ok := l.peers[rank]; ok && p.owed > 0 {
		if p.since = p.since.Add(p.owed); p.since.After(l.last) {
			p.since = l.last
		}
		p.owed = 0
		l.peers[rank] = p
	}
}

// Silent returns, in order, the peers whose beat has not changed for the time
// that makes them lost, as of the newest look.
func (l *Liveness) Silent() []int {
	var silent []int
	for rank, pulse := range l.peers {
		if l.last.Sub(pulse.since) >= l.tempo.Silent {
			silent = append(silent, rank)
		}
	}
	slices.Sort(silent)
	return silent
}

// Quiet returns for how long the peer's beat has not changed, as of the newest
// look; 0 for a peer that is not known.
func (l *Liveness) Quiet(rank int) time.Duration {
	if p, ok := l.peers[rank]; ok {
		return max(0, l.last.Sub(p.since))
	}
	return 0
}
