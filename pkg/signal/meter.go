package signal

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Op is a kind of call into the share.
type Op int

// The kinds of calls, as the kernel knows them. A listing is one call, however
// many requests the kernel makes of it.
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
	OpRemove // of a whole tree is one
	ops
)

var opWords = [ops]string{
	"open", "list", "read", "write", "sync", "close", "rename", "link", "symlink", "readlink", "mkdir", "stat", "statfs", "remove",
}

// String returns the word for the kind in records and on the screen.
func (o Op) String() string { return opWords[o] }

// Ops returns all kinds, in the order in which they are shown.
func Ops() []Op {
	all := make([]Op, ops)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// Meter counts and times the calls of one daemon into the share, and knows
// what has been asked for and has not been answered. Its zero value is ready;
// its methods may be called from any goroutine.
type Meter struct {
	mu      sync.Mutex
	spent   [ops]Spent        // by kind, guarded by mu
	retries int64             // guarded by mu
	slowest SlowCall          // guarded by mu
	pending map[*request]bool // what is asked for, guarded by mu
	settled chan struct{}     // closed when nothing is pending; nil where nobody waits, guarded by mu
}

// request is something asked of the share, which takes one call or several.
type request struct {
	op    string
	path  string
	began time.Time
}

// SlowCall is one call and how long it took.
type SlowCall struct {
	Op   string        `json:"op"`
	Path string        `json:"path"`
	Took time.Duration `json:"took_ns"`
	// Pending says that it has not come back yet: then it may be several calls.
	Pending bool `json:"pending,omitempty"`
}

// Stats is what a daemon has asked of the share.
type Stats struct {
	Calls   int64            `json:"calls"`
	ByKind  map[string]int64 `json:"by_kind"`
	Retries int64            `json:"retries"` // looks, reads and renames that had to be made again
	Busy    time.Duration    `json:"busy_ns"` // sum of the times of all calls that came back
	Slowest SlowCall         `json:"slowest"`
}

// Stats returns the counts so far; calls that have not come back are in them.
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

// Spent is what the calls of one kind have come to.
type Spent struct {
	Op    Op
	Calls int64
	Busy  time.Duration // of those that came back
}

// Spent returns the counts so far, of each kind that there was any call of.
func (m *Meter) Spent() []Spent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spentLocked()
}

func (m *Meter) spentLocked() []Spent {
	return slices.DeleteFunc(slices.Clone(m.spent[:]), func(s Spent) bool { return s.Calls == 0 })
}

// Silence returns for how long what was asked for first is under way: for how
// long, at least, the share has not answered. 0 where nothing is.
func (m *Meter) Silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if oldest, there := m.oldest(); there {
		return time.Since(oldest.began)
	}
	return 0
}

// oldest needs mu.
func (m *Meter) oldest() (oldest request, there bool) {
	for r := range m.pending {
		if !there || r.began.Before(oldest.began) {
			oldest, there = *r, true
		}
	}
	return oldest, there
}

// Settle waits until all that was asked for is answered, or ctx ends, and
// tells which.
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

// begin notes that something is asked for.
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

// end notes that it is answered.
func (m *Meter) end(r *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, r)
	if len(m.pending) == 0 && m.settled != nil {
		close(m.settled)
		m.settled = nil
	}
}

// Enter counts a call.
func (m *Meter) Enter(op Op, _ string) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent[op].Op = op
	m.spent[op].Calls++
	return time.Now(), nil
}

// Leave times it.
func (m *Meter) Leave(op Op, path string, entered time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := time.Since(entered)
	m.spent[op].Busy += took
	if took > m.slowest.Took {
		m.slowest = SlowCall{Op: op.String(), Path: path, Took: took}
	}
}

// retry counts something that had to be asked for again.
func (m *Meter) retry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retries++
}
