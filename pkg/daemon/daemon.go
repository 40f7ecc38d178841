package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Run runs a daemon in one attempt of a run, in the given role, and returns how it has left the
// run. The configuration must have been validated. When ctx ends, the daemon leaves as at an
// orderly end. Run returns only when all messages have been printed.
func Run(ctx context.Context, cfg deps.Config, role roles.DaemonRole) (exit lifecycle.Exit) {
	n, err := newNode(ctx, cfg, role)
	if err != nil {
		code := health.OutcomeOfKind(health.Internal).Code
		console.ReportStartError(cfg.Streams.Err, cfg.JSONLog, err, code)
		return lifecycle.Exit{Code: code}
	}
	stopWatch := context.AfterFunc(ctx, func() {
		n.finishWith(&lifecycle.Outcome{Orderly: true, Name: "stopped", Reason: "the daemon was told to end"})
	})
	defer func() {
		stopWatch()
		n.closeAll()
		// read last, because signals are handled until [node.closeAll] returns
		exit.EndRequested = n.EndRequested.Load()
	}()
	n.Background(func(ctx context.Context) {
		n.HandleSignals(ctx, cfg.Signals, n.id.Host, cfg.Times.StopGrace, n.children.ForwardSignal)
	})
	if role == roles.RoleHead {
		exit = runHead(n)
	} else {
		exit = (&worker{node: n}).runWorker()
	}
	return exit
}

// newNode returns a node with all its parts. Nothing runs yet except what needs no run directory.
func newNode(ctx context.Context, cfg deps.Config, role roles.DaemonRole) (*node, error) {
	super, err := cfg.NewChildStarter()
	if err != nil {
		return nil, err
	}
	if cfg.Access.Meter == nil {
		cfg.Access.Meter = new(signal.CallMeter)
	}
	if cfg.Network == nil {
		cfg.Network = peerlink.TCP{}
	}
	n := &node{cfg: cfg, id: cfg.Identity, defs: cfg.RunRoles(), Lifetime: lifecycle.NewLifetime(ctx)}
	// The parts, each of which needs those before it: records, console, telemetry, checks, children.
	n.Publisher = &lifecycle.Publisher{Lifetime: n.Lifetime, Events: eventlog.New(),
		Meter: cfg.Access.Meter, NodeIndex: n.id.NodeIndex, PeerTimeout: cfg.Times.Peer,
		LauncherTitle: n.id.LauncherTitle(), LauncherSignals: cfg.LauncherSignals()}
	n.Monitor = n.newMonitor()
	n.console = console.New(console.Config{Output: cfg.Streams.Err, JSON: cfg.JSONLog,
		Verbose: cfg.Verbose}, n.id, n.Events.Log)
	n.Log = n.console.Log
	n.telemetry = lifecycle.StartTelemetry(cfg.MetricsDir, lifecycle.TelemetrySource{
		ID: cfg.Identity, Role: role, Program: cfg.Program, Events: n.Events, Meter: cfg.Access.Meter, Log: n.Log,
	}, super.OwnPath)
	life := service.Contexts{Run: n.RunCtx, Teardown: n.WorkCtx, Grace: n.GraceCtx, Background: n.Background}
	n.privateDir = service.NewTempDir(cfg.TempDir, cfg.Times.Start, super.OwnPath, n.Log, life)
	n.privateDir.NoSockets = cfg.Simulation.NoSockets
	n.nodeEvents = &lifecycle.NodeEvents{Publisher: n.Publisher, Host: n.id.Host, Size: n.id.Size,
		Header: n.recordHeader}
	n.gpuMonitor = lifecycle.NewGPUMonitor(lifecycle.GPUMonitorConfig{Publisher: n.Publisher,
		GPUs: n.cfg.GPUs, Name: n.nodeName(n.id.NodeIndex), NodeEvents: n.nodeEvents,
		PrivateDir: n.PrivateDir, Header: n.recordHeader})
	if !cfg.Simulation.NoSockets {
		if n.ncclPort, err = ncclras.ReservePort(); err != nil {
			n.Log.Debug("bringupd why will not ask NCCL", zap.Error(err))
		}
	}
	n.checker = newChecker(n)
	n.steps = stepwatch.New(&cfg)
	n.part = planning.Part{Publisher: n.Publisher, Cfg: &n.cfg, ID: &n.id, Defs: n.defs}
	n.children = service.NewChildren(
		service.Config{Starter: super, Steps: n.steps, EventLog: n.Events, Log: n.Log,
			OnWriteError: n.LogWriteError, OnExit: n.exits.Add, GracePeriod: cfg.Times.StopGrace,
			SharedSignals: launcher.MaySignalAll(cfg.Environ)}, life)
	if err := process.RaiseFileLimit(); err != nil {
		n.Log.Warn("child processes start with the original limit of open files", zap.Error(err))
	}
	n.slot.Store(n.launchSlot())
	return n, nil
}

// newMonitor returns the monitor of this node's liveness. The head has its own heartbeat timing.
func (n *node) newMonitor() lifecycle.Monitor {
	m := lifecycle.Monitor{
		Publisher: n.Publisher, Times: n.cfg.Times, Timing: health.WorkerHeartbeatTiming(n.cfg.Times.Peer, n.id.Size),
		Name: n.nodeName(n.id.NodeIndex), Address: n.cfg.Address,
		IsStandby: n.isStandby,
	}
	if n.id.NodeIndex == 0 {
		m.Timing = health.HeadHeartbeatTiming(n.cfg.Times.Peer, n.id.Size)
	}
	return m
}

// closeAll ends all remaining tasks and children and waits for them, each for at most a second.
func (n *node) closeAll() {
	n.telemetry.ReportUp(false)
	withinSecond := func(end func(ctx context.Context)) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("the daemon is ending"))
		defer cancel()
		end(ctx)
	}
	withinSecond(func(ctx context.Context) {
		_ = n.children.EndAll(ctx) // children.Close below returns its error
		if n.Dir != nil {
			n.cfg.Access.Meter.AwaitIdle(ctx)
		}
	})
	n.Close()
	n.ncclPort.Close()
	n.privateDir.Remove(n.EndRequested.Load(), n.cfg.After.Clean.KeepsDirectories())
	withinSecond(n.telemetry.Close)
	// The guard ends last, because it cleans up after a killed daemon. It has its own timeout.
	withinSecond(func(ctx context.Context) {
		if err := n.children.Close(ctx); err != nil {
			n.Log.Warn("cannot end the guard", zap.Error(err))
		}
	})
	n.console.Mute()
	if unread := n.console.Close(); unread > 0 {
		n.Log.Warn("standard error was not read to its end", zap.Int("lines missing there", unread))
	}
	withinSecond(n.Events.Close)
}
