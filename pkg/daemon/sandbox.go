package daemon

import (
	"cmp"
	"context"
	"errors"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// serveSandbox starts the node's sandbox, waits until it is ready, and publishes that. If the
// sandbox fails, it publishes that instead and returns nil, because the head decides whether enough
// sandboxes are left. It does nothing if no sandbox is configured.
func (n *node) serveSandbox(ctx context.Context) error {
	if n.cfg.Sandbox.Command == "" {
		return nil
	}
	return n.Phase("sandbox", func() error {
		service := &framework.Service{Name: "sandbox", Argv: service.Shell(n.cfg.Sandbox.Command), Env: n.childEnv(n.cfg.Environ, n.launchSeat())}
		if probe := n.cfg.Sandbox.Ready; probe != nil {
			service.Ready = probe.Try
			service.Port, _ = probe.Port()
		}
		err := n.children.Serve(ctx, service, health.SandboxDied, n.cfg.Times.Sandbox, n.sandboxFailed)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // this is not a failure of the sandbox
		}
		if f, ok := errors.AsType[*health.Failure](err); ok {
			n.sandboxFailed(f)
			return nil
		}
		if err != nil {
			return err
		}
		return n.Tell(signal.Sandbox)
	})
}

// sandboxFailed logs and publishes the failure of this node's sandbox, once.
func (n *node) sandboxFailed(f *health.Failure) {
	if n.post.Aside.Load() {
		return // it was ended with all other children
	}
	if f.Phase == "" {
		f.Phase = "sandbox"
	}
	n.sandboxTold.Do(func() {
		n.Log.Error(n.withLines(&f.FailedRecord))
		_ = n.report(f, signal.SandboxFailed)
	})
}

// serveApart runs the daemon of a sandbox in a job step of its own. It serves the node's sandbox
// for a run in another step of the same job, and returns its exit code.
func (w *worker) serveApart() int {
	// Find the run, and start the sandbox for it.
	err := w.Phase("join", w.attach)
	if err != nil {
		return w.leaveAlone(err)
	}
	w.Background(w.followControl(signal.SandboxBeat))
	w.Background(w.pulse(signal.Nodes, signal.SandboxBeat))
	if err := w.serveSandbox(w.Life); err != nil {
		w.End(err)
	} else {
		w.isUp("the sandbox is ready")
	}
	// Wait for the end of the run, or for a failure here, and end the sandbox.
	<-w.Life.Done()
	var end *run.Ending
	if !errors.As(context.Cause(w.Life), &end) {
		f := &health.Failure{FailedRecord: health.AsFailure(context.Cause(w.Life)).FailedRecord}
		w.sandboxFailed(f)
		end = run.EndingOf(health.Decide([]health.Observed{{FailedRecord: f.FailedRecord}}, w.id.HostOf))
		if end.Gentle {
			end = cmp.Or(w.awaitEnd(f), end)
		}
	}
	w.stopAll(end)
	code := end.Code
	if end.Orderly {
		code = 0
	}
	w.Trail.Event(trail.End, trail.Fields{Code: &code})
	return code
}

// attach finds the run for which this sandbox was started, and this node's index in it, and starts
// the tasks that need the run directory.
func (w *worker) attach() error {
	ctx, cancel := context.WithTimeoutCause(w.Life, w.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewStepFinder(w.cfg.Place(), w.id.Job, w.id.Restart)
	dir, job, err := finder.Find(ctx)
	if errors.Is(err, errDeadline) {
		return health.Failed(health.Share, "cannot find the run that this sandbox is for: %s has seen none of job %s in %s for %s: start the other step with --sandbox-step and the same --log-dir",
			w.name(w.id.Rank), w.id.Job, w.cfg.LogDir, w.cfg.Times.Join)
	}
	if err != nil {
		return err
	}
	// Usually both steps have the same nodes in the same order.
	rank, err := dir.RankOf(ctx, w.id.Host, w.id.Rank)
	if errors.Is(err, errDeadline) {
		return health.Failed(health.Launch, "cannot find %s among the nodes of run %s: start the sandbox's step on the same nodes", w.id.Host, dir.Name())
	}
	if err != nil {
		return err
	}
	w.id.Rank, w.id.Size, w.id.Hosts = rank, job.Size, nil
	w.Rank.Store(int64(rank))
	w.post.Seat.Store(w.launchSeat())
	w.begin(dir.As(rank), "sandbox-daemon", signal.WorkerPace(w.id.Size))
	return nil
}
