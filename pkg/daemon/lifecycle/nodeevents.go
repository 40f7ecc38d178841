package lifecycle

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeEvents reports the events of this node that do not end the run to the head, which collects
// those of all nodes in a [NodeEventLog].
type NodeEvents struct {
	*Publisher
	Host   string
	Header func() record.Header
	Size   int // number of nodes in the job
	// OnEvent receives the events of this node; nil unless the node is the head. It must be set before
	// the first event.
	OnEvent func(record.Event)

	mu             sync.Mutex
	count          int             // number of events that count for nodeEventLimit; guarded by mu
	number         int             // that of the newest published one; guarded by mu
	unfitPublished bool            // signal.UnfitEventNumber was published; guarded by mu
	silent         map[string]bool // children whose silence was published; guarded by mu
}

// Limits of the reported events. A node reports at most maxNodeEvents, or fewer if all nodes
// together would exceed maxJobEvents: a faulty driver causes events on all GPUs at once, and the
// head reads only maxResultEvents. Further events are only in the node's own event log. The
// event that makes a GPU unfit is always reported, and so is the end of a silence whose beginning
// was.
const (
	maxNodeEvents = 16
	minNodeEvents = 2
	maxJobEvents  = 1024
)

// nodeEventLimit returns the maximum number of events that each of size nodes reports.
func nodeEventLimit(size int) int {
	return max(minNodeEvents, min(maxNodeEvents, maxJobEvents/size))
}

// Warn logs a warning and reports it as an event, which status and the result show.
func (n *NodeEvents) Warn(words string) {
	n.Log.Warn(words)
	n.Events.WriteEvent(eventlog.Warned, eventlog.Fields{FailureFields: eventlog.FailureFields{What: words}})
	n.Report(record.Event{Header: n.Header(), Message: words})
}

// Report reports an event.
func (n *NodeEvents) Report(rec record.Event) { n.report(rec, false) }

// report reports an event, which may make a GPU unfit for another job.
func (n *NodeEvents) report(rec record.Event, makesUnfit bool) {
	n.mu.Lock()
	number, isDue := n.nextNumber(rec.Silence, makesUnfit)
	n.mu.Unlock()
	if !isDue {
		return
	}
	if n.OnEvent != nil {
		n.OnEvent(rec)
	}
	n.Publisher.Report(signal.EventName(n.NodeIndex, n.Size, number), &rec, false)
}

// nextNumber returns the number of the next event, which may be about a silence or make a GPU unfit.
// isDue is false if the event is not to be published. mu must be held.
func (n *NodeEvents) nextNumber(silence *record.Silence, makesUnfit bool) (number int, isDue bool) {
	switch {
	case makesUnfit && !n.unfitPublished:
		n.unfitPublished = true
		return signal.UnfitEventNumber, true
	case silence != nil && silence.Error == "":
		isDue = n.silent[silence.Child]
		delete(n.silent, silence.Child)
	default:
		n.count++
		isDue = n.count <= nodeEventLimit(n.Size)
	}
	if !isDue {
		return 0, false
	}
	if silence != nil && silence.Error != "" {
		if n.silent == nil {
			n.silent = make(map[string]bool)
		}
		n.silent[silence.Child] = true
	}
	n.number++
	return n.number, true
}

// NodeEventLog collects the events of all nodes on the head.
type NodeEventLog struct {
	Dir         *signal.Dir
	Nodes       *signal.Watch // watch of the directory Nodes
	Size        int           // number of nodes in the job
	ReadTimeout time.Duration // timeout for reading a record
	EventLog    *eventlog.EventLog
	Log         *zap.Logger

	mu          sync.Mutex
	readNames   map[string]bool   // names of the records that were read; used only by FollowEvents
	events      []record.Event    // guarded by mu
	silent      []silentProcess   // those that are silent now, the first one first; guarded by mu
	unlogged    []unloggedSilence // in the order of their arrival; guarded by mu
	warnings    int               // number of those that were logged; guarded by mu
	lastListing int               // number of the last listing with no unread events; guarded by mu
}

// AddEvent adds an event of a node. Those of the head itself are kept whatever their number is.
func (c *NodeEventLog) AddEvent(rec record.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec.NodeIndex == 0 || len(c.events) < maxResultEvents {
		c.events = append(c.events, rec)
	}
	if rec.Silence != nil {
		c.addSilence(rec)
	}
}

// isSilent reports whether a process of a node is silent.
func (c *NodeEventLog) isSilent(node int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.silent, func(s silentProcess) bool { return s.node == node })
}

// AllEvents returns the events so far, sorted by node. The events of one node are in the order in
// which it has reported them.
func (c *NodeEventLog) AllEvents() []record.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := slices.Clone(c.events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.NodeIndex, b.NodeIndex) })
	return events
}

// BadNodes returns the hosts that a verdict blames, together with the hosts that have a GPU that is
// unfit for another job. The latter are included whatever the outcome of the run is. The names of
// the event records are sufficient for that, so their number is not limited by maxResultEvents.
func (c *NodeEventLog) BadNodes(hosts []string, hostOf func(node int) string) []string {
	var unfit []int
	for node, numbers := range c.Nodes.LastListing().EventNumbers() {
		if numbers[0] == signal.UnfitEventNumber {
			unfit = append(unfit, node)
		}
	}
	for _, record := range c.AllEvents() { // events of the head may not be in a listing yet
		if event, ok := gpu.DecodeEvent(record.Detail); ok && event.Next == gpu.NextUnfit {
			unfit = append(unfit, record.NodeIndex)
		}
	}
	slices.Sort(unfit)
	hosts = slices.Clone(hosts)
	for _, node := range unfit {
		// the launcher may not provide the host
		if host := hostOf(node); host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// maxResultEvents is the maximum number of events in a result.
const maxResultEvents = 100

// FollowEvents reads the events of the other nodes until ctx ends. It runs in its own goroutine, so
// that a hundred events on a slow file system do not delay the head's reaction to the failure that
// they belong to.
func (c *NodeEventLog) FollowEvents(ctx context.Context) {
	_, _ = c.Nodes.FollowListings(ctx, func(l signal.Listing) bool {
		c.readNewEvents(ctx, l)
		return false
	})
}

// readNewEvents reads the events that are new in a listing.
func (c *NodeEventLog) readNewEvents(ctx context.Context, l signal.Listing) {
	for node, numbers := range l.EventNumbers() {
		if node == 0 {
			continue // the head receives its own events by NodeEvents.OnEvent
		}
		for _, number := range numbers {
			name := signal.EventName(node, c.Size, number)
			// After the limit, an event may still be the end of a silence.
			isLate := len(c.readNames) >= maxResultEvents && !c.isSilent(node)
			if c.readNames[name] || isLate {
				continue
			}
			// Read the record. A stalled read is repeated after the next listing.
			reading, cancel := context.WithTimeoutCause(ctx, c.ReadTimeout, health.ErrDeadline)
			var rec record.Event
			err := c.Dir.ReadRecord(reading, signal.NodesDir, name, &rec)
			cancel()
			if ctx.Err() != nil || signal.IsStalled(err) {
				return // the next listing shows the record again
			}
			if c.readNames == nil {
				c.readNames = make(map[string]bool)
			}
			c.readNames[name] = true
			if err != nil {
				c.Log.Warn("cannot read a node's events", zap.Int("of", node), zap.Error(err))
				continue
			}
			received := eventlog.Warned
			switch {
			case rec.Silence != nil:
				received = eventlog.ChildSilent
			case rec.Detail != nil:
				received = eventlog.GPUEventReceived
			}
			c.EventLog.WriteEvent(received,
				eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: &node, What: rec.Message}})
			c.AddEvent(rec)
		}
	}
	// Everything in this listing was read.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastListing = l.Polls
}

// AwaitListing waits until all events of the given listing were read, and no longer than within.
func (c *NodeEventLog) AwaitListing(ctx context.Context, look int, within time.Duration) {
	for end := time.Now().Add(within); time.Now().Before(end); {
		c.mu.Lock()
		read := c.lastListing >= look
		c.mu.Unlock()
		if read || !ctxutil.SleepContext(ctx, catchUpInterval) {
			return
		}
	}
}

// catchUpInterval is the interval at which AwaitListing polls.
const catchUpInterval = 5 * time.Millisecond
