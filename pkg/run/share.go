package run

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Canary is what the head knows of its share: how long records take to be seen there, and what it was asked.
type Canary struct {
	*Records
	Arrivals *trail.Arrivals // of the answers to the job record
	// Within is how long a record may take to be read that is for people only.
	Within time.Duration

	trips atomic.Pointer[[]signal.RoundTrip] // nil before they are known
}

// tripSample is of how many ranks the canary's round trip is reckoned: each
// costs the head the reading of a record.
const tripSample = 4

// Joined reads the answer of a rank that has joined.
func (c *Canary) Joined(ctx context.Context, rank int) (joined signal.JoinedRecord, err error) {
	err = c.read(ctx, rank, signal.Joined, &joined)
	return joined, err
}

func (c *Canary) read(ctx context.Context, rank int, state string, rec signal.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Within, health.ErrDeadline)
	defer cancel()
	return c.Dir.Read(ctx, signal.Nodes, c.Dir.NodeName(rank, state), rec)
}

// Measure reckons how long records take to be seen on this share.
func (c *Canary) Measure(ctx context.Context) {
	var trips []signal.RoundTrip
	for _, rank := range c.Arrivals.Sample(tripSample) {
		joined, err := c.Joined(ctx, rank)
		if err != nil {
			return // what is for people only is not asked for twice
		}
		if trip, ok := c.Arrivals.Trip(rank, joined); ok {
			trips = append(trips, trip)
		}
	}
	c.trips.Store(&trips)
}

// Report is what is known of the share.
func (c *Canary) Report() *signal.ShareReport {
	report := &signal.ShareReport{Head: c.Meter.Stats()}
	if trips := c.trips.Load(); trips != nil {
		report.RoundTrips = *trips
	}
	return report
}

// Tell says what all nodes have asked of the share: the head, and those of the ranks that are done.
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
