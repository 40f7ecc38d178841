package daemon

import (
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// carryOutRestart carries out the decision of [restart.Decide] on the node that has written the
// result.
func (n *node) carryOutRestart(end *lifecycle.Outcome) {
	if end.TakenOver || end.Requeue == nil && end.NextAttempt.Reason == "" {
		return
	}
	// The final message has been printed; lines after it are still for the user.
	n.console.UnmuteWarnings()
	defer n.console.Mute()
	restart.CarryOut(n.GraceCtx, end, n.cfg.After.Requeue.By, n.EndRequested.Load, n.Log.Warn)
}

// recordBadNodes records the nodes that the next job should avoid, unless all daemons run on one
// machine without a launcher.
func (n *node) recordBadNodes(hosts []string) {
	if len(hosts) == 0 || n.id.Launcher == launcher.LauncherLocal {
		return
	}
	n.LogWriteError(n.RecordBadNodes(hosts))
}

// runEndCommand runs the user's command for the end of the run, on the node that has written the
// result.
func (n *node) runEndCommand(end *lifecycle.Outcome, result *record.Result) {
	if n.cfg.After.OnEnd == "" || end.TakenOver {
		return
	}
	n.console.UnmuteWarnings()
	defer n.console.Mute()
	lifecycle.RunEndCommand(n.GraceCtx, n.cfg.After.OnEnd, n.childEnv(n.cfg.Environ, n.launchPlace()), result, n.Log)
}
