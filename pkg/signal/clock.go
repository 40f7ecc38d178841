package signal

import (
	"sync/atomic"
	"time"
)

// clockOffset is the offset between the server's clock, which sets the times of files, and this
// node's. It is determined when this node writes its first record, by a query of the file that was
// just closed: most clients still have its attributes. The offset is zero on file systems that use
// the writer's clock (all local ones, Lustre).
type clockOffset struct {
	queried atomic.Bool
	offset  atomic.Pointer[time.Duration] // nil before it is known
}

// ClockOffset returns by how much, at least, the server's clock is ahead of this node's. It is
// known after the first record that this node publishes, unless the file system does not provide
// modification times.
func (d *Dir) ClockOffset() (offset time.Duration, known bool) {
	if learned := d.access.serverClock.offset.Load(); learned != nil {
		return *learned, true
	}
	return 0, false
}

// learnOffset determines the offset from a file that this node has written between began and ended.
// Only the first call has an effect. The offset stays unknown if the file system does not provide
// modification times.
func (c *clockOffset) learnOffset(share SharedFS, path string, began, ended time.Time) {
	if c.queried.Swap(true) {
		return
	}
	facts, err := share.Stat(path)
	if err == nil && !facts.ModTime.IsZero() {
		offset := EstimateOffset(facts.ModTime, began, ended)
		c.offset.Store(&offset)
	}
}

// EstimateOffset returns how far another clock is ahead of this node's, if the other clock showed
// the time written at some moment between began and ended, which are times of this node. The result
// is the smallest possible value, so that a slow file system is not reported as a wrong clock.
func EstimateOffset(written, began, ended time.Time) time.Duration {
	// The monotonic clock is removed, because the server's time has none.
	began, ended = began.Round(0), ended.Round(0)
	return max(written.Sub(ended), min(written.Sub(began), 0))
}
