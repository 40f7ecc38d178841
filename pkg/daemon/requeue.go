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

// reconsider decides whether another attempt follows a failure of the run, or whether the job is
// requeued. It sets the decision in end, and returns end. If the job has been requeued as often as
// allowed, it also replaces the exit code.
func (n *node) reconsider(end *run.Ending) *run.Ending {
	if end.Orderly {
		return end
	}
	// Another attempt within this launch has precedence.
	restart := health.DecideRestart(*end.Cause, health.RestartPolicy{
		Most: n.cfg.After.Restarts, Attempt: n.id.Attempt, Told: n.Told.Load(),
		Unfit: n.cfg.Earlier.AllUnfit(end.Failures()), Nodes: n.id.Size, Least: n.cfg.Team.Of(n.id.Size).Min,
	})
	end.Again.Why = restart.Why
	if restart.Again {
		end.Again.Attempt = n.id.Attempt + 1
		return end
	}
	if !n.cfg.After.Requeue.OnFailure {
		return end
	}
	// Otherwise the job may be requeued, by a command of the user or by the launcher.
	policy := health.RequeuePolicy{Wanted: true, Most: n.cfg.After.Requeue.Most, Restarts: n.id.Restart, Told: n.Told.Load()}
	if n.cfg.After.Requeue.By == nil {
		policy.Unable = n.id.Launcher.Unable(n.id.Job)
	}
	again := health.DecideRequeue(health.OutcomeBy(*end.Cause), policy)
	end.Code, end.Word = again.Outcome.Code, again.Outcome.Word
	end.Requeue = &signal.Requeue{Wanted: again.Requeue, Why: again.Why}
	return end
}

// afterwards carries out the decision of [node.reconsider] on the node that has written the result:
// it announces the next attempt, or requeues the job.
func (n *node) afterwards(end *run.Ending) {
	if end.Taken || end.Requeue == nil && end.Again.Why == "" {
		return
	}
	// The final message has been printed; lines after it are still for the user.
	n.voice.Postscript()
	defer n.voice.Hush()
	switch {
	case end.Again.Attempt > 0:
		n.Log.Warn(end.Again.Why)
		return
	case end.Again.Why != "":
		n.Log.Warn("there is no other attempt: " + end.Again.Why)
	}
	if end.Requeue == nil {
		return
	}
	requeue.Order{
		Requeue: *end.Requeue, BadNodes: end.Nodes, By: n.cfg.After.Requeue.By, Told: n.Told.Load, Hurry: n.Hurry, Log: n.Log,
	}.Carry()
}

// noteBadNodes records the nodes that the next job should avoid. If all daemons were started on one
// machine without a launcher, there are no other nodes, and it does nothing.
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
