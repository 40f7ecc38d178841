package daemon

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/signal"
)

// startRunTasks sets the run directory and starts the tasks that need it. log is the name of the
// daemon's own log, and pace the polling pace of Control.
func (n *node) startRunTasks(dir *signal.Dir, log string, pace signal.Pace) {
	n.Dir = dir
	pace.MaxPause = min(pace.MaxPause, n.Timing.MaxPollInterval)
	pace.MinPause = min(pace.MinPause, pace.MaxPause)
	n.ControlWatch = dir.NewWatch(signal.ControlDir, pace)
	n.ControlWatch.AllNotified = func() bool { return n.id.NodeIndex > 0 && n.Links.AllOnTime(time.Now()) }
	n.Events.Open(dir, n.id, log)
	n.children.OpenLogs(dir, n.ownNode(), n.id.Size, n.nodeName(n.ownNode()))
	n.initCommands()
	n.Background(n.ControlWatch.Run)
	n.Background(n.WatchShare)
}

// followSteps returns a task that follows the progress of the job. nodes is the head's watch of
// Nodes, and nil on other nodes.
func (n *node) followSteps(nodes *signal.Watch) func(ctx context.Context) {
	return func(ctx context.Context) {
		n.steps.Run(ctx, stepwatch.Store{Dir: n.Dir, Nodes: nodes, WriteTimeout: n.Timing.SilenceTimeout, OnWriteError: n.LogWriteError})
	}
}
