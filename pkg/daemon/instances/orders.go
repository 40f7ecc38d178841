package instances

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// advance gives the orders that follow from the present states: it stops what is left of instances
// that have failed, lets spares take the places of lost nodes, and starts the next generations. It
// is called after each change, and does nothing that it has done before.
func (h *Head) advance() {
	var orders, old []string
	var isFilling bool
	h.mu.Lock()
	if h.cfg.RunCtx.Err() == nil {
		orders, old = h.takeOrders(time.Now())
		isFilling = len(h.fillable(time.Now())) > 0
	}
	h.mu.Unlock()
	h.order(orders...)
	h.cfg.RemoveOldNames(signal.ControlDir, old)
	if isFilling {
		h.cfg.Background(h.fillVacancies)
	}
}

// takeOrders returns the orders that instances need now, records that they are given, and returns
// those of old generations. The caller holds [Head.mu].
func (h *Head) takeOrders(now time.Time) (orders, old []string) {
	for _, state := range h.instances {
		next, number := state.Generation+1, state.instance.Number
		resumes := state.mayResume(now)
		if state.mayJoin() && state.joined <= state.Generation {
			state.joined = next
			orders = append(orders, signal.HeadInstanceName(number, state.Generation))
		}
		// If its role has not been started, the nodes learn from the order which generation to start.
		mustStop := state.needsStop() || resumes && state.spans() && !state.evidence.Started
		if mustStop && state.ordered < next {
			state.ordered = next
			orders = append(orders, signal.StopInstanceName(number, next))
		}
		if !resumes {
			continue
		}
		if state.spans() { // a spare starts an instance that is alone on its node by the plan
			orders = append(orders, signal.StartInstanceName(number, next))
			if removed := next - keptGenerations; removed > 0 {
				old = append(old, signal.StopInstanceName(number, removed), signal.StartInstanceName(number, removed))
				if state.role.Program.Framework != "" {
					old = append(old, signal.HeadInstanceName(number, removed))
				}
			}
		}
		state.begin(next)
	}
	return orders, old
}

// advanceAfter calls advance after a time, unless the run ends before.
func (h *Head) advanceAfter(pause time.Duration) {
	h.cfg.Background(func(context.Context) {
		if ctxutil.SleepContext(h.cfg.RunCtx, pause) {
			h.advance()
		}
	})
}

// markControl publishes a name in the control directory.
func (h *Head) markControl(name string) error {
	err := h.cfg.Order(name)
	h.cfg.ControlWatch.NotifyChange() // the head's own instances
	return err
}

// orderRetryInterval is the time between two tries to publish an order.
const orderRetryInterval = time.Second

// order publishes orders for the nodes. Those that cannot be written are written later: without
// them the run would wait for ever.
func (h *Head) order(names ...string) {
	for i, name := range names {
		if h.markControl(name) == nil {
			continue
		}
		left := names[i:]
		h.cfg.Background(func(context.Context) {
			if ctxutil.SleepContext(h.cfg.RunCtx, orderRetryInterval) {
				h.cfg.Log.Debug("publishing orders again", zap.Strings("orders", left))
				h.order(left...)
			}
		})
		return
	}
}
