package health

import (
	"slices"
	"time"
)

// Tempo has the heartbeat timing. Everything follows from the maximum time from a death to the end
// of the whole job.
type Tempo struct {
	Beat   time.Duration // heartbeat interval of a daemon
	Silent time.Duration // time without a new heartbeat after which a peer is lost
	Look   time.Duration // maximum interval between two polls of the file system
}

const (
	// fewNodes is the number of nodes up to which the load on the file system does not matter.
	fewNodes = 5
	// rareLook and rareBeat are the maximum factors by which each of many nodes polls and writes
	// heartbeats less often: a poll is three calls and a heartbeat is one, which with a peer timeout
	// of 10 s makes half a call per second and node.
	rareLook = 14
	rareBeat = 3.2
)

// HeadTempo divides the peer timeout for the head of size nodes: a peer is lost after five eighths
// of it without a heartbeat, which tolerates four late heartbeats with few nodes, and one with
// many; the rest is for polling and for the end of the others.
func HeadTempo(peerTimeout time.Duration, size int) Tempo {
	beat := WorkerTempo(peerTimeout, size).Beat
	return Tempo{Beat: peerTimeout / 8, Silent: max(peerTimeout*5/8, 2*beat), Look: peerTimeout / 10}
}

// WorkerTempo returns the timing of the other nodes. With many nodes, each polls less often, and
// learns later that the run has ended.
func WorkerTempo(peerTimeout time.Duration, size int) Tempo {
	less := min(max(float64(size)/fewNodes, 1), rareLook)
	return Tempo{
		Beat:   time.Duration(float64(peerTimeout/8) * min(less, rareBeat)),
		Silent: peerTimeout * 5 / 8,
		Look:   time.Duration(float64(peerTimeout/10) * less),
	}
}

// Liveness is the failure detector based on polls. Its user passes the result of each poll, with
// times of the user's monotonic clock; heartbeats are only compared with earlier heartbeats of the
// same peer, and must increase. It is not safe for concurrent use.
type Liveness struct {
	tempo Tempo
	last  time.Time
	peers map[int]pulse
}

type pulse struct {
	beat  int64
	since time.Time     // when the heartbeat was first seen, or another sign of life was received
	heard bool          // a sign of life was received since the last poll
	owed  time.Duration // the part of the last time without polls that Excuse subtracts
}

// NewLiveness returns a failure detector without peers.
func NewLiveness(tempo Tempo) *Liveness {
	return &Liveness{tempo: tempo, peers: make(map[int]pulse)}
}

// Look handles a poll at the time now: the newest heartbeat of each peer that should be alive. A
// peer that is not in beats is forgotten.
//
// If the previous poll was long ago, this process was slow or stopped, so that only one poll
// interval of that time counts against the peers. That interval does count, so that a file system
// on which every poll is slow delays the detection of a death, but does not prevent it. For a peer
// that also sends signs of life in another way, the whole time counts, because these do not depend
// on polls.
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
		// A lower number is not a sign of life, but an older listing, or one that missed the name while
		// it changed.
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

// Hear records, after a poll, when a peer last gave a sign of life in another way, by the user's
// clock. It does nothing for an unknown peer.
func (l *Liveness) Hear(rank int, at time.Time) {
	if p, ok := l.peers[rank]; ok {
		if p.heard = true; at.After(p.since) {
			p.since = at
		}
		l.peers[rank] = p
	}
}

// Excuse records, after a poll, that a peer has reported in another way that its file system does
// not answer. If this node could not poll for a while either, the peer has not caused it: that time
// does not count against it.
func (l *Liveness) Excuse(rank int) {
	if p, ok := l.peers[rank]; ok && p.owed > 0 {
		if p.since = p.since.Add(p.owed); p.since.After(l.last) {
			p.since = l.last
		}
		p.owed = 0
		l.peers[rank] = p
	}
}

// Silent returns the sorted indices of the lost peers: those whose heartbeat has not changed for
// too long, as of the newest poll.
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

// Quiet returns how long the peer's heartbeat has not changed, as of the newest poll, or 0 for an
// unknown peer.
func (l *Liveness) Quiet(rank int) time.Duration {
	if p, ok := l.peers[rank]; ok {
		return max(0, l.last.Sub(p.since))
	}
	return 0
}
