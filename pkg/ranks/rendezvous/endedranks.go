package rendezvous

import (
	"maps"
	"slices"
	"time"
)

// EndedRanks returns the ranks of a world that are known to have ended, sorted, and when the newest
// of these ends was reported. Nodes of which all ranks have ended at about the same time may report
// none.
func (w *Worlds) EndedRanks(name string) (ended []int, newest time.Time) {
	w.mu.Lock()
	world, known := w.worlds[name]
	w.mu.Unlock()
	if !known {
		return nil, time.Time{}
	}
	world.mu.Lock()
	defer world.mu.Unlock()
	for _, end := range world.endedRanks {
		if end.recordedAt.After(newest) {
			newest = end.recordedAt
		}
	}
	return slices.Sorted(maps.Keys(world.endedRanks)), newest
}
