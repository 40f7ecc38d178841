package trail

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Arrivals records when the head first saw each node's answer to the round-trip probe of the shared
// file system. It is not safe for concurrent use.
type Arrivals struct {
	published time.Time // when the probe was published
	order     []int     // node indices, in order of arrival
	seen      map[int]time.Time
}

// NewArrivals returns the [Arrivals] of a probe that was published at the given time.
func NewArrivals(published time.Time) *Arrivals {
	return &Arrivals{published: published, seen: make(map[int]time.Time)}
}

// Note records the nodes that were found by a listing at time at.
func (a *Arrivals) Note(ranks []int, at time.Time) {
	for _, rank := range ranks {
		if _, there := a.seen[rank]; !there && rank != 0 {
			a.seen[rank] = at
			a.order = append(a.order, rank)
		}
	}
}

// Sample returns up to n nodes, evenly distributed by time of arrival, including the first and the
// last.
func (a *Arrivals) Sample(n int) []int {
	if len(a.order) <= n {
		return slices.Clone(a.order)
	}
	ranks := make([]int, 0, n)
	for i := range n {
		ranks = append(ranks, a.order[i*(len(a.order)-1)/(n-1)])
	}
	return ranks
}

// Trip returns the probe's round trip to one node, less the node's own processing time. ok is false
// if the node came late, because the result is meaningless then.
func (a *Arrivals) Trip(rank int, joined signal.JoinedRecord) (signal.RoundTrip, bool) {
	took := a.seen[rank].Sub(a.published) - joined.Answer
	return signal.RoundTrip{Rank: rank, Took: max(0, took)}, joined.Waited
}

// Asked counts the calls that the daemons of a run have made to the shared file system.
type Asked struct {
	Rows    []AskedRow // types of call that were made, then totals
	Slowest signal.SlowCall
	Trips   []signal.RoundTrip
	Workers int // number of workers that have reported
}

// AskedRow is the count of one type of call: by the head, the workers, and all of them.
type AskedRow struct {
	Call                           string
	Head, Least, Median, Most, All int64
}

// AskedOf returns the statistics of the head and of the workers that have reported theirs.
func AskedOf(report *signal.ShareReport, workers []signal.Stats) Asked {
	a := Asked{Slowest: report.Head.Slowest, Trips: report.RoundTrips, Workers: len(workers)}
	// Each row summarises one counter over all workers.
	row := func(call string, of func(signal.Stats) int64) {
		r := AskedRow{Call: call, Head: of(report.Head), All: of(report.Head)}
		var counts []int64
		for _, worker := range workers {
			counts, r.All = append(counts, of(worker)), r.All+of(worker)
		}
		if n := len(counts); n > 0 {
			slices.Sort(counts)
			r.Least, r.Median, r.Most = counts[0], counts[n/2], counts[n-1]
		}
		if r.All > 0 {
			a.Rows = append(a.Rows, r)
		}
	}
	// A row for each type of call, then totals.
	for _, op := range signal.Ops() {
		row(op.String(), func(s signal.Stats) int64 { return s.ByKind[op.String()] })
	}
	row("all", func(s signal.Stats) int64 { return s.Calls })
	row("made again", func(s signal.Stats) int64 { return s.Retries })
	for _, worker := range workers {
		if worker.Slowest.Took > a.Slowest.Took {
			a.Slowest = worker.Slowest
		}
	}
	return a
}

// Table returns the counts as text, for a log.
func (a Asked) Table() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "calls\thead\tworkers: least\tmedian\tmost\tall %d\t\n", a.Workers)
	for _, r := range a.Rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", r.Call, r.Head, r.Least, r.Median, r.Most, r.All-r.Head)
	}
	_ = table.Flush() // writes to memory
	fmt.Fprintf(&text, "the slowest: %s of %s, %s", a.Slowest.Op, a.Slowest.Path, a.Slowest.Took.Round(time.Microsecond))
	for _, trip := range a.Trips {
		fmt.Fprintf(&text, "\na record and its answer were seen after %s by way of rank %d", trip.Took.Round(10*time.Microsecond), trip.Rank)
	}
	return text.String()
}
