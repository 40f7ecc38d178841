package cards

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Chronicle is what the head knows of what has befallen the nodes. What is
// exported is to be set before Follow.
type Chronicle struct {
	Dir    *signal.Dir
	Nodes  *signal.Watch // over Nodes
	Size   int           // of the job
	Silent time.Duration // how long a record is waited for
	Trail  *trail.Trail
	Log    *zap.Logger

	mu     sync.Mutex
	read   map[string]bool      // Follow's own
	events []signal.EventRecord // guarded by mu
	looks  int                  // the last one of which all was read; guarded by mu
}

// Keep takes in an event of the head's own.
func (c *Chronicle) Keep(record signal.EventRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, record)
}

func (c *Chronicle) caughtUp(look int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks >= look
}

// Told are the events so far, by rank and in the order in which each has told
// of its own.
func (c *Chronicle) Told() []signal.EventRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := slices.Clone(c.events)
	slices.SortStableFunc(events, func(a, b signal.EventRecord) int { return cmp.Compare(a.Rank, b.Rank) })
	return events
}

// BadNodes adds to the hosts that a verdict speaks against those with a GPU that
// is not fit for another job, however this one has ended. The names of their
// events tell, so that there may be any number of them.
func (c *Chronicle) BadNodes(hosts []string, hostOf func(rank int) string) []string {
	var unfit []int
	for rank, numbers := range c.Nodes.Last().Events() {
		if numbers[0] == signal.UnfitEvent {
			unfit = append(unfit, rank)
		}
	}
	for _, record := range c.Told() { // the head's own may not have been listed yet
		if event, ok := gpu.ReadJudged(record.Detail); ok && event.Next == gpu.NextUnfit {
			unfit = append(unfit, record.Rank)
		}
	}
	slices.Sort(unfit)
	hosts = slices.Clone(hosts)
	for _, rank := range unfit {
		if host := hostOf(rank); host != "" && !slices.Contains(hosts, host) { // a launcher may not tell
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// mostKept is how many events a result bears.
const mostKept = 100

// Follow reads what befalls the nodes, on its own: a hundred events on a slow
// share must not keep the head from the failure that comes with them.
func (c *Chronicle) Follow(ctx context.Context) {
	_, _ = c.Nodes.Follow(ctx, func(l signal.Listing) bool {
		c.look(ctx, l)
		return false
	})
}

// look reads what a look at Nodes shows for the first time.
func (c *Chronicle) look(ctx context.Context, l signal.Listing) {
	for rank, numbers := range l.Events() {
		if rank == 0 {
			continue // our own: see Cards.Witness
		}
		for _, number := range numbers {
			name := signal.EventName(rank, c.Size, number)
			if c.read[name] || len(c.read) >= mostKept {
				continue
			}
			reading, cancel := context.WithTimeoutCause(ctx, c.Silent, health.ErrDeadline)
			var record signal.EventRecord
			err := c.Dir.Read(reading, signal.Nodes, name, &record)
			cancel()
			if ctx.Err() != nil || signal.Stalled(err) {
				return // the next look shows it again
			}
			if c.read == nil {
				c.read = make(map[string]bool)
			}
			c.read[name] = true
			if err != nil {
				c.Log.Warn("cannot read what befell a node", zap.Int("of", rank), zap.Error(err))
				continue
			}
			c.Trail.Event(trail.Befell, trail.Fields{Of: &rank, What: record.What})
			c.Keep(record)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = l.Looks
}

// CatchUp waits for no longer than within until all is read that a look has shown.
func (c *Chronicle) CatchUp(ctx context.Context, look int, within time.Duration) {
	for end := time.Now().Add(within); !c.caughtUp(look) && time.Now().Before(end); {
		if !pause.For(ctx, readPause) {
			return
		}
	}
}

// readPause lies between two looks at what was read.
const readPause = 5 * time.Millisecond
