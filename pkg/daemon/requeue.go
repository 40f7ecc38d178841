package daemon

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/requeue"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// reconsider decides whether the job is to be started anew after this end of
// ours. One that has been as often as it may be ends with a code of its own.
func (n *node) reconsider(end *ending) *ending {
	if end.orderly || !n.cfg.Requeue.OnFailure {
		return end
	}
	policy := health.RequeuePolicy{
		Wanted: true, Most: n.cfg.Requeue.Most, Restarts: n.id.Restart, Told: n.told.Load(),
	}
	if n.cfg.Requeue.By == nil {
		policy.Unable = roles.NoRequeuer
	}
	again := health.DecideRequeue(health.OutcomeBy(*end.cause), policy)
	end.code, end.word = again.Outcome.Code, again.Outcome.Word
	end.requeue = &signal.Requeue{Wanted: again.Requeue, Why: again.Why}
	return end
}

// afterwards does what is due when the run has ended, by the one daemon that has written its result: it has the job
// started anew where that was decided.
func (n *node) afterwards(end *ending) {
	if end.taken || end.requeue == nil {
		return
	}
	// The last words have been said; what follows is still for people.
	n.voice.Postscript()
	defer n.voice.Hush()
	requeue.Order{
		Requeue: *end.requeue, BadNodes: end.nodes, By: n.cfg.Requeue.By, Told: n.told.Load, Hurry: n.hurry, Log: n.log,
	}.Carry()
}

// noteBadNodes writes down the nodes to stay away from. Where no launcher has
// made the job, its nodes are none that could be avoided.
func (n *node) noteBadNodes(end *ending) {
	if len(end.nodes) == 0 || n.id.Launcher == roles.Local {
		return
	}
	n.logged(n.asked("write", signal.BadNodes, n.cfg.Times.Peer, func(ctx context.Context) error {
		path, err := n.dir.NoteBadNodes(ctx, end.nodes)
		if err == nil {
			n.log.Debug("noted the nodes to stay away from", zap.String("in", path), zap.Strings("bad nodes", end.nodes))
		}
		return err
	}))
}
