package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// localJoinTimeout replaces the join timeout if the log directory is on a local file system, but
// the launcher starts daemons on several machines: then waiting longer is useless.
const localJoinTimeout = 10 * time.Second

// runWorker runs a worker's daemon to its end.
func (w *worker) runWorker() lifecycle.Exit {
	if w.node.cfg.Roles.Step == "" {
		w.node.checker.StartEarly()
	}
	err := w.node.RunPhase(record.PhaseJoin, func() error { return w.joinRun() })
	if _, second := errors.AsType[*lifecycle.DuplicateDaemonError](err); second || w.node.Dir == nil {
		return lifecycle.Exit{Code: w.node.exitUnjoined(err), Duplicate: second}
	}
	w.node.Background(w.followControl)
	w.node.Background(w.node.commands.HandleOrders)
	w.node.Background(w.node.followSteps(nil))
	w.node.Background(w.node.HeartbeatTask(signal.NodesDir))
	if err == nil {
		err = w.runPhases(w.node.RunCtx)
	}
	if _, ok := errors.AsType[*lifecycle.DuplicateDaemonError](context.Cause(w.node.RunCtx)); ok {
		w.node.stopChildren(&lifecycle.Outcome{})
		return lifecycle.Exit{Code: w.node.exitUnjoined(context.Cause(w.node.RunCtx)), Duplicate: true}
	}
	end := w.negotiateOutcome(err)
	code := w.leaveRun(end)
	w.sendGoodbye()
	return lifecycle.Exit{Code: code, Outcome: end}
}

// joinRun finds the head's run directory, verifies that both daemons were launched alike, and
// publishes that this node has joined, with the nonce of the job record as a proof that it can
// read it.
func (w *worker) joinRun() error {
	dir, job, err := w.findRunDirectory()
	if err != nil {
		return err
	}
	// Start the tasks that need the run directory, so that also a refusal can be published.
	seen := time.Now()
	w.node.Events.LogSeen(signal.NameJob)
	w.headHost = job.Host
	w.prepareLink(job)
	w.node.startRunTasks(dir, launcher.DaemonLogKind(w.node.cfg.Roles.Step), signal.WorkerPace(w.node.id.Size))
	if w.node.Links != nil {
		w.node.ControlWatch.Relax() // the peer link, which is up soon, notifies each change
	}
	if job.Size != w.node.id.Size {
		return health.NewFailure(health.Launch,
			"cannot take part as %s of %d: the head's run has %d nodes; start all nodes with one launch",
			w.node.nodeName(w.node.id.NodeIndex), w.node.id.Size, job.Size)
	}
	if job.ConfigDigest != w.node.cfg.Digest() {
		remedy := "give all nodes the same flags, environment variables, configuration file and " +
			config.SitePath
		if job.ProgramVersion != w.node.cfg.Program {
			remedy += fmt.Sprintf(", and one bringupd: this is %s, and the head's is %s", w.node.cfg.Program,
				job.ProgramVersion)
		}
		return health.NewFailure(health.Usage,
			"cannot take part as %s: its configuration differs from the head's; %s",
			w.node.nodeName(w.node.id.NodeIndex), remedy)
	}
	reading := make(chan error, 1) // the early plan
	w.node.Background(func(context.Context) { reading <- w.node.part.ReadEarly(job) })
	// Publish that this node has joined, unless another daemon has done so under this index.
	address, err := w.node.selectedAddress()
	if err != nil {
		return err
	}
	name := signal.NodeName(w.node.id.NodeIndex, w.node.id.Size, record.StateJoined)
	err = w.node.ClaimRecord(signal.NodesDir, name, &record.Joined{
		JobNonce: job.Nonce, Address: address.Address, PID: os.Getpid(), ProgramVersion: w.node.cfg.Program,
		TimeToAnswer: time.Since(seen),
	})
	if errors.Is(err, signal.ErrAlreadyPublished) {
		return w.newDuplicateError("another daemon of this node has joined already")
	}
	if err != nil {
		return err
	}
	w.startLink(job)
	return <-reading
}

// findRunDirectory waits for the run directory and reads the job record; only for localJoinTimeout
// if the nodes cannot share the log directory.
func (w *worker) findRunDirectory() (dir *signal.Dir, job record.Job, err error) {
	ctx, cancel := context.WithTimeoutCause(w.node.RunCtx, w.node.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewFinder(w.node.cfg.RunLocation())
	short, cancelShort := context.WithTimeoutCause(ctx, localJoinTimeout, errDeadline)
	defer cancelShort()
	begin := time.Now()
	dir, job, err = finder.AwaitRun(short)
	if errors.Is(err, errDeadline) && ctx.Err() == nil &&
		(w.node.id.Launcher == launcher.LauncherLocal || !finder.FileSystem(ctx).Local) {
		dir, job, err = finder.AwaitRun(ctx)
	}
	if errors.Is(err, errDeadline) {
		return nil, job, w.runDirNotFoundFailure(time.Since(begin), finder, err)
	}
	return dir, job, err
}

// runDirNotFoundFailure returns the failure that the run directory has not appeared, with a hint.
// last is the error of the wait.
func (w *worker) runDirNotFoundFailure(waited time.Duration, finder *signal.Finder, last error) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(w.node.WorkCtx, lifecycle.UnresponsiveTimeout, errDeadline)
	defer cancel()
	kind := finder.FileSystem(ctx)
	remedy := "check that the head's task has started, and that this is the same file system as on the head"
	if kind.Local && w.node.id.Launcher != launcher.LauncherLocal {
		remedy = fmt.Sprintf("it is on %s there, which exists on one machine only: give a --log-dir "+
			"that all nodes share", kind.Name)
	}
	return health.NewFailure(health.ShareUnusable, "cannot find the head: %s has not seen run %s in %s for %s: %s",
		w.node.nodeName(w.node.id.NodeIndex), w.node.id.RunName(), w.node.cfg.LogDir, waited.Round(time.Second/10),
		remedy+health.DeadlineDetail(last))
}

// runPhases runs the phases. Its error is an orderly *lifecycle.Outcome, or the failure.
func (w *worker) runPhases(ctx context.Context) error {
	if err := w.awaitRequiredLink(ctx); err != nil {
		return err
	}
	if err := w.node.prepareNode(ctx); err != nil {
		return err
	}
	if w.node.cfg.AssignsPlaces() {
		w.node.Events.EnterPhase(record.PhaseStandby)
		w.node.ControlWatch.SpeedUp()
	}
	if err := w.runLocalRoles(ctx); err != nil {
		return err
	}
	switch {
	case w.node.cfg.AssignsPlaces():
		if err := w.awaitGate(ctx); err != nil {
			return err
		}
	case w.node.roles != nil:
		w.node.roles.AwaitServices(ctx)
	}
	// Start the ranks of this node at the gate, if any, and wait for the end of the run.
	if w.node.slot.Load() != nil && ctx.Err() == nil {
		w.node.Events.EnterPhase(record.PhaseDriver)
	}
	w.node.reportUp()
	if w.node.cfg.World.IsRequested() { // without a peer link, polls show the open gate
		_ = w.awaitGate(ctx)
	}
	w.slowPolling()
	<-ctx.Done()
	return context.Cause(ctx)
}

// awaitRequiredLink waits until the peer link is up, if the configuration requires one.
func (w *worker) awaitRequiredLink(ctx context.Context) error {
	if w.node.cfg.Lifeline != config.LinkOn {
		return nil
	}
	const what, remedy = "cannot keep the peer link", ", or give --lifeline=auto"
	if w.link == nil {
		return health.NewFailure(health.Launch, "%s: the head, %s, offers none; %s%s",
			what, w.node.nodeName(0), openPortsAdvice, remedy)
	}
	return w.awaitFirstConnection(ctx, what, remedy)
}

// openPortsAdvice is the advice to the user if a peer link cannot be made.
const openPortsAdvice = "allow connections between the nodes' ports"

// awaitFirstConnection waits for the first connection, at most for the peer timeout from the first
// attempt. Its failure begins with what needs the link, and ends with a remedy.
func (w *worker) awaitFirstConnection(ctx context.Context, what, remedy string) error {
	ctx, cancel := context.WithDeadlineCause(ctx, w.link.started.Add(w.node.cfg.Times.Peer), errDeadline)
	defer cancel()
	if ctxutil.AwaitDone(ctx, w.link.connected) {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return cause
	}
	return health.NewFailure(health.Launch, "%s: %s could not reach the head at %v within %s; %s%s",
		what, w.node.nodeName(w.node.id.NodeIndex), w.link.addresses, w.node.cfg.Times.Peer, openPortsAdvice, remedy)
}
