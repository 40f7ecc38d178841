package instances

import (
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// liveList is what the head has last published: the instances that are ready, with endpoints that
// serve, and lost. satisfied counts the roles that had what they require, and those that had it
// with endpoints that serve.
type liveList struct {
	ready, lost []int
	satisfied   int
	plan        int // number of the newest plan, which has the endpoints
}

// differsFrom reports whether other instances are ready or lost, or may have other endpoints.
func (l liveList) differsFrom(o liveList) bool {
	return !slices.Equal(l.ready, o.ready) || !slices.Equal(l.lost, o.lost) || l.plan != o.plan
}

type listNumber struct {
	publishing ctxutil.Turn // held while a list is published
	next       int          // guarded by publishing
}

// liveInterval is the shortest time between two lists of ready instances after the gate.
const liveInterval = time.Second

// publishLive publishes the lists of ready and lost instances at every change, at most once a
// second. Before the gate only a loss is one, and a satisfied role if an instance may wait for its
// endpoints.
func (h *Head) publishLive(ctx context.Context) {
	for {
		var isOpen bool
		changed := h.await(ctx, func() bool {
			next := h.currentLive()
			isOpen = h.gateOpen
			return !slices.Equal(next.lost, h.live.lost) || next.differsFrom(h.live) &&
				(isOpen || next.satisfied > h.live.satisfied && h.mayWait())
		})
		if !changed || h.cfg.RunCtx.Err() != nil {
			return
		}
		if isPublished := h.publishList(ctx); (isOpen || !isPublished) && !ctxutil.SleepContext(ctx, liveInterval) {
			return
		}
	}
}

// publishList publishes the instances that are ready and lost at present, unless it has. It reports
// whether they are published; if not, the next call tries again.
func (h *Head) publishList(ctx context.Context) bool {
	if !h.lists.publishing.Take(ctx) {
		return false
	}
	defer h.lists.publishing.Leave()
	h.mu.Lock()
	next := h.currentLive()
	earlier := h.live
	isNew := next.differsFrom(earlier)
	h.live = next
	h.mu.Unlock()
	if !isNew {
		return true
	}
	list := &record.LiveInstances{Ready: next.ready, Lost: next.lost}
	err := h.cfg.Publish(signal.ControlDir, signal.LiveName(h.lists.next), list, false)
	h.lists.next++ // a name is not used again, because a try may have succeeded although it failed
	if err != nil {
		h.cfg.LogWriteError(err)
		h.update(func() { h.live = earlier })
		return false
	}
	h.removeLive(ctx, h.lists.next-3)
	return true
}

// mayWait reports whether an instance that has been started may be waiting for the endpoints of
// others. The caller holds [Head.mu].
func (h *Head) mayWait() bool {
	for _, state := range h.instances {
		if state.role.MayAwaitOthers() && state.evidence.Started && state.Status != roles.StatusReady &&
			!state.isOver() {
			return true
		}
	}
	return false
}

// removeLive removes an old list, so that the control directory does not grow with the changes. A
// node that is about to read it reads a newer one.
func (h *Head) removeLive(ctx context.Context, number int) {
	if number < 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	if err := h.cfg.Dir.RemoveNames(ctx, signal.ControlDir, signal.LiveName(number)); err != nil && ctx.Err() == nil {
		h.cfg.LogWriteError(err)
	}
}

// currentLive returns the list of the present. The caller holds [Head.mu].
func (h *Head) currentLive() (l liveList) {
	l.plan = h.number
	for _, state := range h.instances {
		switch {
		case state.Status == roles.StatusReady && (h.cfg.HasStandIns || state.isListed()):
			l.ready = append(l.ready, state.instance.Number)
		case state.Status == roles.StatusLost:
			l.lost = append(l.lost, state.instance.Number)
		}
	}
	for i := range h.cfg.Plan.Roles {
		role := &h.cfg.Plan.Roles[i]
		if !h.isSatisfied(role) {
			continue
		}
		l.satisfied++
		listed := 0
		for _, instance := range role.Instances {
			if _, is := slices.BinarySearch(l.ready, instance.Number); is {
				listed++
			}
		}
		if role.ListsListeners() && listed >= role.Required.Start.Of(len(role.Instances)) {
			l.satisfied++
		}
	}
	return l
}
