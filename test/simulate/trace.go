package simulate

import (
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// TracedCall is one call of one daemon into the shared file system. Its times are from the start of
// all daemons.
type TracedCall struct {
	Node     int
	Op       string
	Path     string // relative to the run directory, without random parts
	From, To time.Duration
}

// callTrace records the calls of all daemons. Its methods may be called from any goroutine; those
// of a nil trace do nothing.
type callTrace struct {
	mu    sync.Mutex
	calls []TracedCall
}

// addCall adds a call that has ended.
func (t *callTrace) addCall(call TracedCall) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
}

// randomTag matches the random end of the name of a temporary file or directory.
var randomTag = regexp.MustCompile(`[.-][0-9a-f]{32}`)

// findChain returns the calls between two times that waited for each other, in order. It begins at
// the last one: the predecessor of a call is the call that ended last before it began, because its
// result, or a notification of it, is what the daemon has most probably waited for. The paths are
// made relative to runDir.
func (t *callTrace) findChain(since, until time.Duration, runDir string) (chain []TracedCall) {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	calls := slices.Clone(t.calls)
	t.mu.Unlock()
	calls = slices.DeleteFunc(calls, func(c TracedCall) bool { return c.From < since || c.To > until })
	slices.SortFunc(calls, func(a, b TracedCall) int { return int(a.To - b.To) })
	for _, c := range slices.Backward(calls) {
		if len(chain) > 0 && c.To > chain[len(chain)-1].From {
			continue
		}
		if relative, err := filepath.Rel(runDir, c.Path); err == nil {
			c.Path = randomTag.ReplaceAllString(relative, "")
		}
		chain = append(chain, c)
	}
	slices.Reverse(chain)
	return chain
}
