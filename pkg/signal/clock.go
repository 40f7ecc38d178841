package signal

import (
	"sync/atomic"
	"time"
)

// clock is the offset between the server's clock, which sets the times of files, and this node's.
// It is determined when this node writes its first record, by a query of the file that was just
// closed: most clients still have its attributes. The offset is zero on file systems that use the
// writer's clock (all local ones, Lustre).
type clock struct {
	asked  atomic.Bool
	offset atomic.Pointer[time.Duration] // nil before it is known
}

// Offset returns by how much, at least, the server's clock is ahead of this node's. It is known
// after the first record that this node publishes, unless the file system does not provide
// modification times.
func (d *Dir) Offset() (offset time.Duration, known bool) {
	if learned := d.via.clock.offset.Load(); learned != nil {
		return *learned, true
	}
	return 0, false
}

// learn determines the offset from a file that this node has written between began and now. Only
// the first call has an effect. The offset stays unknown if the file system does not provide
// modification times.
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

// OffsetOf returns how far another clock is ahead of this node's, if the other clock showed the
// time written at some moment between began and ended, which are times of this node. The result is
// the smallest possible value, so that a slow file system is not reported as a wrong clock.
func OffsetOf(written, began, ended time.Time) time.Duration {
	// The monotonic clock is removed, because the server's time has none.
	began, ended = began.Round(0), ended.Round(0)
	return max(written.Sub(ended), min(written.Sub(began), 0))
}
