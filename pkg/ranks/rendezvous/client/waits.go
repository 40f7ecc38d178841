package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// ListLocalWaits returns the rendezvous operations for which the ranks of this node wait. It returns
// none if there is no rendezvous.
func ListLocalWaits(ctx context.Context) (waits []stackdump.Wait, err error) {
	meeting, err := Dial(ctx)
	if errors.Is(err, ErrNoSocket) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer meeting.Close()
	known, err := meeting.PendingWaits(ctx)
	for _, wait := range known {
		waits = append(waits, stackdump.Wait{Child: fmt.Sprintf("rank %d", wait.Rank), Kind: wait.Kind, Name: wait.Name, SinceS: wait.WaitedSeconds, Missing: wait.Missing})
	}
	return waits, err
}
