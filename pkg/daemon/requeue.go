package daemon

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/requeue"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// reconsider decides whether the job is to be started anew after this end of
// ours. One that has been as often as it may be ends with a code of its own.
func (n *node) reconsider(end *run.Ending) *run.Ending {
	if end.Orderly || !n.cfg.After.Requeue.OnFailure {
		return end
	}
	policy := health.RequeuePolicy{
		Wanted: true, Most: n.cfg.After.Requeue.Most, Restarts: n.id.Restart, Told: n.Told.Load(),
	}
	if n.cfg.After.Requeue.By == nil {
		policy.Unable = n.id.Launcher.Unable(n.id.Job)
	}
	again := health.DecideRequeue(health.OutcomeBy(*end.Cause), policy)
	end.Code, end.Word = again.Outcome.Code, again.Outcome.Word
	end.Requeue = &signal.Requeue{Wanted: again.Requeue, Why: again.Why}
	return end
}

// afterwards does what is due when the run has ended, by the one daemon that has written its result: it has the job
// started anew where that was decided.
func (n *node) afterwards(end *run.Ending) {
	if end.Taken || end.Requeue == nil {
		return
	}
	// The last words have been said; what follows is still for people.
	n.voice.Postscript()
	defer n.voice.Hush()
	requeue.Order{
		Requeue: *end.Requeue, BadNodes: end.Nodes, By: n.cfg.After.Requeue.By, Told: n.Told.Load, Hurry: n.Hurry, Log: n.Log,
	}.Carry()
}

// noteBadNodes writes down the nodes to stay away from. Where no launcher has made the job, none could be avoided.
func (n *node) noteBadNodes(hosts []string) {
	if len(hosts) == 0 || n.id.Launcher == roles.Local {
		return
	}
	n.Logged(n.Ask("write", signal.BadNodes, n.cfg.Times.Peer, func(ctx context.Context) error {
		path, err := n.Dir.NoteBadNodes(ctx, hosts)
		if err == nil {
			n.Log.Debug("noted the nodes to stay away from", zap.String("in", path), zap.Strings("bad nodes", hosts))
		}
		return err
	}))
}
