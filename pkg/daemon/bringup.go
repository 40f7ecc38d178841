package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/trail"
)

// runHead runs the head's daemon to its end. Its exit code is that of the job.
func runHead(n *node) run.Exit {
	h := newHead(n)
	h.fitness.lookEarly()
	err := h.sequence(h.Life)
	if h.Dir == nil {
		h.lines.Close()
		return run.Exit{Code: h.leaveAlone(err)}
	}
	end := h.conclude(h.deaths.judge(err, h.opened()))
	h.tellOver(end)
	h.lines.Close()
	return run.Exit{Code: end.Code, End: end}
}

// sequence runs the phases. Its error is an orderly *run.Ending if the driver has ended or a stop
// was requested, and otherwise the failure.
//
// The head's own service starts before all nodes have joined, so that it is up when they need it.
func (h *head) sequence(ctx context.Context) error {
	// Join, and meanwhile bring up this node, as soon as there is a run directory.
	parts, own := errgroup.WithContext(ctx)
	opened := make(chan struct{}) // closed when there is a run directory
	parts.Go(func() error {
		return h.Phase("join", func() error {
			if err := h.open(); err != nil {
				return err
			}
			if err := h.checkDriver(own); err != nil {
				return err
			}
			close(opened)
			h.Background(func(context.Context) { h.tellProgress(own) })
			h.Background(h.heedDeadline)
			return h.meet(own)
		})
	})
	parts.Go(func() error {
		if !pause.Await(own, opened) {
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
	if err := h.Phase("gate", func() error {
		if err := h.planRanks(ctx); err != nil {
			return err
		}
		return h.openGate()
	}); err != nil {
		return err
	}
	return h.Phase("driver", func() error { return h.letLook(ctx, h.drive(ctx)) })
}

// open makes the run directory, and starts the background tasks that poll it and that serve the
// other nodes.
func (h *head) open() error {
	address, _ := h.cfg.Address()
	lifelines, err := h.offerLines(address)
	if err != nil {
		return err
	}
	job := signal.Job{
		Digest: h.cfg.Digest(), Addresses: []string{address}, Program: h.cfg.Program, PID: os.Getpid(),
		SandboxStep: h.cfg.Sandbox.Step, Lifeline: lifelines, Hosts: roles.HostList(h.id.Hosts), Plan: h.cfg.Announced(),
		Launcher: string(h.id.Launcher), LaunchID: h.id.Job,
	}
	made, began := make(chan *signal.Dir, 1), time.Now()
	// A signal to end does not interrupt this at once: if the directory appeared after the head has
	// left, the other nodes would wait for a head that does not exist.
	err = h.Ask("make", h.id.RunName(), h.cfg.Times.Join, func(ctx context.Context) error {
		dir, err := signal.Create(ctx, h.cfg.Place(), job)
		made <- dir
		return err
	})
	if err != nil {
		return err
	}
	dir := <-made
	h.Trail.Published(signal.NameJob, began)
	h.canary.Arrivals = trail.NewArrivals(time.Now())
	// Poll the control directory steadily: no step waits for it, but requests may come at any time.
	pace := signal.HeadPace
	pace.Fast = pace.Steady
	h.begin(dir, "daemon", pace)
	// Watch the records of the nodes.
	pace = signal.HeadPace
	pace.Steady = min(h.tempo.Look, pace.Steady)
	h.nodes = dir.Watch(signal.Nodes, pace)
	h.deaths.nodes, h.deaths.lines, h.assembly.nodes = h.nodes, h.lines, h.nodes
	h.shown.Nodes(h.nodes)
	h.tellTrace()
	h.Log.Info("made the run directory", zap.String("dir", dir.Path()), zap.String("share", dir.FileSystem().Name))
	// Start the background tasks.
	h.Background(h.nodes.Run)
	h.requests = request.NewHead(h.commands, requestTeam{h})
	h.deaths.exchange = remote.NewExchange(remoteTeam{h}, h.remote)
	h.deaths.serveLines(h.requests)
	h.Background(h.deaths.followNodes)
	h.chronicle.Dir, h.chronicle.Nodes = dir, h.nodes
	h.Background(h.chronicle.Follow)
	h.Background(h.deaths.followRequests)
	h.Background(h.requests.FollowRequests)
	h.Background(h.pulse(signal.Control, signal.BeatState))
	h.Background(h.pointLatest)
	return nil
}

// offerLines opens the port for the workers' peer links, and returns its addresses. It returns none
// if peer links are disabled or not needed, or if the port cannot be opened and they are optional.
func (h *head) offerLines(address string) ([]string, error) {
	if h.cfg.Lifeline == config.LifelineOff || h.id.Size == 1 {
		return nil, nil
	}
	lines, where, err := lifeline.Offer(h.cfg.Network, h.cfg.Times.LineBeat(), address, h.id.Host)
	if err != nil && h.cfg.Lifeline == config.LifelineOn {
		return nil, health.Failed(health.Launch, "cannot offer lifelines on %s: %v; give --lifeline=auto", h.name(0), err)
	}
	if err != nil {
		h.Log.Warn("cannot offer lifelines: beat files replace them, and a death is noticed later", zap.Error(err))
		return nil, nil
	}
	h.lines = lines
	h.ties = &ties{Signs: lines.Signs} // must be set before [node.begin], because its tasks read it
	return where, nil
}

// tellTrace records the trace context of the run in the event log.
func (h *head) tellTrace() {
	trace := h.trace()
	h.Trail.Event(trail.Context, trail.Fields{Parent: trace.String(), Outer: trace.Outer})
}

// pointLatest makes the link "latest" in the log directory point at this run.
func (h *head) pointLatest(ctx context.Context) {
	if err := h.Dir.PointLatest(ctx); err != nil && ctx.Err() == nil {
		h.Log.Warn("cannot point at the newest run", zap.Error(err))
	}
}

// checkDriver verifies early that the driver's program exists. The check runs in the background and
// is abandoned at the join timeout or when ctx ends, because the file system may hang.
func (h *head) checkDriver(ctx context.Context) error {
	if len(h.cfg.Driver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.Times.Join, errDeadline)
	defer cancel()
	_, err := service.Answered(ctx, func() (struct{}, error) { return struct{}{}, process.Find(h.cfg.Driver[0], h.cfg.Environ) })
	switch cause := context.Cause(ctx); {
	case cause == nil || !errors.Is(err, cause):
		return driverFailure(h.name(0), err)
	case !errors.Is(cause, errDeadline):
		return cause
	}
	return health.Failed(health.Deadline, "cannot look at the driver on %s: the file system of %s has not answered for %s; see whether it hangs there",
		h.name(0), h.cfg.Driver[0], h.cfg.Times.Join)
}

// driverFailure returns the failure that the driver cannot be started on a node because of err. It
// returns nil if err is nil.
func driverFailure(node string, err error) error {
	if err == nil {
		return nil
	}
	return health.Failed(service.Unstarted(err), "cannot start the driver on %s: %v", node, err)
}

// meet publishes that the head has joined, and waits until every node has joined, or, with spares,
// until a team has been chosen. A node that has joined has read a random value that the head wrote,
// and the head reads the node's record: so the file system is shared in both directions.
func (h *head) meet(ctx context.Context) error {
	own := h.Publish(signal.Nodes, signal.NodeName(0, h.id.Size, signal.Joined), &signal.JoinedRecord{
		Canary: h.Dir.Nonce(), PID: os.Getpid(), Program: h.cfg.Program,
	}, false)
	if own != nil {
		return own
	}
	// With spares, late nodes are dropped, and the choice of the team also waits for the checks.
	within := h.cfg.Times.Join
	if h.roster.Spares() {
		within += h.cfg.CheckTime() + 2*h.tempo.Silent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	// If the log directory is on a local file system, nodes on other machines cannot join. The head
	// gives up early if none has joined within localJoin.
	suspect := h.Dir.FileSystem().Local && h.id.Launcher != roles.Local
	last, err := h.nodes.Wait(ctx, func(l signal.Listing) bool {
		h.canary.Arrivals.Note(l.Ranks(signal.Joined), l.At)
		if suspect && time.Since(h.assembly.began) > localJoin && len(l.Ranks(signal.Joined)) == 1 {
			cancel()
			return false
		}
		if h.assembly.givesUp(l.Missing(signal.Joined, h.id.Size)) {
			cancel()
			return false
		}
		if h.roster.Spares() {
			members, _ := h.roster.Team()
			return members != nil
		}
		return len(l.Missing(signal.Joined, h.id.Size)) == 0
	})
	if errors.Is(err, errDeadline) || errors.Is(err, context.Canceled) {
		return h.assembly.unmet(last.Missing(signal.Joined, h.id.Size))
	}
	return err
}

// bringUp runs the phases check, sandbox, head and workers until all nodes are up. Phases that do
// not depend on each other run concurrently.
func (h *head) bringUp(ctx context.Context) error {
	if err := h.fitness.prepare(ctx); err != nil {
		return err
	}
	if err := h.survey(); err != nil {
		return err
	}
	// The head's own sandbox starts separately: if the gate does not need it, nothing waits for it.
	h.slowSandbox.Go(func() {
		if err := h.serveSandbox(h.Life); err != nil {
			h.End(err)
		}
	})
	// Start the head's service, and bring up the team as soon as it is ready.
	parts, own := errgroup.WithContext(ctx)
	led := make(chan struct{}) // closed when the head's service is up
	parts.Go(func() error {
		err := h.lead(own)
		if err == nil {
			close(led)
		}
		return err
	})
	parts.Go(func() error {
		return h.assembly.assemble(own, func(team context.Context) error { return h.raise(team, own, led) })
	})
	return parts.Wait()
}

// raise waits until all nodes of the team have passed their checks and are up, and enough sandboxes
// are ready. led is closed when the head's service is up. life is the context of the head's own
// worker, which continues to run if the team changes and ctx ends.
func (h *head) raise(ctx, life context.Context, led <-chan struct{}) error {
	parts, own := errgroup.WithContext(ctx)
	parts.Go(func() error {
		if !pause.Await(own, led) {
			return context.Cause(own)
		}
		return h.workers(own, life)
	})
	parts.Go(func() error { return h.awaitChecks(own) })
	parts.Go(func() error { return h.awaitSandboxes(own) })
	return parts.Wait()
}

// lead starts the head's service, if the framework has one, and publishes its address.
func (h *head) lead(ctx context.Context) error {
	if !h.cfg.Framework.Serves() {
		return nil
	}
	return h.Phase("head", func() error {
		// Let the framework describe the service.
		self, err := h.describe(h.launchSeat())
		if err != nil {
			return err
		}
		service, endpoint, err := h.cfg.Framework.Head(self)
		if err != nil {
			return health.Failed(health.ServiceDied, "%v", err)
		}
		h.endpoint = endpoint
		// Start it and wait until it is ready. It is nil if the framework runs no process on the head.
		if service != nil {
			service.Env = h.childEnv(service.Env, h.launchSeat())
			if err := h.children.Serve(ctx, service, health.ServiceDied, h.cfg.Times.Service, func(f *health.Failure) { h.End(f) }); err != nil {
				return err
			}
		}
		h.stage.serving.Store(true)
		h.children.WatchStrangers(h.cfg.Framework, self, endpoint)
		return h.Publish(signal.Control, signal.NameHead, &signal.HeadRecord{Address: endpoint.Address, Env: endpoint.Env, Dashboard: endpoint.Dashboard}, false)
	})
}

// workers brings up the head's own worker, and waits until those of all other nodes are up and the
// framework lists them.
func (h *head) workers(ctx, life context.Context) error {
	if !h.cfg.Framework.Serves() || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return h.Phase("workers", func() error {
		if h.roster.Spares() {
			h.takeOwnSeat(life)
		} else if err := h.serveWorker(ctx, h.endpoint, h.post.Seat.Load()); err != nil {
			return err
		}
		if err := h.awaitAll(ctx, signal.Up, h.cfg.CheckTime()+2*h.cfg.Times.Service+h.tempo.Silent); err != nil {
			return err
		}
		return h.settle(ctx)
	})
}

// takeOwnSeat starts the head's own worker in its place in the team, which is always the first. It
// does nothing if the worker of this place runs already.
func (h *head) takeOwnSeat(ctx context.Context) {
	members, _ := h.roster.Team()
	if since, taken := h.post.Taken(); taken && since == members[0].Since {
		return
	}
	place := &team.Seat{Size: len(members), Since: members[0].Since}
	h.post.Take(ctx, place, func(ctx context.Context) error { return h.serveWorker(ctx, h.endpoint, place) })
}

// awaitChecks waits until all nodes of the team have passed their checks, and compares their
// reports.
func (h *head) awaitChecks(ctx context.Context) error {
	if !h.cfg.Checked() {
		return nil
	}
	if err := h.awaitAll(ctx, signal.Checked, h.cfg.CheckTime()+h.tempo.Silent); err != nil {
		return err
	}
	return h.compareNodes(ctx, h.nodes.Last())
}

// awaitSandboxes waits until the number of sandboxes that the gate requires are ready.
func (h *head) awaitSandboxes(ctx context.Context) error {
	if !h.cfg.Sandbox.Wanted() {
		return nil
	}
	return gate.Sandboxes{
		Require: h.cfg.Sandbox.Require, Step: h.cfg.Sandbox.Step, First: h.cfg.SandboxTime(h.Trail.Age()),
		Timeout: h.cfg.Times.Sandbox, Slack: h.tempo.Silent, Met: h.sandboxesMet, HostsOf: h.hostsOf,
		Late: func(l signal.Listing) []int { return h.roster.Missing(l, signal.Sandbox) },
	}.Await(ctx, h.nodes)
}

// settle waits until the framework's own list of members has contained every node for the settle
// time. It returns at once if the framework has no such list.
func (h *head) settle(ctx context.Context) error {
	counter, ok := h.cfg.Framework.(framework.Counter)
	if !ok {
		return nil
	}
	members := make([]framework.Member, 0, h.roster.Count())
	for _, rank := range h.roster.Ranks() {
		members = append(members, framework.Member{Rank: rank, Host: h.id.HostOf(rank)})
	}
	// Poll the list of the framework.
	within := h.cfg.Times.Service
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	self, err := h.describe(h.launchSeat())
	if err != nil {
		return err
	}
	h.stage.counting.Store(true)
	defer h.stage.counting.Store(false)
	err = framework.Settle(ctx, h.cfg.Times.Settle, func(ctx context.Context) error {
		return counter.Fleet(ctx, self, h.endpoint, members)
	})
	if errors.Is(err, errDeadline) {
		return health.Failed(health.ServiceDied, "%s does not count all %d nodes after %s: %v", h.cfg.Framework.Name(), len(members), within, err)
	}
	return err
}

// awaitAll waits until every node of the team has reached state. Each node has its own deadline for
// that, and reports a failure; the timeout here is for a node that does neither.
func (h *head) awaitAll(ctx context.Context, state string, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	last, err := h.nodes.Wait(ctx, func(l signal.Listing) bool {
		return len(h.roster.Missing(l, state)) == 0
	})
	if !errors.Is(err, errDeadline) {
		return err
	}
	return health.Failed(health.Deadline, "the head waited %s for %s to be %s, and they neither were nor failed",
		within, h.hostsOf(h.roster.Missing(last, state)), state)
}

// openGate publishes that everything is ready, and switches to the rare polls of a running job.
func (h *head) openGate() error {
	// Commands from outside may arrive as soon as the gate is open, so their environment is set first.
	h.surroundings.Store(&surroundings{endpoint: h.endpoint, hosts: h.assembly.teamHosts()})
	if err := h.Mark(signal.Control, signal.NameGo); err != nil {
		return err
	}
	h.gate = time.Since(h.assembly.began)
	h.isUp("the gate is open")
	// From now on the file system may be unresponsive, and is polled rarely.
	if h.lines != nil {
		h.lines.Run(h.cfg.Times.Outwaits())
	}
	h.nodes.Relax(h.tempo.Look)
	h.Control.Relax(h.tempo.Look)
	h.Background(h.canary.Measure)
	h.Background(h.cfg.After.Keep.Behind(h.Dir, h.cfg.Access.Meter, func(said string) { h.Log.Info(said) }))
	h.Log.Info("the gate is open", zap.Int("nodes", h.roster.Count()), zap.Duration("took", h.gate.Round(time.Millisecond)))
	return nil
}

// drive runs the driver, or the world of ranks, to its end. Without a driver it waits until the run
// is stopped. Its error is an orderly *run.Ending if the driver has ended by itself, whatever its
// exit code, and otherwise the cause of the end of the run.
func (h *head) drive(ctx context.Context) error {
	if len(h.cfg.Driver) == 0 {
		h.Log.Info("no driver: the job stays up until it is stopped", zap.String("run", h.Dir.Path()))
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if h.world != nil {
		return h.driveWorld(ctx)
	}
	// Start the driver.
	starting, started := h.lagging(ctx)
	driver, err := h.children.Start(starting, process.Spec{
		Name: service.Driver, Argv: h.cfg.Driver, Stdin: h.cfg.Files.In, Stdout: h.cfg.Files.Out, Stderr: h.cfg.Files.Err,
		Env: h.equip(h.driverEnv(h.childEnv(h.cfg.Environ, &team.Seat{Size: h.roster.Count()}), h.assembly.teamHosts(), h.endpoint)),
	})
	started()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return driverFailure(h.name(0), err)
	}
	// Wait for its end.
	h.driver = driver
	running, ended := context.WithCancel(ctx)
	defer ended()
	h.watchDriver(running, driver)
	if !pause.Await(ctx, driver.Ended()) {
		return context.Cause(ctx)
	}
	// Success ends the job, but commands of an mpirun may have been lost on other nodes.
	exit := driver.Exit()
	if exit.Status() == 0 {
		if broken := h.deaths.exchange.Broken(ctx); broken != "" {
			h.Log.Warn("the driver has ended with 0, but " + broken)
		}
	}
	// A driver that has succeeded ends the job with success, whatever else has failed at the same
	// time. A failure of the driver may be a consequence of another failure, which then is the cause.
	if exit.Status() != 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Slurm signals the processes of a step one after the other: if a signal has ended the driver, the
	// daemon may be about to receive the same one.
	if exit.Status() > 128 && !pause.For(ctx, service.Skew(exit)) {
		return context.Cause(ctx)
	}
	// The driver may have failed because of a lost node or a GPU error that is not known here yet.
	if exit.Status() != 0 && (!h.deaths.hearLosses(ctx) || !h.hearEvents(ctx)) {
		return context.Cause(ctx)
	}
	return &run.Ending{Orderly: true, Word: health.Driven, Code: exit.Status(), Why: "the driver has ended: " + exit.String()}
}

// hearEvents polls for GPU events once more, if any node has GPUs. A GPU error that has made the
// driver fail, or that makes the GPU unfit for the next job, may be published a moment later than
// the driver's exit. It reports whether the run continues.
func (h *head) hearEvents(ctx context.Context) bool {
	if h.stage.gpus.Load() {
		h.nodes.Nudge()
		h.deaths.hear()
		h.chronicle.CatchUp(h.Work, h.nodes.Last().Looks, run.SickShare)
	}
	return ctx.Err() == nil
}
