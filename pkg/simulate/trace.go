package simulate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/textutil/lazyregexp"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TracedCall is one call of one daemon into the shared file system. Its times are from the start of
// all daemons.
type TracedCall struct {
	Node int           `json:"rank"`
	Op   string        `json:"op"`
	Path string        `json:"path"` // relative to the run directory, without random parts
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// callTrace records the calls of all daemons. Its methods may be called from any goroutine; those
// of a nil trace do nothing.
type callTrace struct {
	mu    sync.Mutex
	calls []TracedCall
}

// addCall adds a call that has ended.
func (t *callTrace) addCall(node int, op signal.Op, path string, from, to time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, TracedCall{Node: node, Op: op.String(), Path: path, From: from, To: to})
}

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
			c.Path = randomTag().ReplaceAllString(relative, "")
		}
		chain = append(chain, c)
	}
	slices.Reverse(chain)
	return chain
}

// randomTag matches the random end of the name of a temporary file or directory.
var randomTag = lazyregexp.CompileLazily(`[.-][0-9a-f]{32}`)

// formatChain returns a table of the calls of a chain. A call that began later than a tenth of its
// duration after its predecessor shows for how long the daemons did something else.
func formatChain(title string, chain []TracedCall) string {
	if len(chain) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d calls that waited for each other\n", title, len(chain))
	last := chain[0].From
	for i, c := range chain {
		fmt.Fprintf(&b, "  %2d  %7.1f ms  node %d  %-8s  %s", i+1, c.From.Seconds()*1000, c.Node, c.Op, c.Path)
		if idle := c.From - last; idle > (c.To-c.From)/10 {
			fmt.Fprintf(&b, "  (%.1f ms after the call before)", idle.Seconds()*1000)
		}
		b.WriteByte('\n')
		last = c.To
	}
	return b.String() + "\n"
}
