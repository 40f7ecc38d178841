package daemon

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// serveSandbox starts the node's sandbox, waits until it is ready, and publishes that. If the
// sandbox fails, it publishes that instead and returns nil, because the head decides whether enough
// sandboxes are left. It does nothing if no sandbox is configured.
func (n *node) serveSandbox(ctx context.Context) error {
	if n.cfg.Sandbox.Command == "" {
		return nil
	}
	return n.RunPhase(record.PhaseSandbox, func() error {
		service := framework.NewService("sandbox", service.ShellCommand(n.cfg.Sandbox.Command), n.childEnv(n.cfg.Environ, n.launchPlace()), n.cfg.Sandbox.Ready)
		err := n.children.StartService(ctx, service, health.SandboxDied, n.cfg.Times.Sandbox, n.reportSandboxFailure)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // this is not a failure of the sandbox
		}
		if f, ok := errors.AsType[*health.Failure](err); ok {
			n.reportSandboxFailure(f)
			return nil
		}
		if err != nil {
			return err
		}
		return n.PublishState(record.StateSandboxReady)
	})
}

// reportSandboxFailure logs and publishes the failure of this node's sandbox, once.
func (n *node) reportSandboxFailure(f *health.Failure) {
	if n.placement.Excluded.Load() {
		return // it was ended with all other children
	}
	if f.Phase == "" {
		f.Phase = record.PhaseSandbox
	}
	n.sandboxFailureOnce.Do(func() {
		quoted := (&advice.Summary{Result: &record.Result{Cause: &f.Failure}, RunDir: n.Dir.Path()}).QuoteLog()
		n.Log.Error(strings.Join(append([]string{f.Message}, quoted...), "\n"))
		_ = n.publishFailure(f, record.StateSandboxFailed)
	})
}

// runSandboxDaemon runs the daemon of a sandbox in a job step of its own. It serves the node's
// sandbox for a run in another step of the same job, and returns its exit code.
func (w *worker) runSandboxDaemon() int {
	// Find the run, and start the sandbox for it.
	err := w.RunPhase(record.PhaseJoin, w.findSandboxRun)
	if err != nil {
		return w.exitUnjoined(err)
	}
	w.Background(w.followControl(record.StateSandboxHeartbeat))
	w.Background(w.HeartbeatTask(signal.NodesDir, record.StateSandboxHeartbeat))
	if err := w.serveSandbox(w.RunCtx); err != nil {
		w.CancelRun(err)
	} else {
		w.reportUp("the sandbox is ready")
	}
	// Wait for the end of the run, or for a failure here, and end the sandbox.
	<-w.RunCtx.Done()
	var end *lifecycle.Outcome
	if !errors.As(context.Cause(w.RunCtx), &end) {
		f := &health.Failure{Failure: health.AsFailure(context.Cause(w.RunCtx)).Failure}
		w.reportSandboxFailure(f)
		end = lifecycle.OutcomeOfVerdict(health.DecideVerdict([]health.ObservedFailure{{Failure: f.Failure}}, w.id.HostOf))
		if end.Requested {
			end = cmp.Or(w.awaitHeadOutcome(f), end)
		}
	}
	w.stopChildren(end)
	code := end.Code
	if end.Orderly {
		code = 0
	}
	w.Events.WriteEvent(eventlog.DaemonEnded, eventlog.Fields{Code: &code})
	return code
}

// findSandboxRun finds the run for which this sandbox was started, and this node's index in it, and
// starts the tasks that need the run directory.
func (w *worker) findSandboxRun() error {
	ctx, cancel := context.WithTimeoutCause(w.RunCtx, w.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewStepFinder(w.cfg.RunLocation(), w.id.Job, w.id.Restart)
	dir, job, err := finder.AwaitRun(ctx)
	if errors.Is(err, errDeadline) {
		return health.NewFailure(health.ShareUnusable, "cannot find the run of this sandbox: %s has seen none of job %s in %s for %s: start the other step with --sandbox-step and the same --log-dir",
			w.nodeName(w.id.NodeIndex), w.id.Job, w.cfg.LogDir, w.cfg.Times.Join)
	}
	if err != nil {
		return err
	}
	// Usually both steps have the same nodes in the same order.
	nodeIndex, err := dir.AwaitNodeIndex(ctx, w.id.Host, w.id.NodeIndex)
	if errors.Is(err, errDeadline) {
		return health.NewFailure(health.Launch, "cannot find %s among the nodes of run %s: start the sandbox's step on the same nodes", w.id.Host, dir.Name())
	}
	if err != nil {
		return err
	}
	w.id.NodeIndex, w.id.Size, w.id.Hosts = nodeIndex, job.Size, nil
	w.NodeIndex.Store(int64(nodeIndex))
	w.placement.Slot.Store(w.launchPlace())
	w.startRunTasks(dir.ForNode(nodeIndex), "sandbox-daemon", signal.WorkerPace(w.id.Size))
	return nil
}
