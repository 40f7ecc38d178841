package lifeline

import "time"

// Config is the common configuration of both sides of a peer link.
type Config struct {
	Key  []byte        // the run's secret for [SecretName]: KeySize bytes
	Size int           // number of nodes, including the head
	Beat time.Duration // heartbeat interval, in each direction
	// Jitter returns the random part of a worker's pauses, at least 0 and less than 1. If it is nil,
	// rand.Float64 is used.
	Jitter func() float64
}

// silence returns the time without data after which a peer counts as silent. A healthy peer always
// sends something within this time.
func (c Config) silence() time.Duration { return 4 * c.Beat }

// ComeBackTime is how long a peer may take to reconnect after its connection was closed without a
// goodbye message. After that it is reported as gone.
const ComeBackTime = 30 * time.Millisecond

// patience returns how long a peer may take to reconnect after its connection has ended in the
// given way. After that it is reported as gone.
func (c Config) patience(how Parting) time.Duration {
	switch how {
	case Closed:
		return ComeBackTime
	case Broken:
		return c.silence()
	default:
		return 0
	}
}

// Parting describes how a connection has ended for good.
type Parting int

const (
	Left    Parting = iota // after a goodbye message
	Closed                 // in order but without a goodbye message, so the daemon has died
	Broken                 // it was reset, or the network failed otherwise
	Refused                // on a worker: the head's port is closed, so the head's daemon has died
)

var partings = []string{Left: "left", Closed: "closed", Broken: "broken", Refused: "refused"}

// String returns the lower-case name of the constant.
func (p Parting) String() string { return partings[p] }
