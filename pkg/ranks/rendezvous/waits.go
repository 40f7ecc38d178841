package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// ListLocalWaits returns the rendezvous operations for which the ranks of this node wait: those of the
// world of the run, and of the worlds of roles of which children are ranks. It returns none if there is
// no rendezvous.
func ListLocalWaits(ctx context.Context, children []stackdump.Child) (waits []stackdump.Wait, err error) {
	meeting, err := Dial(ctx)
	if err == nil {
		waits, err = listWaits(ctx, meeting, func(rank int) string { return fmt.Sprintf("rank %d", rank) })
	} else if errors.Is(err, ErrNoSocket) {
		err = nil
	}
	names := make(map[string]map[int]string) // of the ranks of the worlds of roles, by socket
	for _, child := range children {
		if child.Socket == "" || child.Ended != "" {
			continue
		}
		if names[child.Socket] == nil {
			names[child.Socket] = make(map[int]string)
		}
		names[child.Socket][child.RankInWorld()] = child.Name
	}
	for socket, ranks := range names {
		meeting, failed := DialAsRank(ctx, socket, nil)
		if failed != nil {
			continue // the world ends at this moment
		}
		own, failed := listWaits(ctx, meeting, func(rank int) string { return ranks[rank] })
		waits, err = append(waits, own...), cmp.Or(err, failed)
	}
	return waits, err
}

// listWaits returns the operations for which ranks wait in one rendezvous, to which it closes the
// connection. name returns the name of the child that is a rank.
func listWaits(ctx context.Context, meeting *Client, name func(rank int) string) (waits []stackdump.Wait, err error) {
	defer meeting.Close()
	known, err := meeting.PendingWaits(ctx)
	for _, wait := range known {
		waits = append(waits, stackdump.Wait{Child: name(wait.Rank), Kind: wait.Kind, Name: wait.Name,
			SinceS: wait.WaitedSeconds, Missing: wait.Missing})
	}
	return waits, err
}
