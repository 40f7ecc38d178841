package daemon

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
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
	again := health.DecideRequeue(health.OutcomeOf(health.Kind(end.cause.Kind)), policy)
	end.code, end.word = again.Outcome.Code, again.Outcome.Word
	end.requeue = &signal.Requeue{Wanted: again.Requeue, Why: again.Why}
	return end
}

// afterwards does what is due when the run has ended, by the one daemon that has written its result: it has the job
// started anew where that was decided. The launcher ends what is left of the job when it is asked, so that nothing is
// left to do by then.
func (n *node) afterwards(end *ending) {
	if end.taken {
		return
	}
	again := end.requeue
	if again == nil {
		return
	}
	// The last words have been said; what follows is still for people.
	n.voice.Postscript()
	defer n.voice.Hush()
	if again.Wanted && n.told.Load() {
		again = &signal.Requeue{Why: "the job has been told to end meanwhile"}
	}
	if !again.Wanted {
		n.log.Warn("the job is not started anew: " + again.Why)
		return
	}
	if err := n.request(n.cfg.Requeue.By.Requeue); err != nil {
		n.log.Error("the job is not started anew, though it would deserve it", zap.Error(err), zap.String("why", again.Why))
		return
	}
	n.log.Warn(again.Why)
	if len(end.nodes) == 0 {
		return
	}
	err := n.request(func(ctx context.Context) error { return n.cfg.Requeue.By.Exclude(ctx, end.nodes) })
	if err != nil {
		n.log.Warn("the job may be started on a bad node again", zap.Strings("bad nodes", end.nodes), zap.Error(err))
	}
}

// request asks the launcher for something, for no longer than it may take.
func (n *node) request(ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(n.hurry, config.RequeueTime, errDeadline)
	defer cancel()
	return ask(ctx)
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
