package trail

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Arrivals notes when the head first saw each rank's answer to the canary. It
// is not safe for concurrent use.
type Arrivals struct {
	published time.Time // when the canary was
	order     []int     // ranks, as they came
	seen      map[int]time.Time
}

// NewArrivals returns that of a canary which was published then.
func NewArrivals(published time.Time) *Arrivals {
	return &Arrivals{published: published, seen: make(map[int]time.Time)}
}

// Note takes in the ranks that a look at that time showed.
func (a *Arrivals) Note(ranks []int, at time.Time) {
	for _, rank := range ranks {
		if _, there := a.seen[rank]; !there && rank != 0 {
			a.seen[rank] = at
			a.order = append(a.order, rank)
		}
	}
}

// Sample returns up to n ranks, the first and the last to come among them.
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

// Trip is the canary's round trip by one rank: less what the rank itself did
// with it. It means nothing for a rank that came late.
func (a *Arrivals) Trip(rank int, joined signal.JoinedRecord) (signal.RoundTrip, bool) {
	took := a.seen[rank].Sub(a.published) - joined.Answer
	return signal.RoundTrip{Rank: rank, Took: max(0, took)}, joined.Waited
}

// Asked is what the daemons of a run have asked of the share.
type Asked struct {
	Rows    []AskedRow // those of which there were any, then their sum
	Slowest signal.SlowCall
	Trips   []signal.RoundTrip
	Workers int // that have told
}

// AskedRow is how often one call was made: by the head, by the workers, and by all of them.
type AskedRow struct {
	Call                           string
	Head, Least, Median, Most, All int64
}

// AskedOf adds up what the head and those workers tell that have.
func AskedOf(report *signal.ShareReport, workers []signal.Stats) Asked {
	a := Asked{Slowest: report.Head.Slowest, Trips: report.RoundTrips, Workers: len(workers)}
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

// Table is that for people who look at a log.
func (a Asked) Table() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "calls\thead\tworkers: least\tmedian\tmost\tall %d\t\n", a.Workers)
	for _, r := range a.Rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", r.Call, r.Head, r.Least, r.Median, r.Most, r.All-r.Head)
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&text, "the slowest: %s of %s, %s", a.Slowest.Op, a.Slowest.Path, a.Slowest.Took.Round(time.Microsecond))
	for _, trip := range a.Trips {
		fmt.Fprintf(&text, "\na record and its answer were seen after %s by way of rank %d", trip.Took.Round(10*time.Microsecond), trip.Rank)
	}
	return text.String()
}
