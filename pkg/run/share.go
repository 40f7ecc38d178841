package run

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Canary has the head's measurements of the file system: the delay of records, and the numbers of
// calls.
type Canary struct {
	*Records
	Arrivals *trail.Arrivals // times at which the answers to the job record have arrived
	// Within is the timeout for reading a record that is only for information.
	Within time.Duration

	trips atomic.Pointer[[]signal.RoundTrip] // nil before they are known
}

// tripSample is the number of nodes for which the canary's round trip is measured: each costs the
// head the reading of a record.
const tripSample = 4

// Joined reads the answer of a node that has joined.
func (c *Canary) Joined(ctx context.Context, rank int) (joined signal.JoinedRecord, err error) {
	err = c.read(ctx, rank, signal.Joined, &joined)
	return joined, err
}

func (c *Canary) read(ctx context.Context, rank int, state string, rec signal.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Within, health.ErrDeadline)
	defer cancel()
	return c.Dir.Read(ctx, signal.Nodes, c.Dir.NodeName(rank, state), rec)
}

// Measure computes the delay of records on this file system.
func (c *Canary) Measure(ctx context.Context) {
	var trips []signal.RoundTrip
	for _, rank := range c.Arrivals.Sample(tripSample) {
		joined, err := c.Joined(ctx, rank)
		if err != nil {
			return // a record that is only for information is not read twice
		}
		if trip, ok := c.Arrivals.Trip(rank, joined); ok {
			trips = append(trips, trip)
		}
	}
	c.trips.Store(&trips)
}

// Report returns the measurements.
func (c *Canary) Report() *signal.ShareReport {
	report := &signal.ShareReport{Head: c.Meter.Stats()}
	if trips := c.trips.Load(); trips != nil {
		report.RoundTrips = *trips
	}
	return report
}

// Tell logs the numbers of file system calls of the head and of the nodes that are done.
func (c *Canary) Tell(done []int) {
	var workers []signal.Stats
	for _, rank := range done {
		var record signal.DoneRecord
		if rank == 0 {
			continue
		}
		if err := c.read(c.Work, rank, signal.Done, &record); err != nil {
			break
		}
		if record.Share != nil {
			workers = append(workers, *record.Share)
		}
	}
	c.Log.Info("what the share was asked:\n" + trail.AskedOf(c.Report(), workers).Table())
}
