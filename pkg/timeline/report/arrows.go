package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/trail"
)

// arrows are the head's records on their way to the nodes: what a node did
// after one, it did because of it.
func (l looking) arrows() (arrows []Arrow) {
	wrote := make(map[string]time.Time)
	for _, e := range l.run.Events {
		if _, had := wrote[e.Record]; e.Name == trail.Told && e.Rank == 0 && !had {
			wrote[e.Record] = e.At
		}
	}
	for _, e := range l.run.Events {
		at, known := wrote[e.Record]
		if e.Name == trail.Saw && e.Rank != 0 && known {
			arrows = append(arrows, Arrow{clean(e.Record, 40), e.Rank, l.at(at), max(l.at(e.At), l.at(at))})
		}
	}
	slices.SortStableFunc(arrows, func(a, b Arrow) int {
		return cmp.Or(cmp.Compare(a.Wrote, b.Wrote), cmp.Compare(a.Rank, b.Rank))
	})
	return arrows
}
