package instances

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

const (
	// stallTimeout is how long nothing may run and nothing be due in a run that has not ended.
	stallTimeout  = time.Minute
	stallInterval = 10 * time.Second // the interval between two looks
	dueSlack      = time.Minute      // how much later than planned a node's record may appear
)

// watchStall ends the run, with its state in the log, if nothing runs and nothing is due although
// a primary role has not ended. That is an internal error.
func (h *Head) watchStall(ctx context.Context) {
	if len(h.primaries()) == 0 {
		return
	}
	var since time.Time // when the run was first seen stalled; zero if it was not
	for ctxutil.SleepContext(ctx, stallInterval) && h.cfg.RunCtx.Err() == nil {
		now := time.Now()
		h.mu.Lock()
		what := h.describeStall(now)
		h.mu.Unlock()
		switch {
		case what == "" || h.cfg.IsBusy != nil && h.cfg.IsBusy():
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= stallTimeout:
			h.cfg.Log.Error("nothing runs, and nothing is due", zap.String("instances", what))
			f := health.NewFailure(health.Internal,
				"nothing has run for %s and nothing is due, but the primary roles have not ended: "+
					"%s; please report this with the log of this daemon", stallTimeout, what)
			h.cfg.Failed(f.Failure, now)
			return
		}
	}
}

// describeStall returns the states of the instances if nothing runs and nothing is due, and otherwise
// an empty string. The caller holds [Head.mu].
func (h *Head) describeStall(now time.Time) string {
	if h.primariesHaveEnded() {
		return ""
	}
	var parts []string
	for _, state := range h.instances {
		if len(state.Running) > 0 || now.Before(h.dueAt(state)) {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%s.%d %s in generation %d", state.role.Name,
			state.instance.Index, state.Status, state.Generation))
	}
	return strings.Join(parts, ", ")
}

// dueAt returns until when something must happen to an instance by itself; zero if nothing must.
// The caller holds [Head.mu].
func (h *Head) dueAt(s *instanceState) time.Time {
	switch s.Status {
	case roles.StatusStarting:
		return s.since.Add(s.role.Ready.Timeout + s.role.Stop.Grace + dueSlack)
	case roles.StatusRestarting:
		// The grace period of those that are left, the back-off, and the start of the next generation.
		begin := later(s.since.Add(h.cfg.SilentDelay), s.resumeAt)
		return begin.Add(s.role.Stop.Grace + s.role.Ready.Timeout + dueSlack)
	}
	return time.Time{}
}
