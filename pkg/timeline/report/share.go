package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// share is what the daemons have asked of the share; nil where none has told.
func (l looking) share() *Share {
	var workers []signal.Stats
	var owners []int
	for i := range l.run.Nodes {
		if d := l.run.Nodes[i].Done; d != nil && d.Share != nil {
			workers, owners = append(workers, *d.Share), append(owners, i)
		}
	}
	var report signal.ShareReport
	if l.run.Result != nil && l.run.Result.Share != nil {
		report = *l.run.Result.Share
	}
	if len(workers) == 0 && report.Head.Calls == 0 {
		return nil
	}
	s := &Share{Workers: len(workers)}
	row := func(call string, of func(signal.Stats) int64) {
		r := ShareRow{Call: call, Head: of(report.Head), All: of(report.Head)}
		counts := make([]int64, 0, len(workers))
		for _, worker := range workers {
			counts, r.All = append(counts, of(worker)), r.All+of(worker)
		}
		if len(counts) > 0 {
			slices.Sort(counts)
			r.WorkerP50, r.WorkerMost = counts[(len(counts)-1)/2], counts[len(counts)-1]
		}
		if r.All > 0 {
			s.Rows = append(s.Rows, r)
		}
	}
	for _, op := range signal.Ops() {
		row(op.String(), func(s signal.Stats) int64 { return s.ByKind[op.String()] })
	}
	row("all", func(s signal.Stats) int64 { return s.Calls })
	row("made again", func(s signal.Stats) int64 { return s.Retries })
	s.Notes = l.shareNotes(report, workers, owners)
	return s
}

func (l looking) shareNotes(report signal.ShareReport, workers []signal.Stats, owners []int) (notes []string) {
	slowest, by := report.Head.Slowest, 0
	for i, worker := range workers {
		if worker.Slowest.Took > slowest.Took {
			slowest, by = worker.Slowest, owners[i]
		}
	}
	if slowest.Took > 0 {
		notes = append(notes, words(fmt.Sprintf("The slowest call: %s of %s took %s on %s", slowest.Op, slowest.Path, prose.Brief(slowest.Took), nameOf(by, l.host(by)))))
	}
	for _, trip := range report.RoundTrips {
		notes = append(notes, fmt.Sprintf("A record and its answer were seen after %s, by way of %s", prose.Brief(trip.Took), nameOf(trip.Rank, l.host(trip.Rank))))
	}
	if r := l.run.Result; r != nil && r.Lifelines != nil {
		parts := []string{"Lifelines: " + plural(r.Lifelines.Reconnects, "reconnection")}
		for _, why := range sortedKeys(r.Lifelines.Strangers) {
			parts = append(parts, fmt.Sprintf("%d turned away (%s)", r.Lifelines.Strangers[why], why))
		}
		notes = append(notes, words(strings.Join(parts, "; ")))
	}
	return notes
}
