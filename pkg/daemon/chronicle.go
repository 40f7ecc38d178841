package daemon

import (
	"cmp"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/signal"
)

// chronicle is what the head knows of what has befallen the nodes.
type chronicle struct {
	mu     sync.Mutex
	read   map[string]bool      // followEvents' own
	events []signal.EventRecord // guarded by mu
	looks  int                  // the last one of which all was read; guarded by mu
}

func (c *chronicle) keep(record signal.EventRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, record)
}

func (c *chronicle) caughtUp(look int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks >= look
}

// told are the events so far, by rank and in the order in which each has told
// of its own.
func (c *chronicle) told() []signal.EventRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := slices.Clone(c.events)
	slices.SortStableFunc(events, func(a, b signal.EventRecord) int { return cmp.Compare(a.Rank, b.Rank) })
	return events
}
