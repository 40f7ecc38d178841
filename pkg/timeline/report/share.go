package report

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
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
	asked := trail.AskedOf(&report, workers)
	by := 0
	if asked.By >= 0 {
		by = owners[asked.By]
	}
	return &Share{Workers: len(workers), Rows: asked.Rows, Notes: l.shareNotes(asked, by)}
}

// shareNotes are sentences on the share; by is the rank that waited longest.
func (l looking) shareNotes(asked trail.Asked, by int) (notes []string) {
	if slowest := asked.Slowest; slowest.Took > 0 {
		notes = append(notes, words(fmt.Sprintf("The slowest call: %s of %s took %s on %s", slowest.Op, slowest.Path, prose.Brief(slowest.Took), nameOf(by, l.host(by)))))
	}
	for _, trip := range asked.Trips {
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
