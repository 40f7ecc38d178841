package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// JoinTimes records when the head first saw each node's answer to the round-trip probe of the
// shared file system. It is not safe for concurrent use.
type JoinTimes struct {
	probePublished time.Time // when the probe was published
	arrivalOrder   []int     // node indices, in order of arrival
	seenAt         map[int]time.Time
}

// NewJoinTimes returns the [JoinTimes] of a probe that was published at the given time.
func NewJoinTimes(published time.Time) *JoinTimes {
	return &JoinTimes{probePublished: published, seenAt: make(map[int]time.Time)}
}

// AddListing records the nodes that were found by a listing at time at.
func (a *JoinTimes) AddListing(nodes []int, at time.Time) {
	for _, node := range nodes {
		if _, there := a.seenAt[node]; !there && node != 0 {
			a.seenAt[node] = at
			a.arrivalOrder = append(a.arrivalOrder, node)
		}
	}
}

// SampleNodes returns up to n nodes, evenly distributed by time of arrival, including the first and
// the last.
func (a *JoinTimes) SampleNodes(n int) []int {
	if len(a.arrivalOrder) <= n {
		return slices.Clone(a.arrivalOrder)
	}
	nodes := make([]int, 0, n)
	for i := range n {
		nodes = append(nodes, a.arrivalOrder[i*(len(a.arrivalOrder)-1)/(n-1)])
	}
	return nodes
}

// RoundTrip returns the probe's round trip to one node, less the node's own processing time. ok is
// false if the node came late, because the result is meaningless then.
func (a *JoinTimes) RoundTrip(node int, joined record.Joined) (record.RoundTrip, bool) {
	took := a.seenAt[node].Sub(a.probePublished) - joined.TimeToAnswer
	return record.RoundTrip{NodeIndex: node, Took: max(0, took)}, joined.HasWaited
}

// CallCounts counts the calls that the daemons of a run have made to the shared file system.
type CallCounts struct {
	Rows       []CallCount // types of call that were made, then totals
	Slowest    record.SlowCall
	RoundTrips []record.RoundTrip
	Workers    int // number of workers that have reported
}

// CallCount is the count of one type of call: by the head, the workers, and all of them.
type CallCount struct {
	Call                          string
	Head, Min, Median, Max, Total int64
}

// CountCalls returns the statistics of the head and of the workers that have reported theirs.
func CountCalls(report *record.FileSystemReport, workers []record.CallStats) CallCounts {
	a := CallCounts{Slowest: report.Head.Slowest, RoundTrips: report.RoundTrips, Workers: len(workers)}
	// Each row summarises one counter over all workers.
	row := func(call string, of func(record.CallStats) int64) {
		r := CallCount{Call: call, Head: of(report.Head), Total: of(report.Head)}
		var counts []int64
		for _, worker := range workers {
			counts, r.Total = append(counts, of(worker)), r.Total+of(worker)
		}
		if n := len(counts); n > 0 {
			slices.Sort(counts)
			r.Min, r.Median, r.Max = counts[0], counts[n/2], counts[n-1]
		}
		if r.Total > 0 {
			a.Rows = append(a.Rows, r)
		}
	}
	// A row for each type of call, then totals.
	for _, op := range signal.AllOps() {
		row(op.String(), func(s record.CallStats) int64 { return s.ByKind[op.String()] })
	}
	row("all", func(s record.CallStats) int64 { return s.Calls })
	row("recreated", func(s record.CallStats) int64 { return s.Retries })
	for _, worker := range workers {
		if worker.Slowest.Took > a.Slowest.Took {
			a.Slowest = worker.Slowest
		}
	}
	return a
}

// FormatTable returns the counts as text, for a log.
func (a CallCounts) FormatTable() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "calls\thead\tworkers: least\tmedian\tmost\tall %d\t\n", a.Workers)
	for _, r := range a.Rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", r.Call, r.Head, r.Min, r.Median, r.Max, r.Total-r.Head)
	}
	_ = table.Flush() // writes to memory
	fmt.Fprintf(&text, "the slowest: %s of %s, %s", a.Slowest.Op, a.Slowest.Path,
		a.Slowest.Took.Round(time.Microsecond))
	for _, trip := range a.RoundTrips {
		fmt.Fprintf(&text, "\nround trip of a record: %s, by node %d", trip.Took.Round(10*time.Microsecond),
			trip.NodeIndex)
	}
	return text.String()
}
