package health

import (
	"slices"
	"time"
)

// HeartbeatTiming has the heartbeat timing. Everything follows from the maximum time from a death
// to the end of the whole job.
type HeartbeatTiming struct {
	HeartbeatInterval time.Duration // heartbeat interval of a daemon
	SilenceTimeout    time.Duration // time without a new heartbeat after which a peer is lost
	MaxPollInterval   time.Duration // maximum interval between two polls of the file system
}

const (
	// smallJobNodes is the number of nodes up to which the load on the file system does not matter.
	smallJobNodes = 5
	// maxPollFactor and maxHeartbeatFactor are the maximum factors by which each of many nodes polls
	// and writes heartbeats less often: a poll is three calls and a heartbeat is one, which with a
	// peer timeout of 10 s makes half a call per second and node.
	maxPollFactor      = 14
	maxHeartbeatFactor = 3.2
)

// HeadHeartbeatTiming divides the peer timeout for the head of size nodes: a peer is lost after
// five eighths of it without a heartbeat, which tolerates four late heartbeats with few nodes, and
// one with many; the rest is for polling and for the end of the others.
func HeadHeartbeatTiming(peerTimeout time.Duration, size int) HeartbeatTiming {
	beat := WorkerHeartbeatTiming(peerTimeout, size).HeartbeatInterval
	return HeartbeatTiming{HeartbeatInterval: peerTimeout / 8, SilenceTimeout: max(peerTimeout*5/8, 2*beat), MaxPollInterval: peerTimeout / 10}
}

// WorkerHeartbeatTiming returns the timing of the other nodes. With many nodes, each polls less
// often, and learns later that the run has ended.
func WorkerHeartbeatTiming(peerTimeout time.Duration, size int) HeartbeatTiming {
	less := min(max(float64(size)/smallJobNodes, 1), maxPollFactor)
	return HeartbeatTiming{
		HeartbeatInterval: time.Duration(float64(peerTimeout/8) * min(less, maxHeartbeatFactor)),
		SilenceTimeout:    peerTimeout * 5 / 8,
		MaxPollInterval:   time.Duration(float64(peerTimeout/10) * less),
	}
}

// Liveness is the failure detector based on polls. Its user passes the result of each poll, with
// times of the user's monotonic clock; heartbeats are only compared with earlier heartbeats of the
// same peer, and must increase. It is not safe for concurrent use.
type Liveness struct {
	timing   HeartbeatTiming
	lastPoll time.Time
	peers    map[int]peerState
}

type peerState struct {
	heartbeat int64
	// when the heartbeat was first seen, or another sign of life was received
	lastSign      time.Time
	hadOtherSign  bool          // a sign of life was received since the last poll
	pendingExcuse time.Duration // the part of the last time without polls that ExcuseStall subtracts
}

// NewLiveness returns a failure detector without peers.
func NewLiveness(tempo HeartbeatTiming) *Liveness {
	return &Liveness{timing: tempo, peers: make(map[int]peerState)}
}

// RecordPoll handles a poll at the time now: the newest heartbeat of each peer that should be
// alive. A peer that is not in beats is forgotten.
//
// If the previous poll was long ago, this process was slow or stopped, so that only one poll
// interval of that time counts against the peers. That interval does count, so that a file system
// on which every poll is slow delays the detection of a death, but does not prevent it. For a peer
// that also sends signs of life in another way, the whole time counts, because these do not depend
// on polls.
func (l *Liveness) RecordPoll(beats map[int]int64, now time.Time) {
	var blind time.Duration
	if gap := now.Sub(l.lastPoll); !l.lastPoll.IsZero() && gap > 2*l.timing.MaxPollInterval {
		blind = gap - l.timing.MaxPollInterval
	}
	l.lastPoll = now
	known := l.peers
	l.peers = make(map[int]peerState, len(beats))
	for node, beat := range beats {
		p, ok := known[node]
		switch {
		// A lower number is not a sign of life, but an older listing, or one that missed the name while
		// it changed.
		case !ok || beat > p.heartbeat:
			p = peerState{heartbeat: beat, lastSign: now}
		case p.hadOtherSign:
			p.hadOtherSign, p.pendingExcuse = false, blind
		default:
			p.lastSign, p.pendingExcuse = p.lastSign.Add(blind), 0
		}
		l.peers[node] = p
	}
}

// RecordSignOfLife records, after a poll, when a peer last gave a sign of life in another way, by
// the user's clock. It does nothing for an unknown peer.
func (l *Liveness) RecordSignOfLife(node int, at time.Time) {
	if p, ok := l.peers[node]; ok {
		if p.hadOtherSign = true; at.After(p.lastSign) {
			p.lastSign = at
		}
		l.peers[node] = p
	}
}

// ExcuseStall records, after a poll, that a peer has reported in another way that its file system
// does not answer. If this node could not poll for a while either, the peer has not caused it: that
// time does not count against it.
func (l *Liveness) ExcuseStall(node int) {
	if p, ok := l.peers[node]; ok && p.pendingExcuse > 0 {
		if p.lastSign = p.lastSign.Add(p.pendingExcuse); p.lastSign.After(l.lastPoll) {
			p.lastSign = l.lastPoll
		}
		p.pendingExcuse = 0
		l.peers[node] = p
	}
}

// LostPeers returns the sorted indices of the lost peers: those whose heartbeat has not changed for
// too long, as of the newest poll.
func (l *Liveness) LostPeers() []int {
	var silent []int
	for node, pulse := range l.peers {
		if l.lastPoll.Sub(pulse.lastSign) >= l.timing.SilenceTimeout {
			silent = append(silent, node)
		}
	}
	slices.Sort(silent)
	return silent
}

// SilenceOf returns how long the peer's heartbeat has not changed, as of the newest poll, or 0 for
// an unknown peer.
func (l *Liveness) SilenceOf(node int) time.Duration {
	if p, ok := l.peers[node]; ok {
		return max(0, l.lastPoll.Sub(p.lastSign))
	}
	return 0
}
