package instances

import (
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// liveList is what the head has last published about the instances that are ready and lost.
type liveList struct {
	ready, lost []int
	started     int // number of roles that had been started
}

// liveInterval is the shortest time between two lists of ready instances after the gate.
const liveInterval = time.Second

// publishLive publishes the lists of ready and lost instances, until ctx ends: before the gate when a
// role starts, afterwards at every change, at most once a second.
func (h *Head) publishLive(ctx context.Context) {
	number := 0
	for {
		var next liveList
		changed := h.await(ctx, func() bool {
			next = h.currentLive()
			if !h.gateOpen && next.started == h.live.started {
				return false
			}
			return !slices.Equal(next.ready, h.live.ready) || !slices.Equal(next.lost, h.live.lost)
		})
		if !changed {
			return
		}
		rec := &record.LiveInstances{Ready: next.ready, Lost: next.lost}
		if h.cfg.RunCtx.Err() != nil {
			return
		}
		h.cfg.LogWriteError(h.cfg.Publish(signal.ControlDir, signal.LiveName(number), rec, false))
		h.removeLive(ctx, number-2)
		number++
		h.mu.Lock()
		h.live = next
		open := h.gateOpen
		h.mu.Unlock()
		if open && !ctxutil.SleepContext(ctx, liveInterval) {
			return
		}
	}
}

// removeLive removes an old list, so that the control directory does not grow with the changes. A
// node that is about to read it reads a newer one.
func (h *Head) removeLive(ctx context.Context, number int) {
	if number < 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, exitReadTimeout, health.ErrDeadline)
	defer cancel()
	if err := h.cfg.Dir.RemoveNames(ctx, signal.ControlDir, signal.LiveName(number)); err != nil && ctx.Err() == nil {
		h.cfg.LogWriteError(err)
	}
}

// currentLive returns the instances that are ready and lost at present.
func (h *Head) currentLive() (l liveList) {
	for _, state := range h.instances {
		switch state.status {
		case statusReady:
			l.ready = append(l.ready, state.instance.Number)
		case statusLost:
			l.lost = append(l.lost, state.instance.Number)
		}
	}
	for _, started := range h.started {
		if started {
			l.started++
		}
	}
	return l
}
