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

// Chronicle collects the events of all nodes on the head. The exported fields must be set before
// the call of Follow.
type Chronicle struct {
	Dir    *signal.Dir
	Nodes  *signal.Watch // watch of the directory Nodes
	Size   int           // number of nodes in the job
	Silent time.Duration // timeout for reading a record
	Trail  *trail.Trail
	Log    *zap.Logger

	mu     sync.Mutex
	read   map[string]bool      // names of the records that were read; used only by Follow
	events []signal.EventRecord // guarded by mu
	looks  int                  // number of the last listing with no unread events; guarded by mu
}

// Keep adds an event of the head itself.
func (c *Chronicle) Keep(record signal.EventRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, record)
}

// caughtUp reports whether all events in the given listing were read.
func (c *Chronicle) caughtUp(look int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks >= look
}

// Told returns the events so far, sorted by node. The events of one node are in the order in which
// it has reported them.
func (c *Chronicle) Told() []signal.EventRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := slices.Clone(c.events)
	slices.SortStableFunc(events, func(a, b signal.EventRecord) int { return cmp.Compare(a.Rank, b.Rank) })
	return events
}

// BadNodes returns the hosts that a verdict blames, together with the hosts that have a GPU that is
// unfit for another job. The latter are included whatever the outcome of the run is. The names of
// the event records are sufficient for that, so their number is not limited by mostKept.
func (c *Chronicle) BadNodes(hosts []string, hostOf func(rank int) string) []string {
	var unfit []int
	for rank, numbers := range c.Nodes.Last().Events() {
		if numbers[0] == signal.UnfitEvent {
			unfit = append(unfit, rank)
		}
	}
	for _, record := range c.Told() { // events of the head may not be in a listing yet
		if event, ok := gpu.ReadJudged(record.Detail); ok && event.Next == gpu.NextUnfit {
			unfit = append(unfit, record.Rank)
		}
	}
	slices.Sort(unfit)
	hosts = slices.Clone(hosts)
	for _, rank := range unfit {
		if host := hostOf(rank); host != "" && !slices.Contains(hosts, host) { // the launcher may not provide the host
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// mostKept is the maximum number of events in a result.
const mostKept = 100

// Follow reads the events of the other nodes until ctx ends. It runs in its own goroutine, so that
// a hundred events on a slow file system do not delay the head's reaction to the failure that they
// belong to.
func (c *Chronicle) Follow(ctx context.Context) {
	_, _ = c.Nodes.Follow(ctx, func(l signal.Listing) bool {
		c.look(ctx, l)
		return false
	})
}

// look reads the events that are new in a listing.
func (c *Chronicle) look(ctx context.Context, l signal.Listing) {
	for rank, numbers := range l.Events() {
		if rank == 0 {
			continue // the head receives its own events by Cards.Witness
		}
		for _, number := range numbers {
			name := signal.EventName(rank, c.Size, number)
			if c.read[name] || len(c.read) >= mostKept {
				continue
			}
			// Read the record. A stalled read is repeated after the next listing.
			reading, cancel := context.WithTimeoutCause(ctx, c.Silent, health.ErrDeadline)
			var record signal.EventRecord
			err := c.Dir.Read(reading, signal.Nodes, name, &record)
			cancel()
			if ctx.Err() != nil || signal.Stalled(err) {
				return // the next listing shows the record again
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
	// Everything in this listing was read.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = l.Looks
}

// CatchUp waits until all events of the given listing were read, and no longer than within.
func (c *Chronicle) CatchUp(ctx context.Context, look int, within time.Duration) {
	for end := time.Now().Add(within); !c.caughtUp(look) && time.Now().Before(end); {
		if !pause.For(ctx, readPause) {
			return
		}
	}
}

// readPause is the interval at which CatchUp polls.
const readPause = 5 * time.Millisecond
