package daemon

import (
	"context"
	"errors"
	"os"
	ossignal "os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/shown"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/trail"
	"github.com/bringupd/bringupd/pkg/voice"
)

// Run runs a daemon in one attempt of a run, in the given role, and returns how it has left the
// run. The configuration must have been validated. When ctx ends, the daemon leaves as at an
// orderly end. Run returns only when all messages have been printed.
func Run(ctx context.Context, cfg config.Config, role roles.Role) (exit run.Exit) {
	n, err := newNode(ctx, cfg, role)
	if err != nil {
		code := health.OutcomeOf(health.Internal).Code
		voice.Refuse(cfg.Files.Err, cfg.JSONLog, err, code)
		return run.Exit{Code: code}
	}
	defer func() {
		n.close()
		exit.Told = n.Told.Load() // read last, because signals are handled until [node.close] returns
	}()
	n.Background(func(ctx context.Context) { n.Heed(ctx, cfg.Signals, n.id.Host, cfg.Times.StopGrace, n.children.PassOn) })
	switch role {
	case roles.Head:
		exit = runHead(n)
	case roles.Sandbox:
		exit.Code = (&worker{node: n}).serveApart()
	default:
		exit = (&worker{node: n}).run()
	}
	return exit
}

// newNode returns a node with all its parts. Nothing runs yet except the tasks that need no run
// directory. When ctx ends, the node leaves in order.
func newNode(ctx context.Context, cfg config.Config, role roles.Role) (*node, error) {
	// Set the defaults of the options that tests and simulations replace.
	super, err := cfg.Starter()
	if err != nil {
		return nil, err
	}
	if cfg.Access.Meter == nil {
		cfg.Access.Meter = new(signal.Meter)
	}
	if cfg.Network == nil {
		cfg.Network = lifeline.TCP{}
	}
	// The identity and the heartbeat timing: the head has its own.
	n := &node{cfg: cfg, id: cfg.Identity, Lifetime: run.NewLifetime(ctx)}
	n.tempo = health.WorkerTempo(cfg.Times.Peer, n.id.Size)
	if n.id.Rank == 0 {
		n.tempo = health.HeadTempo(cfg.Times.Peer, n.id.Size)
	}
	// The parts, each of which needs those before it: records, console, telemetry, checks, children.
	n.Records = &run.Records{Lifetime: n.Lifetime, Trail: trail.New(), Meter: cfg.Access.Meter, Peer: cfg.Times.Peer, By: n.id.Title()}
	n.voice = voice.New(voice.Config{To: cfg.Files.Err, JSON: cfg.JSONLog, Verbose: cfg.Verbose}, n.id, n.Trail.Log)
	n.Log = n.voice.Log
	n.Rank.Store(int64(n.id.Rank))
	n.shown = shown.Begin(cfg.Shown, shown.Self{
		ID: cfg.Identity, Role: role, Program: cfg.Program, Trail: n.Trail, Meter: cfg.Access.Meter, Log: n.Log,
	}, super.Own)
	n.fitness = &fitness{node: n}
	life := service.Life{Run: n.Life, Work: n.Work, Hurry: n.Hurry, Background: n.Background}
	n.private = service.NewPrivate(cfg.TempDir, cfg.Times.Service, super.Own, n.Log, life)
	n.cards = cardsOf(n)
	n.children = service.NewChildren(
		service.Config{Super: super, Trail: n.Trail, Log: n.Log, Logged: n.Logged, Grace: cfg.Times.StopGrace, LargeLog: cfg.LargeLog, Shared: roles.SignalsAll(cfg.Environ)}, life)
	n.post.Owner = team.Owner{Background: n.Background, End: n.End, Stop: func(service string) {
		n.children.Stop(cfg.Times.StopGrace, func(child string) bool { return child == service })
	}}
	if err := process.RaiseFiles(); err != nil {
		n.Log.Warn("children start with the limit of open files as it was", zap.Error(err))
	}
	// Follow the caller's context.
	n.post.Seat.Store(n.launchSeat())
	n.Left = context.AfterFunc(ctx, func() {
		n.finish(&run.Ending{Orderly: true, Word: "stopped", Why: "the daemon was told to leave"})
	})
	return n, nil
}

// close ends all remaining tasks and children and waits for them, each for at most a second.
func (n *node) close() {
	n.Left()
	n.shown.Ending("the daemon has done its part")
	errEnding := errors.New("the daemon is ending")
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errEnding)
	defer cancel()
	_ = n.children.EndAll(ctx) // children.Close below returns its error
	n.cards.Kept(run.SickShare)
	if n.Dir != nil {
		n.cfg.Access.Meter.Settle(ctx)
	}
	n.Close()
	n.private.Remove(n.Told.Load(), n.cfg.After.Clean.Keeps())
	// The guard ends last, because it cleans up after a killed daemon. It has its own timeout.
	guardCtx, cancelGuard := context.WithTimeoutCause(context.Background(), time.Second, errEnding)
	defer cancelGuard()
	if err := n.children.Close(guardCtx); err != nil {
		n.Log.Warn("cannot end the guard", zap.Error(err))
	}
	n.voice.Hush()
	if unread := n.voice.Close(); unread > 0 {
		n.Log.Warn("nobody has read standard error to its end", zap.Int("lines missing there", unread))
	}
	// The timeout above may have expired, so the last lines have their own.
	ctx, cancelLast := context.WithTimeoutCause(context.Background(), time.Second, errEnding)
	defer cancelLast()
	var last sync.WaitGroup
	last.Go(func() { n.shown.Close(ctx) })
	n.Trail.Close(ctx)
	last.Wait()
}

// Signals returns the channel of signals that a daemon handles. It must be called first, so that no
// signal is lost.
func Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	// PIPE is caught and ignored: otherwise a line to a closed standard error would end the daemon.
	ossignal.Notify(signals, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	return signals
}
