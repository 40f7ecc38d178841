package daemon

import (
	"context"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// tripSample is of how many ranks the canary's round trip is reckoned: each
// costs the head the reading of a record.
const tripSample = 4

// measureTrips reckons how long records take to be seen on this share.
func (h *head) measureTrips(ctx context.Context) {
	var trips []signal.RoundTrip
	for _, rank := range h.canary.arrivals.Sample(tripSample) {
		joined, err := h.assembly.readJoined(ctx, rank)
		if err != nil {
			return // what is for people only is not asked for twice
		}
		if trip, ok := h.canary.arrivals.Trip(rank, joined); ok {
			trips = append(trips, trip)
		}
	}
	h.canary.trips.Store(&trips)
}

// shareReport is what the head knows of the share.
func (h *head) shareReport() *signal.ShareReport {
	report := &signal.ShareReport{Head: h.Meter.Stats()}
	if trips := h.canary.trips.Load(); trips != nil {
		report.RoundTrips = *trips
	}
	return report
}

// tellShare says what all nodes have asked of the share, where that is wanted.
func (h *head) tellShare() {
	if !h.cfg.ShareStats {
		return
	}
	var workers []signal.Stats
	for _, rank := range h.nodes.Last().Ranks(signal.Done) {
		if rank == 0 {
			continue
		}
		var done signal.DoneRecord
		ctx, cancel := context.WithTimeoutCause(h.Work, h.tempo.Look, errDeadline)
		err := h.Dir.Read(ctx, signal.Nodes, signal.NodeName(rank, h.id.Size, signal.Done), &done)
		cancel()
		if err != nil {
			break
		}
		if done.Share != nil {
			workers = append(workers, *done.Share)
		}
	}
	h.Log.Info("what the share was asked:\n" + trail.AskedOf(h.shareReport(), workers).Table())
}
