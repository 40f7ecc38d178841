package signal

import (
	"context"
	"slices"
	"sync"
)

// RankOf returns the rank whose node has joined the run from a host, once there is
// one. guess is looked at first. It is for a daemon that the launcher has told the
// ranks of another step. The error is that of a wait which ctx has ended.
func (d *Dir) RankOf(ctx context.Context, host string, guess int) (int, error) {
	watch := d.Watch(Nodes, WorkerPace(d.size))
	looking, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { watch.Run(looking) })
	defer running.Wait()
	defer stop()
	found, read := -1, make(map[int]bool)
	_, err := watch.Wait(ctx, func(l Listing) bool {
		ranks := l.Ranks(Joined)
		if at, ok := slices.BinarySearch(ranks, guess); ok {
			ranks[0], ranks[at] = ranks[at], ranks[0]
		}
		for _, rank := range ranks {
			if read[rank] {
				continue
			}
			var joined JoinedRecord
			if d.Read(ctx, Nodes, d.NodeName(rank, Joined), &joined) != nil {
				return false // the next look shows it again
			}
			if read[rank] = true; joined.Host == host {
				found = rank
				return true
			}
		}
		return false
	})
	return found, err
}
