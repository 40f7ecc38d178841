package signal

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Op is a kind of file system call, as the kernel distinguishes them.
type Op string

// The kinds of calls. A listing is one call, regardless of the number of requests to the server, and
// so is the removal of a tree.
const (
	OpOpen     Op = "open"
	OpList     Op = "list"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpSync     Op = "sync"
	OpClose    Op = "close"
	OpRename   Op = "rename"
	OpLink     Op = "link"
	OpSymlink  Op = "symlink"
	OpReadlink Op = "readlink"
	OpMkdir    Op = "mkdir"
	OpStat     Op = "stat"
	OpStatfs   Op = "statfs"
	OpRemove   Op = "remove"
)

// OpStats are the statistics of one kind of calls.
type OpStats struct {
	Op    Op
	Calls int64
	Busy  time.Duration // total duration of the calls that have returned
}

// CallMeter counts and times the file system calls of one daemon, and keeps track of pending
// requests. Its zero value is ready for use; its methods are safe for concurrent use.
type CallMeter struct {
	mu      sync.Mutex // guards all fields below
	opStats map[Op]OpStats
	retries int64                    // requests that were repeated
	slowest record.SlowCall          // of the calls that have returned
	pending map[*pendingRequest]bool // requests that have not ended
	calls   int                      // calls that have not returned
	idle    chan struct{}            // closed when nothing is pending; nil if no caller waits
}

// pendingRequest is an operation on the file system, which consists of one or more calls.
type pendingRequest struct {
	op        string
	path      string
	startedAt time.Time
}

// OpStats returns the statistics so far, of each kind with any calls, sorted by it.
func (m *CallMeter) OpStats() []OpStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.opStats), func(a, b OpStats) int { return cmp.Compare(a.Op, b.Op) })
}

// CallStats returns the statistics so far, including calls that have not returned.
func (m *CallMeter) CallStats() record.CallStats {
	s := record.CallStats{ByKind: make(map[string]int64)}
	for _, spent := range m.OpStats() {
		s.ByKind[string(spent.Op)] = spent.Calls
		s.Calls += spent.Calls
		s.Busy += spent.Busy
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Retries, s.Slowest = m.retries, m.slowest
	if oldest := m.oldestLocked(); oldest != nil && time.Since(oldest.startedAt) > s.Slowest.Took {
		s.Slowest = record.SlowCall{
			Op: oldest.op, Path: oldest.path, Took: time.Since(oldest.startedAt), Pending: true,
		}
	}
	return s
}

// UnresponsiveFor returns how long the oldest pending request has been pending. The file system has
// not answered for at least that time. It returns 0 if nothing is pending.
func (m *CallMeter) UnresponsiveFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if oldest := m.oldestLocked(); oldest != nil {
		return time.Since(oldest.startedAt)
	}
	return 0
}

// oldestLocked returns the oldest pending request, or nil. mu must be held.
func (m *CallMeter) oldestLocked() (oldest *pendingRequest) {
	for r := range m.pending {
		if oldest == nil || r.startedAt.Before(oldest.startedAt) {
			oldest = r
		}
	}
	return oldest
}

// AwaitIdle waits until no request or call is pending, or ctx ends. It reports whether none is
// pending.
func (m *CallMeter) AwaitIdle(ctx context.Context) bool {
	var idle chan struct{}
	m.update(func() {
		if m.idle == nil {
			m.idle = make(chan struct{})
		}
		idle = m.idle
	})
	select {
	case <-idle:
		return true
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending) == 0 && m.calls == 0
}

// update makes a change, and wakes the callers of [CallMeter.AwaitIdle] if nothing is pending then.
func (m *CallMeter) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if m.idle != nil && len(m.pending) == 0 && m.calls == 0 {
		close(m.idle)
		m.idle = nil
	}
}

func (m *CallMeter) beginRequest(op, path string) *pendingRequest {
	r := &pendingRequest{op, path, time.Now()}
	m.update(func() {
		if m.pending == nil {
			m.pending = make(map[*pendingRequest]bool)
		}
		m.pending[r] = true
	})
	return r
}

func (m *CallMeter) endRequest(r *pendingRequest) { m.update(func() { delete(m.pending, r) }) }

// BeginCall counts a call, and returns the present time.
func (m *CallMeter) BeginCall(op Op, _ string) (time.Time, error) {
	m.update(func() {
		if m.opStats == nil {
			m.opStats = make(map[Op]OpStats)
		}
		m.opStats[op] = OpStats{op, m.opStats[op].Calls + 1, m.opStats[op].Busy}
		m.calls++
	})
	return time.Now(), nil
}

// EndCall records the duration of a call that began at entered.
func (m *CallMeter) EndCall(op Op, path string, entered time.Time) {
	took := time.Since(entered)
	m.update(func() {
		m.opStats[op] = OpStats{op, m.opStats[op].Calls, m.opStats[op].Busy + took}
		if took > m.slowest.Took {
			m.slowest = record.SlowCall{Op: string(op), Path: path, Took: took}
		}
		m.calls--
	})
}

func (m *CallMeter) countRetry() { m.update(func() { m.retries++ }) }
