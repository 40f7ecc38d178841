package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// tripSample is of how many ranks the canary's round trip is reckoned: each
// costs the head the reading of a record.
const tripSample = 4

// arrivals notes when the head first saw each rank's answer to the canary. It
// is not safe for concurrent use.
type arrivals struct {
	published time.Time // when the canary was
	order     []int     // ranks, as they came
	seen      map[int]time.Time
}

func newArrivals(published time.Time) *arrivals {
	return &arrivals{published: published, seen: make(map[int]time.Time)}
}

// note takes in the ranks that a look at that time showed.
func (a *arrivals) note(ranks []int, at time.Time) {
	for _, rank := range ranks {
		if _, there := a.seen[rank]; !there && rank != 0 {
			a.seen[rank] = at
			a.order = append(a.order, rank)
		}
	}
}

// sample returns up to n ranks, the first and the last to come among them.
func (a *arrivals) sample(n int) []int {
	if len(a.order) <= n {
		return slices.Clone(a.order)
	}
	ranks := make([]int, 0, n)
	for i := range n {
		ranks = append(ranks, a.order[i*(len(a.order)-1)/(n-1)])
	}
	return ranks
}

// trip is the canary's round trip by one rank: less what the rank itself did
// with it. It means nothing for a rank that came late.
func (a *arrivals) trip(rank int, joined signal.JoinedRecord) (signal.RoundTrip, bool) {
	took := a.seen[rank].Sub(a.published) - joined.Answer
	return signal.RoundTrip{Rank: rank, Took: max(0, took)}, joined.Waited
}

// measureTrips reckons how long records take to be seen on this share.
func (h *head) measureTrips(ctx context.Context) {
	var trips []signal.RoundTrip
	for _, rank := range h.arrivals.sample(tripSample) {
		joined, err := h.assembly.readJoined(ctx, rank)
		if err != nil {
			return // what is for people only is not asked for twice
		}
		if trip, ok := h.arrivals.trip(rank, joined); ok {
			trips = append(trips, trip)
		}
	}
	h.tripsMu.Lock()
	defer h.tripsMu.Unlock()
	h.trips = trips
}

// shareReport is what the head knows of the share.
func (h *head) shareReport() *signal.ShareReport {
	h.tripsMu.Lock()
	defer h.tripsMu.Unlock()
	return &signal.ShareReport{Head: h.cfg.Access.Meter.Stats(), RoundTrips: h.trips}
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
		ctx, cancel := context.WithTimeoutCause(h.work, h.tempo.Look, errDeadline)
		err := h.dir.Read(ctx, signal.Nodes, signal.NodeName(rank, h.id.Size, signal.Done), &done)
		cancel()
		if err != nil {
			break
		}
		if done.Share != nil {
			workers = append(workers, *done.Share)
		}
	}
	h.log.Info("what the share was asked:\n" + shareTable(h.shareReport(), workers))
}

// shareTable is the report for people.
func shareTable(report *signal.ShareReport, workers []signal.Stats) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "calls\thead\tworkers: least\tmedian\tmost\tall %d\t\n", len(workers))
	row := func(name string, of func(signal.Stats) int64) {
		counts := make([]int64, 0, len(workers))
		sum := int64(0)
		for _, worker := range workers {
			counts = append(counts, of(worker))
			sum += of(worker)
		}
		slices.Sort(counts)
		if len(counts) == 0 {
			counts = []int64{0}
		}
		head := of(report.Head)
		if head+sum > 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", name, head, counts[0], counts[len(counts)/2], counts[len(counts)-1], sum)
		}
	}
	for _, op := range signal.Ops() {
		row(op.String(), func(s signal.Stats) int64 { return s.ByKind[op.String()] })
	}
	row("all", func(s signal.Stats) int64 { return s.Calls })
	row("made again", func(s signal.Stats) int64 { return s.Retries })
	_ = table.Flush() // into memory
	slowest := report.Head.Slowest
	for _, worker := range workers {
		if worker.Slowest.Took > slowest.Took {
			slowest = worker.Slowest
		}
	}
	fmt.Fprintf(&text, "the slowest: %s of %s, %s", slowest.Op, slowest.Path, slowest.Took.Round(time.Microsecond))
	for _, trip := range report.RoundTrips {
		fmt.Fprintf(&text, "\na record and its answer were seen after %s by way of rank %d", trip.Took.Round(10*time.Microsecond), trip.Rank)
	}
	return text.String()
}
