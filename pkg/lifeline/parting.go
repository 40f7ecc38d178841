package lifeline

import "time"

// Config is what both sides of a lifeline agree on.
type Config struct {
	Key  []byte        // KeySize bytes, which only daemons and callers of this run have: its secret for SecretName
	Size int           // nodes, the head included
	Beat time.Duration // between two beats, each way
	// Jitter draws by how much a worker's pauses differ, at least 0 and less
	// than 1; nil: at random.
	Jitter func() float64
}

// silence is a time within which a peer that is well is always heard of.
func (c Config) silence() time.Duration { return 4 * c.Beat }

// ComeBackTime is the time for a new connection after one that was Closed. Only then is the peer told of as gone.
const ComeBackTime = 30 * time.Millisecond

// patience is the time a peer has to reconnect after its connection has ended like this; only then is it told of as gone.
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

// Parting tells how a connection ended for good.
type Parting int

const (
	Left    Parting = iota // it said goodbye
	Closed                 // its kernel closed it in order, without a goodbye: the daemon has ended
	Broken                 // it was reset, or the network failed otherwise
	Refused                // on a worker: the head's kernel says that nobody listens any more, so the head's daemon has died
)

var partings = []string{Left: "left", Closed: "closed", Broken: "broken", Refused: "refused"}

func (p Parting) String() string { return partings[p] }
