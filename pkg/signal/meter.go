package signal

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Op is a kind of file system call.
type Op int

// The kinds of calls, as the kernel distinguishes them. A listing is one call, regardless of the
// number of requests to the server.
const (
	OpOpen Op = iota
	OpList
	OpRead
	OpWrite
	OpSync
	OpClose
	OpRename
	OpLink
	OpSymlink
	OpReadlink
	OpMkdir
	OpStat
	OpStatfs
	OpRemove // a whole tree is one call
	opCount
)

var opNames = [opCount]string{
	"open", "list", "read", "write", "sync", "close", "rename", "link", "symlink", "readlink", "mkdir", "stat", "statfs", "remove",
}

// String returns the name of the kind, for records and messages.
func (o Op) String() string { return opNames[o] }

// AllOps returns all kinds, in the order in which they are shown.
func AllOps() []Op {
	all := make([]Op, opCount)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// CallMeter counts and times the file system calls of one daemon, and keeps track of pending
// requests. Its zero value is ready for use; its methods are safe for concurrent use.
type CallMeter struct {
	mu      sync.Mutex
	opStats [opCount]OpStats         // indexed by Op, guarded by mu
	retries int64                    // guarded by mu
	slowest record.SlowCall          // guarded by mu
	pending map[*pendingRequest]bool // pending requests, guarded by mu
	calls   int                      // calls that have not returned, guarded by mu
	// closed when nothing is pending; nil if no caller waits, guarded by mu
	idle chan struct{}
}

// pendingRequest is an operation on the file system, which consists of one or more calls.
type pendingRequest struct {
	op        string
	path      string
	startedAt time.Time
}

// CallStats returns the statistics so far, including calls that have not returned.
func (m *CallMeter) CallStats() record.CallStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := record.CallStats{ByKind: make(map[string]int64), Retries: m.retries, Slowest: m.slowest}
	for _, spent := range m.opStatsLocked() {
		s.ByKind[spent.Op.String()] = spent.Calls
		s.Calls += spent.Calls
		s.Busy += spent.Busy
	}
	if oldest, there := m.oldestRequest(); there {
		if age := time.Since(oldest.startedAt); age > s.Slowest.Took {
			s.Slowest = record.SlowCall{Op: oldest.op, Path: oldest.path, Took: age, Pending: true}
		}
	}
	return s
}

// OpStats are the statistics of one kind of calls.
type OpStats struct {
	Op    Op
	Calls int64
	Busy  time.Duration // total duration of the calls that have returned
}

// OpStats returns the statistics so far, of each kind with any calls.
func (m *CallMeter) OpStats() []OpStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opStatsLocked()
}

func (m *CallMeter) opStatsLocked() []OpStats {
	return slices.DeleteFunc(slices.Clone(m.opStats[:]), func(s OpStats) bool { return s.Calls == 0 })
}

// UnresponsiveFor returns how long the oldest pending request has been pending. The file system has
// not answered for at least that time. It returns 0 if nothing is pending.
func (m *CallMeter) UnresponsiveFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if oldest, there := m.oldestRequest(); there {
		return time.Since(oldest.startedAt)
	}
	return 0
}

// oldestRequest returns the oldest pending request. mu must be held.
func (m *CallMeter) oldestRequest() (oldest pendingRequest, there bool) {
	for r := range m.pending {
		if !there || r.startedAt.Before(oldest.startedAt) {
			oldest, there = *r, true
		}
	}
	return oldest, there
}

// AwaitIdle waits until no request or call is pending, or ctx ends. It reports whether none is
// pending.
func (m *CallMeter) AwaitIdle(ctx context.Context) bool {
	m.mu.Lock()
	if m.isIdleLocked() {
		m.mu.Unlock()
		return true
	}
	if m.idle == nil {
		m.idle = make(chan struct{})
	}
	settled := m.idle
	m.mu.Unlock()
	select {
	case <-settled:
		return true
	case <-ctx.Done():
		return false
	}
}

// beginRequest records the start of a request.
func (m *CallMeter) beginRequest(op, path string) *pendingRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = make(map[*pendingRequest]bool)
	}
	r := &pendingRequest{op, path, time.Now()}
	m.pending[r] = true
	return r
}

// endRequest records the end of a request.
func (m *CallMeter) endRequest(r *pendingRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, r)
	m.reportIdleLocked()
}

func (m *CallMeter) isIdleLocked() bool { return len(m.pending) == 0 && m.calls == 0 }

// reportIdleLocked wakes the callers of [CallMeter.AwaitIdle] if nothing is pending.
func (m *CallMeter) reportIdleLocked() {
	if m.isIdleLocked() && m.idle != nil {
		close(m.idle)
		m.idle = nil
	}
}

// BeginCall counts a call, and returns the present time.
func (m *CallMeter) BeginCall(op Op, _ string) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opStats[op].Op = op
	m.opStats[op].Calls++
	m.calls++
	return time.Now(), nil
}

// EndCall records the duration of a call that began at entered.
func (m *CallMeter) EndCall(op Op, path string, entered time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := time.Since(entered)
	m.opStats[op].Busy += took
	if took > m.slowest.Took {
		m.slowest = record.SlowCall{Op: op.String(), Path: path, Took: took}
	}
	m.calls--
	m.reportIdleLocked()
}

// countRetry counts a repeated request.
func (m *CallMeter) countRetry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retries++
}
