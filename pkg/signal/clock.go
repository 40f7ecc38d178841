package signal

import (
	"sync/atomic"
	"time"
)

// clock is how far the clock that stamps the files of the share is ahead of
// this node's, learned from the first record that this node writes: one look at
// a file that it has just closed, whose facts most clients still have. On a file
// system that stamps files by the clock of whoever writes them (all local ones,
// Lustre) it is none.
type clock struct {
	asked  atomic.Bool
	offset atomic.Pointer[time.Duration] // nil before it is known
}

// Offset returns by how much, at least, the clock of the share's server is ahead
// of this node's. The first record that this node publishes shows it: it is not
// known before, nor where the share does not tell when a file was written.
func (d *Dir) Offset() (offset time.Duration, known bool) {
	if learned := d.via.clock.offset.Load(); learned != nil {
		return *learned, true
	}
	return 0, false
}

// learn takes the offset from the first file that this node has written, since it
// began to. That the share does not tell is no error: the record is there.
func (c *clock) learn(share Share, path string, began time.Time) {
	if c.asked.Swap(true) {
		return
	}
	facts, err := share.Look(path)
	if err == nil && !facts.Written.IsZero() {
		offset := OffsetOf(facts.Written, began, time.Now())
		c.offset.Store(&offset)
	}
}

// OffsetOf is how far a clock is ahead that showed the time written at some moment
// between began and ended. It is the least of the possible values, so that a slow
// share is not called a wrong clock.
func OffsetOf(written, began, ended time.Time) time.Duration {
	// Without the monotonic clock, which the server's time has nothing of.
	began, ended = began.Round(0), ended.Round(0)
	return max(written.Sub(ended), min(written.Sub(began), 0))
}
