package signal

import (
	"sync"
	"time"
)

// clock is how far the clock that stamps the files of the share is ahead of
// this node's, learned from the first record that this node writes: one look at
// a file that it has just closed, whose facts most clients still have. On a file
// system that stamps files by the clock of whoever writes them (all local ones,
// Lustre) it is none.
type clock struct {
	mu     sync.Mutex
	asked  bool          // guarded by mu
	known  bool          // guarded by mu
	offset time.Duration // guarded by mu
}

// first tells whether nobody has asked yet.
func (c *clock) first() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = true
	return !asked
}

func (c *clock) learn(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.offset = true, offset
}

// Offset returns by how much the clock of the share's server is ahead of this
// node's, at least, as the first record that this node has published has shown.
// It is not known before, nor where the share does not tell.
func (d *Dir) Offset() (offset time.Duration, known bool) {
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	return d.clock.offset, d.clock.known
}

// stamp is stamped for the first record of this node, and nil for the others.
func (d *Dir) stamp() func(path string, began time.Time) {
	if !d.clock.first() {
		return nil
	}
	return d.stamped
}

// stamped learns the offset from a file that was written since began. That the
// share does not tell is no error: the record is there.
func (d *Dir) stamped(path string, began time.Time) {
	facts, err := d.via.Share.Look(path)
	if err == nil && !facts.Written.IsZero() {
		d.clock.learn(offsetOf(facts.Written, began, time.Now()))
	}
}

// offsetOf is how far a clock is ahead that said written at some moment between
// began and ended: as little as can be, so that a slow share is not called a
// wrong clock.
func offsetOf(written, began, ended time.Time) time.Duration {
	// Without the monotonic clock, which the server's time has nothing of.
	began, ended = began.Round(0), ended.Round(0)
	switch {
	case written.Before(began):
		return written.Sub(began)
	case written.After(ended):
		return written.Sub(ended)
	default:
		return 0
	}
}
