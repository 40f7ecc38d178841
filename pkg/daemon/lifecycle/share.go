package lifecycle

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RoundTripProbe has the head's measurements of the file system: the delay of records, and the
// numbers of calls.
type RoundTripProbe struct {
	*Publisher
	JoinTimes   *eventlog.JoinTimes // times at which the answers to the job record have arrived
	ReadTimeout time.Duration       // the timeout for reading a record that is only for information

	roundTrips atomic.Pointer[[]record.RoundTrip] // nil before they are known
}

// roundTripSample is the number of nodes for which the canary's round trip is measured: each costs
// the head the reading of a record.
const roundTripSample = 4

// ReadJoined reads the answer of a node that has joined.
func (c *RoundTripProbe) ReadJoined(ctx context.Context, node int) (joined record.Joined, err error) {
	err = c.readRecord(ctx, node, record.StateJoined, &joined)
	return joined, err
}

func (c *RoundTripProbe) readRecord(ctx context.Context, node int, state record.State, rec record.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.ReadTimeout, health.ErrDeadline)
	defer cancel()
	return c.Dir.ReadRecord(ctx, signal.NodesDir, c.Dir.NodeName(node, state), rec)
}

// MeasureRoundTrips computes the delay of records on this file system.
func (c *RoundTripProbe) MeasureRoundTrips(ctx context.Context) {
	var trips []record.RoundTrip
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
func (c *RoundTripProbe) BuildReport() *record.FileSystemReport {
	report := &record.FileSystemReport{Head: c.Meter.CallStats()}
	if trips := c.roundTrips.Load(); trips != nil {
		report.RoundTrips = *trips
	}
	return report
}
