package signal

import (
	"context"
	"slices"
	"sync"
	"time"
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
	ops
)

var opWords = [ops]string{
	"open", "list", "read", "write", "sync", "close", "rename", "link", "symlink", "readlink", "mkdir", "stat", "statfs", "remove",
}

// String returns the name of the kind, for records and messages.
func (o Op) String() string { return opWords[o] }

// Ops returns all kinds, in the order in which they are shown.
func Ops() []Op {
	all := make([]Op, ops)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// Meter counts and times the file system calls of one daemon, and keeps track of pending requests.
// Its zero value is ready for use; its methods are safe for concurrent use.
type Meter struct {
	mu      sync.Mutex
	spent   [ops]Spent        // indexed by Op, guarded by mu
	retries int64             // guarded by mu
	slowest SlowCall          // guarded by mu
	pending map[*request]bool // pending requests, guarded by mu
	settled chan struct{}     // closed when nothing is pending; nil if no caller waits, guarded by mu
}

// request is an operation on the file system, which consists of one or more calls.
type request struct {
	op    string
	path  string
	began time.Time
}

// SlowCall is a call and its duration.
type SlowCall struct {
	Op   string        `json:"op"`
	Path string        `json:"path"`
	Took time.Duration `json:"took_ns"`
	// Pending reports that it has not returned yet: then it may be several calls.
	Pending bool `json:"pending,omitempty"`
}

// Stats are the statistics of a daemon's file system calls.
type Stats struct {
	Calls   int64            `json:"calls"`
	ByKind  map[string]int64 `json:"by_kind"`
	Retries int64            `json:"retries"` // polls, reads and renames that were repeated
	Busy    time.Duration    `json:"busy_ns"` // total duration of all calls that have returned
	Slowest SlowCall         `json:"slowest"`
}

// Stats returns the statistics so far, including calls that have not returned.
func (m *Meter) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{ByKind: make(map[string]int64), Retries: m.retries, Slowest: m.slowest}
	for _, spent := range m.spentLocked() {
		s.ByKind[spent.Op.String()] = spent.Calls
		s.Calls += spent.Calls
		s.Busy += spent.Busy
	}
	if oldest, there := m.oldest(); there {
		if age := time.Since(oldest.began); age > s.Slowest.Took {
			s.Slowest = SlowCall{Op: oldest.op, Path: oldest.path, Took: age, Pending: true}
		}
	}
	return s
}

// Spent are the statistics of one kind of calls.
type Spent struct {
	Op    Op
	Calls int64
	Busy  time.Duration // total duration of the calls that have returned
}

// Spent returns the statistics so far, of each kind with any calls.
func (m *Meter) Spent() []Spent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spentLocked()
}

func (m *Meter) spentLocked() []Spent {
	return slices.DeleteFunc(slices.Clone(m.spent[:]), func(s Spent) bool { return s.Calls == 0 })
}

// Silence returns how long the oldest pending request has been pending. The file system has not
// answered for at least that time. It returns 0 if nothing is pending.
func (m *Meter) Silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if oldest, there := m.oldest(); there {
		return time.Since(oldest.began)
	}
	return 0
}

// oldest returns the oldest pending request. mu must be held.
func (m *Meter) oldest() (oldest request, there bool) {
	for r := range m.pending {
		if !there || r.began.Before(oldest.began) {
			oldest, there = *r, true
		}
	}
	return oldest, there
}

// Settle waits until no request is pending, or ctx ends. It reports whether no request is pending.
func (m *Meter) Settle(ctx context.Context) bool {
	m.mu.Lock()
	if len(m.pending) == 0 {
		m.mu.Unlock()
		return true
	}
	if m.settled == nil {
		m.settled = make(chan struct{})
	}
	settled := m.settled
	m.mu.Unlock()
	select {
	case <-settled:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin records the start of a request.
func (m *Meter) begin(op, path string) *request {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = make(map[*request]bool)
	}
	r := &request{op, path, time.Now()}
	m.pending[r] = true
	return r
}

// end records the end of a request.
func (m *Meter) end(r *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, r)
	if len(m.pending) == 0 && m.settled != nil {
		close(m.settled)
		m.settled = nil
	}
}

// Enter counts a call, and returns the present time.
func (m *Meter) Enter(op Op, _ string) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent[op].Op = op
	m.spent[op].Calls++
	return time.Now(), nil
}

// Leave records the duration of a call that began at entered.
func (m *Meter) Leave(op Op, path string, entered time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := time.Since(entered)
	m.spent[op].Busy += took
	if took > m.slowest.Took {
		m.slowest = SlowCall{Op: op.String(), Path: path, Took: took}
	}
}

// retry counts a repeated request.
func (m *Meter) retry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retries++
}
