package world

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Why ranks that exchange data are refused.
const (
	NoData   = "cannot exchange data between ranks (put, get, fence, MPI)"
	Unlinked = NoData + ": this run has no peer links; leave out --lifeline=off, " +
		"or see in the head's log why it offers none"
)

// AwaitLinks waits until ranks exchange data, and from then on until unlinked, which is called
// every period, returns no node. It returns the nodes that still have no peer link within from the
// call, or nil if ctx ends.
func (h *Head) AwaitLinks(ctx context.Context, within, period time.Duration, unlinked func() []int) []int {
	deadline := time.Now().Add(within)
	if !pause.Await(ctx, h.Meet.Used()) {
		return nil
	}
	for {
		nodes := unlinked()
		if len(nodes) > 0 && time.Now().After(deadline) {
			return nodes
		}
		if len(nodes) == 0 || !pause.For(ctx, period) {
			return nil
		}
	}
}
