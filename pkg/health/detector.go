package health

import (
	"slices"
	"time"
)

// Detector decides which peers are lost, at each poll of the file system. Heartbeats are only
// compared with earlier heartbeats of the same peer, and must increase. It is not safe for
// concurrent use.
type Detector struct {
	timing   HeartbeatTiming
	links    *Links // nil: there are only heartbeat files
	lastPoll time.Time
	peers    map[int]filePeer
}

// filePeer is a peer as of the newest poll.
type filePeer struct {
	heartbeat int64
	lastSign  time.Time // when the heartbeat was first seen, or one was received on the link
	connected bool      // it was connected by a peer link
}

// NewDetector returns a failure detector without peers. links may be nil.
func NewDetector(timing HeartbeatTiming, links *Links) *Detector {
	return &Detector{timing: timing, links: links, peers: make(map[int]filePeer)}
}

// RecordPoll handles a poll at the time now: the newest heartbeat file of each peer that should be
// alive. A peer that is not in beats is forgotten. It returns the sorted indices of the lost peers:
// those without a sign of life for too long.
//
// If the previous poll was long ago, this process was slow or stopped, so that only one poll
// interval of that time counts against the peers. That interval does count, so that a file system
// on which every poll is slow delays the detection of a death, but does not prevent it. For a
// connected peer the whole time counts, because its link does not depend on polls. But if the peer
// reports that its file system does not answer, it has not caused the time without polls, which
// does not count then: the whole file system has failed, and this node's mount may recover a moment
// before the peer's.
func (d *Detector) RecordPoll(beats map[int]int64, now time.Time) (lost []int) {
	var blind time.Duration
	if gap := now.Sub(d.lastPoll); !d.lastPoll.IsZero() && gap > 2*d.timing.MaxPollInterval {
		blind = gap - d.timing.MaxPollInterval
	}
	d.lastPoll = now
	before := d.peers
	d.peers = make(map[int]filePeer, len(beats))
	for node, beat := range beats {
		// Judge by the files. A lower number is not a sign of life, but an older listing, or one that
		// missed the name while it changed.
		p, known := before[node]
		excuse := time.Duration(0)
		switch {
		case !known || beat > p.heartbeat:
			p = filePeer{heartbeat: beat, lastSign: now}
		case p.connected:
			excuse = blind
		default:
			p.lastSign = p.lastSign.Add(blind)
		}
		link := d.links.Peer(node, now)
		if p.connected = link.Connected; link.Connected && link.LastCounted.After(p.lastSign) {
			p.lastSign = link.LastCounted
		}
		if link.ShareUnresponsive && excuse > 0 {
			p.lastSign = p.lastSign.Add(min(excuse, now.Sub(p.lastSign)))
		}
		d.peers[node] = p
		if now.Sub(p.lastSign) >= d.timing.SilenceTimeout {
			lost = append(lost, node)
		}
	}
	slices.Sort(lost)
	return lost
}

// SilenceOf returns how long the peer has given no sign of life, as of the newest poll, or 0 for an
// unknown peer.
func (d *Detector) SilenceOf(node int) time.Duration {
	if p, ok := d.peers[node]; ok {
		return max(0, d.lastPoll.Sub(p.lastSign))
	}
	return 0
}

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
	return HeartbeatTiming{HeartbeatInterval: peerTimeout / 8,
		SilenceTimeout: max(peerTimeout*5/8, 2*beat), MaxPollInterval: peerTimeout / 10}
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
