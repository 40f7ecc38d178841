package daemon

import (
	"context"
	"errors"
	"math"
	"os"
	ossignal "os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Signals returns the channel of signals that a daemon heeds. It is to be
// called first thing, so that none is missed.
func Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	// PIPE is caught, and not heeded: a program that doesn't is ended by the
	// first line that it writes to a standard error which nobody reads.
	ossignal.Notify(signals, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	return signals
}

// Run is the whole of a daemon's life as the role says; it returns its exit
// code. The configuration must have been validated. When ctx ends, the daemon
// leaves as at an orderly end. What is to be said has been said when it returns.
func Run(ctx context.Context, cfg Config, role roles.Role) int {
	n, err := newNode(ctx, cfg)
	if err != nil {
		code := health.OutcomeOf(health.Internal).Code
		Refuse(cfg.Files.Err, cfg.JSONLog, err, code)
		return code
	}
	defer n.close()
	n.show(role)
	n.background(n.heedSignals)
	switch role {
	case roles.Head:
		return n.runHead()
	case roles.Sandbox:
		return n.runSandbox()
	default:
		return n.runWorker()
	}
}

func newNode(ctx context.Context, cfg Config) (*node, error) {
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return nil, err
	}
	if cfg.Access.Meter == nil {
		cfg.Access.Meter = new(signal.Meter)
	}
	n := &node{cfg: cfg, id: cfg.Identity, super: super, trail: trail.New(), voice: newVoice(cfg.Files.Err, cfg.JSONLog)}
	n.tempo = health.WorkerTempo(cfg.Times.Peer, n.id.Size)
	if n.id.Rank == 0 {
		n.tempo = health.HeadTempo(cfg.Times.Peer, n.id.Size)
	}
	n.log, n.loud = newLogger(cfg, cfg.Identity, n.voice, n.trail.Log)
	if err := process.RaiseFiles(); err != nil {
		n.log.Warn("children start with the limit of open files as it was", zap.Error(err))
	}
	n.work, n.rest = context.WithCancel(context.WithoutCancel(ctx))
	n.graces()
	n.ended, n.over = context.WithCancelCause(n.work)
	n.life, n.end = context.WithCancelCause(n.work)
	n.seat.Store(n.launchSeat())
	n.left = context.AfterFunc(ctx, func() {
		n.finish(&ending{orderly: true, word: "stopped", why: "the daemon was told to leave"})
	})
	return n, nil
}

// errHurry is the cause of the contexts that graces hang from, when signals have
// ended them.
var errHurry = errors.New("signals have ended the graces")

// graces makes the contexts that end graces.
func (n *node) graces() {
	n.hurry, n.hasten = context.WithCancelCause(n.work)
	n.parting, n.insist = context.WithCancelCause(n.hurry)
	n.led, n.orphan = context.WithCancelCause(n.hurry)
}

// heedSignals ends the run at TERM or INT, ends the graces when the notices say
// so, and passes on to the driver what is meant for it.
func (n *node) heedSignals(ctx context.Context) {
	var heard notices
	driver := time.AfterFunc(math.MaxInt64, func() { n.insist(errHurry) })
	defer driver.Stop()
	all := time.AfterFunc(math.MaxInt64, func() { n.hasten(errHurry) })
	defer all.Stop()
	for {
		var sig syscall.Signal
		select {
		case <-ctx.Done():
			return
		case got := <-n.cfg.Signals:
			sig = got.(syscall.Signal)
		}
		before := heard
		heard = heard.with(sig, time.Now())
		if before.final.IsZero() && !heard.final.IsZero() {
			n.log.Info("TERM came with CONT, so KILL is near: the graces are cut", zap.Duration("to", endTime))
		}
		if driverBy, allBy := heard.limits(n.cfg.Times.StopGrace); !allBy.IsZero() {
			driver.Reset(time.Until(driverBy))
			all.Reset(time.Until(allBy))
		}
		switch sig {
		case syscall.SIGTERM, syscall.SIGINT:
			n.told.Store(true)
			n.mu.Lock() // a sandbox's daemon learns its rank late
			rank := n.id.Rank
			n.mu.Unlock()
			n.end(signalled(sig, n.id.Host, rank))
		case syscall.SIGPIPE:
		default:
			n.passOn(sig)
		}
	}
}

// passOn gives a signal to the driver, where it runs here.
func (n *node) passOn(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.starting {
		n.owed = append(n.owed, sig)
	}
	for _, child := range n.children {
		if child.Name() == driverName && !ended(child) {
			n.signal(child, sig)
		}
	}
}

func (n *node) signal(child *process.Child, sig syscall.Signal) {
	if err := child.Signal(sig); err != nil {
		n.log.Warn("cannot pass a signal on", zap.String("signal", process.SignalName(sig)), zap.Error(err))
	}
}

// expect notes that the driver is being started: it runs, and may ask for
// signals, before its start has returned.
func (n *node) expect(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.starting = n.starting || name == driverName
}

// adopt takes a child in, nil where its start failed, and gives the driver what
// has come for it meanwhile.
func (n *node) adopt(name string, child *process.Child) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if child != nil {
		n.children = append(n.children, child)
	}
	if name != driverName {
		return
	}
	for _, sig := range n.owed {
		if child != nil {
			n.signal(child, sig)
		}
	}
	n.starting, n.owed = false, nil
}

const driverName = "driver"
