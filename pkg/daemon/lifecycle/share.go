package lifecycle

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// RoundTripProbe has the head's measurements of the file system: the delay of records, and the
// numbers of calls.
type RoundTripProbe struct {
	*Publisher
	JoinTimes *eventlog.JoinTimes // times at which the answers to the job record have arrived
	// ReadTimeout is the timeout for reading a record that is only for information.
	ReadTimeout time.Duration

	roundTrips atomic.Pointer[[]signal.RoundTrip] // nil before they are known
}

// roundTripSample is the number of nodes for which the canary's round trip is measured: each costs
// the head the reading of a record.
const roundTripSample = 4

// ReadJoined reads the answer of a node that has joined.
func (c *RoundTripProbe) ReadJoined(ctx context.Context, node int) (joined signal.JoinedRecord, err error) {
	err = c.readRecord(ctx, node, signal.StateJoined, &joined)
	return joined, err
}

func (c *RoundTripProbe) readRecord(ctx context.Context, node int, state string, rec signal.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.ReadTimeout, health.ErrDeadline)
	defer cancel()
	return c.Dir.ReadRecord(ctx, signal.NodesDir, c.Dir.NodeName(node, state), rec)
}

// MeasureRoundTrips computes the delay of records on this file system.
func (c *RoundTripProbe) MeasureRoundTrips(ctx context.Context) {
	var trips []signal.RoundTrip
	for _, node := range c.JoinTimes.SampleNodes(roundTripSample) {
		joined, err := c.ReadJoined(ctx, node)
		if err != nil {
			return // a record that is only for information is not read twice
		}
		if trip, ok := c.JoinTimes.RoundTrip(node, joined); ok {
			trips = append(trips, trip)
		}
	}
	c.roundTrips.Store(&trips)
}

// BuildReport returns the measurements.
func (c *RoundTripProbe) BuildReport() *signal.FileSystemReport {
	report := &signal.FileSystemReport{Head: c.Meter.CallStats()}
	if trips := c.roundTrips.Load(); trips != nil {
		report.RoundTrips = *trips
	}
	return report
}

// LogCallCounts logs the numbers of file system calls of the head and of the nodes that are done.
func (c *RoundTripProbe) LogCallCounts(done []int) {
	var workers []signal.CallStats
	for _, node := range done {
		var record signal.DoneRecord
		if node == 0 {
			continue
		}
		if err := c.readRecord(c.WorkCtx, node, signal.StateDone, &record); err != nil {
			break
		}
		if record.Share != nil {
			workers = append(workers, *record.Share)
		}
	}
	c.Log.Info("what the share was asked:\n" + eventlog.CountCalls(c.BuildReport(), workers).FormatTable())
}
