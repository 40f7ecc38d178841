package daemon

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// runHead runs the head's daemon to its end. Its exit code is that of the job.
func runHead(n *node) lifecycle.Exit {
	h := newHead(n)
	h.node.checker.StartEarly()
	err := h.runPhases(h.node.RunCtx)
	if h.node.Dir == nil {
		h.peerLinks.Close()
		return lifecycle.Exit{Code: h.node.exitUnjoined(err)}
	}
	end := h.endRun(h.decideOutcome(err, h.gateOpenTime()))
	if !end.Orderly && h.peerLinks != nil {
		// Workers that know the end only by their peer links wait for this node's goodbye message, and the
		// launcher may end this daemon as soon as one of them exits.
		ctx, cancel := context.WithTimeoutCause(context.Background(), lifecycle.UnresponsiveTimeout, errDeadline)
		h.node.cfg.Access.Meter.AwaitIdle(ctx)
		cancel()
	}
	h.peerLinks.Close()
	return lifecycle.Exit{Code: end.Code, Outcome: end}
}

// runPhases runs the phases. Its error is an orderly *lifecycle.Outcome, or the failure.
func (h *head) runPhases(ctx context.Context) error {
	// Join, and meanwhile bring up this node, as soon as there is a run directory.
	parts, own := errgroup.WithContext(ctx)
	opened := make(chan struct{}) // closed when there is a run directory
	parts.Go(func() error {
		return h.node.RunPhase(record.PhaseJoin, func() error {
			if err := h.openRunDirectory(); err != nil {
				return err
			}
			if err := h.checkDriver(own); err != nil {
				return err
			}
			close(opened)
			h.node.Background(func(context.Context) { h.logGateProgress(own) })
			h.node.Background(h.enforceDeadline)
			return h.awaitJoin(own)
		})
	})
	parts.Go(func() error {
		if !ctxutil.AwaitDone(own, opened) {
			return context.Cause(own)
		}
		return h.bringUp(own)
	})
	if err := parts.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// All nodes are up: open the gate and run the driver.
	if err := h.node.RunPhase(record.PhaseGate, func() error {
		if err := h.planWorld(ctx); err != nil {
			return err
		}
		return h.openGate()
	}); err != nil {
		return err
	}
	return h.node.RunPhase(record.PhaseDriver, func() error {
		end := h.replaceByEarlierExit(ctx, h.runDriver(ctx))
		return h.keepForInspection(ctx, restart.ReplaceDriverEnd(&h.node.cfg, end, h.node.steps.Summary))
	})
}

// openRunDirectory makes the run directory, and starts the tasks that poll it and serve the other
// nodes.
func (h *head) openRunDirectory() error {
	address, err := h.node.selectedAddress()
	if err != nil {
		return err
	}
	lifelines, err := h.offerPeerLinks(address.Address)
	if err != nil {
		return err
	}
	job := record.Job{
		ConfigDigest: h.node.cfg.Digest(), Addresses: []string{address.Address},
		ProgramVersion: h.node.cfg.Program, PID: os.Getpid(),
		Steps: h.node.id.Steps, LinkAddresses: lifelines, Hosts: launcher.HostList(h.node.id.Hosts),
		Plan: h.node.cfg.PublishedPlan(),
		Launch: record.Launch{Launcher: string(h.node.id.Launcher), LaunchID: h.node.id.Job,
			LaunchAliases: h.node.id.JobAliases(launcher.EnvironmentOf(h.node.cfg.Environ))},
	}
	others := h.planRolesEarly(address)
	job.HasEarlyPlan = h.node.part.Early != nil
	made, began := make(chan *signal.Dir, 1), time.Now()
	// A signal to end does not interrupt this at once: if the directory appeared after the head has
	// left, the other nodes would wait for a head that does not exist.
	err = h.node.CallFileSystem("make", h.node.id.RunName(), h.node.cfg.Times.Join, func(ctx context.Context) error {
		dir, err := signal.CreateRun(ctx, h.node.cfg.RunLocation(), job, others...)
		made <- dir
		return err
	})
	if err != nil {
		return err
	}
	dir := <-made
	h.node.Events.LogPublication(signal.NameJob, began)
	// Poll the control directory steadily: no step waits for it, but requests may come at any time.
	pace := signal.HeadPace
	pace.MinPause = pace.MaxPause
	h.node.startRunTasks(dir, "daemon", pace)
	pace = signal.HeadPace
	pace.MaxPause = min(h.node.Timing.MaxPollInterval, pace.MaxPause)
	h.nodeWatch = dir.NewWatch(signal.NodesDir, pace)
	h.nodeWatch.AllNotified = func() bool { return h.node.Links.AllOnTime(time.Now()) }
	h.node.Reports.Send = func(name string, content []byte) { h.acceptReport(0, name, content) }
	h.node.Reports.SendOrder = h.sendOrder
	h.node.telemetry.WatchNodes(h.nodeWatch, h.node.steps.Summary)
	h.node.Log.Info("created the run directory",
		zap.String("dir", dir.Path()), zap.String("share", dir.FileSystem().Name))
	h.node.Background(h.nodeWatch.Run)
	h.requests = exec.NewHead(h.node.commands, commandNodes{h})
	h.startDecisions()
	h.servePeerLinks()
	h.node.Background(h.followNodes)
	h.nodeEventLog = &lifecycle.NodeEventLog{Dir: dir, Nodes: h.nodeWatch, Size: h.node.id.Size,
		ReadTimeout: h.node.Timing.SilenceTimeout, EventLog: h.node.Events, Log: h.node.Log}
	h.node.nodeEvents.OnEvent = h.nodeEventLog.AddEvent
	h.node.Background(h.nodeEventLog.FollowEvents)
	h.node.Background(h.suspects().Watch)
	h.node.Background(h.followRequests)
	h.node.Background(h.node.commands.HandleOrders)
	h.node.Background(h.node.HeartbeatTask(signal.ControlDir))
	h.node.Background(h.updateLatestLink)
	h.node.Background(h.node.followSteps(h.nodeWatch))
	return nil
}

// offerPeerLinks opens the port for the workers' peer links, and returns its addresses: none if
// peer links are disabled, not needed, or optional and impossible.
func (h *head) offerPeerLinks(address string) ([]string, error) {
	if h.node.cfg.Lifeline == config.LinkOff || h.node.id.CountMembers() == 1 {
		return nil, nil
	}
	lines, where, err := peerlink.OpenHead(h.node.cfg.Network, address, h.node.id.Host)
	if err != nil && h.node.cfg.Lifeline == config.LinkOn {
		return nil, health.NewFailure(health.Launch,
			"cannot offer peer links on %s: %v; give --lifeline=auto", h.node.nodeName(0), err)
	}
	if err != nil {
		h.node.Log.Warn("cannot offer peer links: heartbeat files replace them, and failures are "+
			"detected later", zap.Error(err))
		return nil, nil
	}
	h.peerLinks = lines
	// The links must be set before [node.startRunTasks], because its tasks read them.
	links := health.LinksConfig{
		Interval: h.node.cfg.Times.LinkHeartbeatInterval(),
		Required: h.node.id.Size - 1, HasSteps: len(h.node.id.Steps) > 0, NeededPeers: func() map[int]int64 {
			return h.membership.MonitoredPeers(h.nodeWatch.LastListing(), false)
		},
		// The interval in the limit leaves time to declare a peer lost before this node stops tolerating
		// the unresponsive file system.
		OutageLimit: h.node.Timing.SilenceTimeout + h.node.cfg.Times.LinkHeartbeatInterval(),
		TCPState:    func(node int) peerlink.TCPState { return lines.WorkerTCPState(node) },
	}
	h.node.Links = health.NewLinks(links, time.Now())
	return where, nil
}

// updateLatestLink makes the link "latest" in the log directory point at this run.
func (h *head) updateLatestLink(ctx context.Context) {
	if err := h.node.Dir.UpdateLatestLink(ctx); err != nil && ctx.Err() == nil {
		h.node.Log.Warn("cannot update the link to the newest run", zap.Error(err))
	}
}

// checkDriver verifies early that the driver's program exists. It is abandoned at the join
// timeout, because the file system may hang.
func (h *head) checkDriver(ctx context.Context) error {
	if len(h.node.cfg.Driver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.node.cfg.Times.Join, errDeadline)
	defer cancel()
	_, err := service.CallBounded(ctx, func() (string, error) {
		return process.ResolveProgram(h.node.cfg.Driver[0], h.node.cfg.Environ)
	})
	switch cause := context.Cause(ctx); {
	case cause == nil || !errors.Is(err, cause):
		return service.DriverStartFailure(h.node.nodeName(0), err)
	case !errors.Is(cause, errDeadline):
		return cause
	}
	return health.NewFailure(health.DeadlinePassed,
		"cannot check the driver on %s: the file system of %s has not responded for %s; check whether it hangs there",
		h.node.nodeName(0), h.node.cfg.Driver[0], h.node.cfg.Times.Join)
}

// awaitJoin publishes that the head has joined, and waits until every node has, or, with spares, a
// team is chosen. A node that has joined has read a random value of the head, and the head reads
// its record: so the file system is shared in both directions.
func (h *head) awaitJoin(ctx context.Context) error {
	own := h.node.Publish(signal.NodesDir, signal.NodeName(0, h.node.id.Size, record.StateJoined), &record.Joined{
		JobNonce: h.node.Dir.Nonce(), PID: os.Getpid(), ProgramVersion: h.node.cfg.Program,
	}, false)
	if own != nil {
		return own
	}
	// With spares, late nodes are dropped, and the choice of the team also waits for the checks.
	within := h.node.cfg.Times.Join
	if h.membership.HasSpares() {
		within += h.node.cfg.CheckTimeout() + 2*h.node.Timing.SilenceTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	// If the log directory is on a local file system, nodes on other machines cannot join. The head
	// gives up early if none has joined within localJoinTimeout.
	suspect := h.node.Dir.FileSystem().Local && h.node.id.Launcher != launcher.LauncherLocal
	last, err := h.nodeWatch.WaitListing(ctx, func(l signal.Listing) bool {
		isAlone := suspect && time.Since(h.started) > localJoinTimeout && len(l.NodesIn(record.StateJoined)) == 1
		if isAlone || h.shouldGiveUp(l.NodesNotIn(record.StateJoined, h.node.id.Size)) {
			cancel()
			return false
		}
		if h.membership.HasSpares() {
			members, _ := h.membership.Members()
			return members != nil
		}
		return len(l.NodesNotIn(record.StateJoined, h.node.id.Size)) == 0
	})
	if errors.Is(err, errDeadline) || errors.Is(err, context.Canceled) {
		return h.joinTimeoutFailure(last.NodesNotIn(record.StateJoined, h.node.id.Size))
	}
	return err
}

// bringUp runs the phases check, sandbox, head and workers, concurrently if they do not depend on
// each other.
func (h *head) bringUp(ctx context.Context) error {
	if err := h.node.prepareNode(ctx); err != nil {
		return err
	}
	if err := h.startAlone(); err != nil {
		return err
	}
	return h.awaitTeamUp(ctx, h.bringUpRoles)
}

// awaitChecks waits until all nodes of the team have passed their checks, and compares their
// reports.
func (h *head) awaitChecks(ctx context.Context) error {
	if !h.node.cfg.HasNodeChecks() {
		return nil
	}
	if err := h.awaitState(ctx, record.StateChecked, h.checksTimeout()); err != nil {
		return err
	}
	return h.compareNodes(ctx, h.nodeWatch.LastListing())
}

// awaitState waits until every node of the team has reached state. Each node has its own deadline;
// the one here is for a node that neither reaches it nor fails.
func (h *head) awaitState(ctx context.Context, state record.State, within time.Duration) error {
	return h.awaitNodes(ctx, "to be "+string(state), within,
		func(l signal.Listing) []int { return h.membership.MissingNodes(l, state) })
}

// awaitNodes waits for the nodes that are missing according to a listing to do something.
func (h *head) awaitNodes(ctx context.Context, something string, within time.Duration,
	missing func(signal.Listing) []int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	last, err := h.nodeWatch.WaitListing(ctx, func(l signal.Listing) bool { return len(missing(l)) == 0 })
	if !errors.Is(err, errDeadline) {
		return err
	}
	return h.lateNodesFailure(within, missing(last), something)
}

// lateNodesFailure returns the failure that nodes have not done something in time.
func (h *head) lateNodesFailure(within time.Duration, late []int, something string) *health.Failure {
	return health.NewFailure(health.DeadlinePassed,
		"the head waited %s for %s %s, which neither happened nor failed", within, h.node.nodeNames(late), something)
}

// openGate publishes that everything is ready, and switches to the rare polls of a running job.
func (h *head) openGate() error {
	// Commands from outside may arrive as soon as the gate is open, so their environment is set first.
	team := &service.Team{Hosts: h.teamHosts(), Endpoint: h.running.cluster.Endpoint}
	if ofRole := h.node.serviceInfo.Load(); ofRole != nil {
		team.Endpoint = ofRole.Endpoint
	}
	h.node.serviceInfo.Store(team)
	if all := h.roleHead(); all != nil {
		all.OpenGate(h.node.RunCtx)
	}
	toGate := h.node.Events.SinceStart()
	if err := h.node.MarkName(signal.ControlDir, signal.NameGateOpen); err != nil {
		return err
	}
	h.node.ControlWatch.NotifyChange() // the head's own instances
	h.progress.timeToGate = toGate
	h.node.reportUp()
	// From now on the file system may be unresponsive, and is polled rarely.
	h.node.Links.SetRunning(h.node.cfg.Times.ToleratesShareOutage())
	h.nodeWatch.SlowDown(h.node.Timing.MaxPollInterval)
	h.node.ControlWatch.SlowDown(h.node.Timing.MaxPollInterval)
	took := h.progress.timeToGate
	h.node.Log.Log(lifecycle.ProgressLevel(took), "the gate is open",
		zap.Int("nodes", h.membership.Count()), zap.String("took", textutil.RoundedDuration(took, time.Minute)))
	return nil
}

// runDriver waits until the driver, the primary roles or the world has ended; without one it waits
// for a stop. Its error is an orderly *lifecycle.Outcome if that has ended by itself, and otherwise
// the cause of the end.
func (h *head) runDriver(ctx context.Context) error {
	if !h.node.cfg.HasPrimary() {
		level := zapcore.InfoLevel
		if h.node.id.Size == 1 { // whose console shows only warnings
			level = zapcore.WarnLevel
		}
		h.node.Log.Log(level, "no driver: the job stays up until it is stopped", zap.String("run", h.node.Dir.Path()))
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if h.running.world.Load() != nil {
		h.node.Background(func(context.Context) { h.watchRankLinks(ctx) })
	}
	why, err := h.roleHead().AwaitPrimaries(ctx)
	if err == nil {
		err = h.running.world.Load().AwaitSpawned(ctx)
	}
	driver := h.node.children.FindChild(service.DriverName)
	switch {
	case driver != nil && service.HasEnded(driver): // perhaps when the run ends
		return h.driverEnd(ctx, driver)
	case err != nil:
		return err
	default:
		return h.primariesEnd(ctx, why)
	}
}

// DriverSpec implements [instances.DriverHost].
func (h *head) DriverSpec() process.Spec {
	service.LogRemoved(h.node.Log, h.node.cfg.Environ, h.node.cfg.Driver)
	return process.Spec{
		Name: service.DriverName, Argv: h.node.cfg.Driver, Stdin: h.node.cfg.Streams.In,
		Stdout: h.node.cfg.Streams.Out, Stderr: h.node.cfg.Streams.Err,
		Env: h.addRemoteEnv(h.node.environ(launcher.ChildCommand, h.node.cfg.Environ,
			&service.Slot{Size: h.membership.Count()},
			&service.Team{Hosts: h.teamHosts(), Endpoint: h.running.cluster.Endpoint})),
	}
}

// driverEnd returns the outcome that follows from the end of the driver, or the cause of the end of the
// run if that explains it.
func (h *head) driverEnd(ctx context.Context, driver process.Handle) error {
	exit := driver.Exit()
	if exit.ShellStatus() == 0 {
		h.awaitExitReports(ctx)
	}
	h.node.children.AwaitOutput(driver) // its last step decides about a restart
	// Success ends the job, but commands of an mpirun may have been lost on other nodes.
	if exit.ShellStatus() == 0 {
		if broken := h.requests.DescribeBroken(ctx); broken != "" {
			h.node.Log.Warn("the driver has ended with 0, but " + broken)
		}
	}
	// A driver that has succeeded ends the job with success, whatever else has failed at the same
	// time, except for a service that has ended before it. A failure of the driver may be a
	// consequence of another failure, which then is the cause.
	if exit.ShellStatus() != 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Slurm signals the processes of a step one after the other: if a signal has ended the driver, the
	// daemon may be about to receive the same one.
	if exit.ShellStatus() > 128 && !ctxutil.SleepContext(ctx, service.SignalDelay(exit)) {
		return context.Cause(ctx)
	}
	// The driver may have failed because of a lost node or a GPU error that is not known here yet.
	if exit.ShellStatus() != 0 && (!h.settlePeerStates(ctx) || !h.drainGPUEvents(ctx)) {
		return context.Cause(ctx)
	}
	why, requested := h.node.children.EndedBySignal(driver)
	if line := service.ErrorLine(driver); line != "" && !requested {
		why = ": " + line
	}
	return &lifecycle.Outcome{Orderly: true, Requested: requested, Name: health.DriverOutcomeName,
		Code: exit.ShellStatus(), Reason: "the driver has ended: " + exit.String() + why}
}

// answerTimeout is how long the head waits, at the end, for all nodes to answer.
const answerTimeout = 200 * time.Millisecond

// awaitExitReports waits until all nodes have reported the exits of services so far. The driver,
// or what replaces it, has just ended with success.
func (h *head) awaitExitReports(ctx context.Context) {
	asked := time.Now()
	h.progress.endedAt = asked
	hasOthers := slices.ContainsFunc(h.node.defs,
		func(d roles.Definition) bool { return !d.Primary || d.BuiltIn == "" })
	if h.peerLinks != nil && hasOthers {
		h.peerLinks.RequestHeartbeats()   // they come after the reports
		isUncertain := func() (is bool) { // whether a peer is alive
			h.decide(func() { is = h.losses.HasUncertainPeer(h.nodeWatch.LastListing(), time.Now(), asked) })
			return is
		}
		for isUncertain() && time.Since(asked) < answerTimeout && ctxutil.SleepContext(ctx, statePollInterval/5) {
		}
	}
	h.progress.reportedAt = time.Now()
}

// replaceByEarlierExit returns end, the end of the driver, but the failure of a service that has
// ended before a driver that succeeds, even if it is known only now.
func (h *head) replaceByEarlierExit(ctx context.Context, end error) error {
	if o, ok := errors.AsType[*lifecycle.Outcome](end); !ok || !o.Orderly || o.Requested || o.Code != 0 {
		return end
	}
	if h.progress.endedAt.IsZero() {
		h.awaitExitReports(ctx)
	}
	own, others := h.node.exits.Await(ctx, h.progress.endedAt), h.remoteExits.Await(ctx, h.progress.reportedAt)
	cause := context.Cause(ctx)
	if kind, _ := lifecycle.FailureKind(cause); cause != nil && (own || others) &&
		(kind == health.ServiceDied || kind == health.SandboxDied) {
		return cause
	}
	return end
}

// drainGPUEvents polls for GPU events once more: one that explains the driver's exit may be
// published a moment later. It reports whether the run continues.
func (h *head) drainGPUEvents(ctx context.Context) bool {
	if h.progress.hasGPUs.Load() {
		h.awaitFreshListing()
		h.nodeEventLog.AwaitListing(h.node.WorkCtx, h.nodeWatch.LastListing().Polls,
			lifecycle.UnresponsiveTimeout)
	}
	return ctx.Err() == nil
}
