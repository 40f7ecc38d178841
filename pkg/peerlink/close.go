package peerlink

import "time"

// Config is the common configuration of both sides of a peer link.
type Config struct {
	Key               []byte        // the run's secret for [SecretName]: KeySize bytes
	Nodes             int           // number of nodes, including the head
	HeartbeatInterval time.Duration // heartbeat interval, in each direction
	// Jitter returns the random part of a worker's pauses, at least 0 and less than 1. If it is nil,
	// rand.Float64 is used.
	Jitter func() float64
}

// silenceTimeout returns the time without data after which a peer counts as silent. A healthy peer
// always sends something within this time.
func (c Config) silenceTimeout() time.Duration { return 4 * c.HeartbeatInterval }

// ReconnectTimeout is how long a peer may take to reconnect after its connection was closed without
// a goodbye message. After that it is reported as gone.
const ReconnectTimeout = 30 * time.Millisecond

// reconnectTimeout returns how long a peer may take to reconnect after its connection has ended in
// the given way. After that it is reported as gone.
func (c Config) reconnectTimeout(how CloseReason) time.Duration {
	switch how {
	case Closed:
		return ReconnectTimeout
	case Broken:
		return c.silenceTimeout()
	default:
		return 0
	}
}

// CloseReason describes how a connection has ended for good.
type CloseReason int

const (
	Goodbye CloseReason = iota // after a goodbye message
	Closed                     // in order but without a goodbye message, so the daemon has died
	Broken                     // it was reset, or the network failed otherwise
	Refused                    // on a worker: the head's port is closed, so the head's daemon has died
)

var closeReasonNames = []string{Goodbye: "left", Closed: "closed", Broken: "broken", Refused: "refused"}

// String returns the lower-case name of the constant.
func (p CloseReason) String() string { return closeReasonNames[p] }
