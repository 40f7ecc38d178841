package health

import "time"

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
