package world

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Reasons for rejecting requests of ranks that exchange data.
const (
	NoDataExchange = "cannot exchange data between ranks (put, get, fence, MPI)"
	NoPeerLinks    = NoDataExchange + ": this run has no peer links; remove --lifeline=off, " +
		"or see the head's log for the reason"
)

// AwaitLinks waits until ranks exchange data, and then calls unlinked every period until it returns
// no nodes. unlinked returns the nodes without a peer link. If nodes still lack one after the time
// within, counted from the call of AwaitLinks, AwaitLinks returns these nodes. It returns nil if
// all nodes have a peer link or ctx ends.
func (h *Head) AwaitLinks(ctx context.Context, within, period time.Duration, unlinked func() []int) []int {
	deadline := time.Now().Add(within)
	if !ctxutil.AwaitDone(ctx, h.Rendezvous.FirstUse()) {
		return nil
	}
	for {
		nodes := unlinked()
		if len(nodes) > 0 && time.Now().After(deadline) {
			return nodes
		}
		if len(nodes) == 0 || !ctxutil.SleepContext(ctx, period) {
			return nil
		}
	}
}
