package daemon

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/requeue"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// decideRestart decides whether another attempt follows a failure of the run, or whether the job is
// requeued. It sets the decision in end, and returns end. If the job has been requeued as often as
// allowed, it also replaces the exit code.
func (n *node) decideRestart(end *lifecycle.Outcome) *lifecycle.Outcome {
	if end.Orderly {
		return end
	}
	// Another attempt within this launch has precedence.
	restart := health.DecideRestart(*end.Cause, health.RestartPolicy{
		MaxRestarts: n.cfg.After.Restarts, Attempt: n.id.Attempt, EndRequested: n.EndRequested.Load(),
		UnfitNodes: n.cfg.Previous.AllUnfitNodes(end.AllFailures()), Nodes: n.id.Size, MinNodes: n.cfg.Team.ForSize(n.id.Size).Min,
	})
	end.NextAttempt.Reason = restart.Reason
	if restart.Restart {
		end.NextAttempt.Number = n.id.Attempt + 1
		return end
	}
	if !n.cfg.After.Requeue.OnFailure {
		return end
	}
	// Otherwise the job may be requeued, by a command of the user or by the launcher.
	policy := health.RequeuePolicy{Enabled: true, MaxRequeues: n.cfg.After.Requeue.Most, Restarts: n.id.Restart, EndRequested: n.EndRequested.Load()}
	if n.cfg.After.Requeue.By == nil {
		policy.Obstacle = n.id.Launcher.NoRequeueReason(n.id.Job)
	}
	again := health.DecideRequeue(health.OutcomeOfCause(*end.Cause), policy)
	end.Code, end.Name = again.Outcome.Code, again.Outcome.Name
	end.Requeue = &record.RequeueDecision{Wanted: again.Requeue, Reason: again.Reason}
	return end
}

// carryOutRestart carries out the decision of [node.decideRestart] on the node that has written the
// result: it announces the next attempt, or requeues the job.
func (n *node) carryOutRestart(end *lifecycle.Outcome) {
	if end.TakenOver || end.Requeue == nil && end.NextAttempt.Reason == "" {
		return
	}
	// The final message has been printed; lines after it are still for the user.
	n.console.UnmuteWarnings()
	defer n.console.Mute()
	switch {
	case end.NextAttempt.Number > 0:
		n.Log.Warn(end.NextAttempt.Reason)
		return
	case end.NextAttempt.Reason != "":
		n.Log.Warn("there is no further attempt: " + end.NextAttempt.Reason)
	}
	if end.Requeue == nil {
		return
	}
	requeue.Decision{
		RequeueDecision: *end.Requeue, BadNodes: end.BadNodes, Requeuer: n.cfg.After.Requeue.By, EndRequested: n.EndRequested.Load, GraceContext: n.GraceCtx, Log: n.Log,
	}.RequestRequeue()
}

// recordBadNodes records the nodes that the next job should avoid. If all daemons were started on
// one machine without a launcher, there are no other nodes, and it does nothing.
func (n *node) recordBadNodes(hosts []string) {
	if len(hosts) == 0 || n.id.Launcher == roles.LauncherLocal {
		return
	}
	n.LogWriteError(n.CallFileSystem("write", signal.BadNodesDir, n.cfg.Times.Peer, func(ctx context.Context) error {
		path, err := n.Dir.RecordBadNodes(ctx, hosts)
		if err == nil {
			n.Log.Debug("recorded the nodes to avoid", zap.String("in", path), zap.Strings("bad nodes", hosts))
		}
		return err
	}))
}
