package attempt

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/voice"
)

// Run runs a daemon in the given role over all attempts, and returns its exit code. The
// configuration must have been validated. When ctx ends, the daemon leaves as at an orderly end. If
// the launch can have only one attempt, it calls daemon.Run.
func Run(ctx context.Context, cfg config.Config, role roles.Role) int {
	traits := cfg.Identity.Launcher.Traits()
	if role == roles.Sandbox || cfg.After.Restarts == 0 && !traits.Relaunches {
		return daemon.Run(ctx, cfg, role).Code
	}
	l := &launch{cfg: cfg, head: cfg.Identity.Rank == 0, relaunches: traits.Relaunches, each: traits.RelaunchesEach, take: daemon.Run}
	v := voice.New(voice.Config{To: cfg.Files.Err, JSON: cfg.JSONLog, Verbose: cfg.Verbose}, cfg.Identity, zapcore.AddSync(io.Discard))
	defer v.Close()
	l.log = v.Log.Warn
	return l.run(ctx, role)
}

// launch is the state of one daemon over the attempts of a launch.
type launch struct {
	cfg        config.Config
	head       bool
	relaunches bool // the launcher may restart daemons
	each       bool // it restarts each failed daemon
	take       func(context.Context, config.Config, roles.Role) run.Exit
	log        func(words string, fields ...zapcore.Field)

	begun   bool           // in this process
	floor   int            // the minimum number of the next attempt
	row     int            // number of consecutive early failures in this process
	verdict *verdict       // result of the newest finished attempt; nil if there is none
	lost    bool           // the head was lost in it
	earlier config.Earlier // information for the next attempt
}

// verdict is the result of an attempt.
type verdict struct {
	code   int
	why    string
	failed bool
}

// end is the reason why a daemon ends between two attempts.
type end struct {
	code int
	why  string // empty if nothing is printed
}

func (e *end) Error() string { return e.why }

// run runs the attempts, and returns the exit code.
func (l *launch) run(ctx context.Context, role roles.Role) int {
	var told os.Signal // a head whose peers wait for it was asked to end
	for {
		attempt := l.floor
		if told == nil {
			var err error
			attempt, err = l.next(ctx)
			if told, err = l.ends(err); err != nil {
				return l.leave(err)
			}
		}
		// Take part in the attempt, and decide by its end whether another attempt follows.
		exit := l.begin(ctx, role, attempt, told)
		switch {
		case exit.Second && !exit.Told: // the daemon that died there may have been this node's
			if err := l.outlive(ctx, attempt); err != nil {
				return l.leave(err)
			}
		case exit.End == nil || exit.End.Again.Attempt == 0 || told != nil || exit.Told && !l.head || ctx.Err() != nil:
			return exit.Code
		default:
			l.follow(exit)
			if exit.Told { // after the decision
				told = syscall.SIGTERM
			}
		}
	}
}

// ends decides by the reason why there is no next attempt whether the daemon ends. A head that is
// asked to end still makes the attempt, and ends it for all nodes, because the others wait for it.
func (l *launch) ends(err error) (told os.Signal, _ error) {
	by, is := errors.AsType[*toldToEnd](err)
	switch {
	case !is:
		return nil, err
	case l.head && l.verdict != nil:
		return by.sig, nil
	default:
		f := run.Signalled(by.sig, l.cfg.Identity.Host, "", l.cfg.Identity.Rank)
		return nil, &end{health.OutcomeOf(health.Kind(f.Kind)).Code, f.What}
	}
}

// leave prints why the daemon ends, and returns its exit code.
func (l *launch) leave(err error) int {
	why, is := errors.AsType[*end](err)
	if !is {
		f := health.AsFailure(err)
		why = &end{health.OutcomeOf(health.Kind(f.Kind)).Code, f.What}
	}
	if why.why != "" {
		l.log(why.why)
	}
	return why.code
}

// begin takes part in an attempt. A signal that has arrived before is passed to the daemon first.
func (l *launch) begin(ctx context.Context, role roles.Role, attempt int, told os.Signal) run.Exit {
	cfg := l.cfg
	cfg.Identity.Attempt, cfg.Earlier = attempt, l.earlier
	if l.begun && cfg.Renew != nil {
		if err := cfg.Renew(&cfg); err != nil {
			return run.Exit{Code: l.leave(err)}
		}
	}
	l.begun = true
	if told != nil {
		signals, stop := retold(told, cfg.Signals)
		defer stop()
		cfg.Signals = signals
	}
	return l.take(ctx, cfg, role)
}

// follow handles the end of an attempt that another one follows.
func (l *launch) follow(exit run.Exit) {
	ending := exit.End
	l.floor = ending.Again.Attempt
	l.verdict = &verdict{exit.Code, ending.Why, true}
	if l.row++; ending.Opened > long {
		l.row = 1
	}
	l.lost = ending.Cause != nil && slices.Contains(ending.Cause.Lost, 0)
	l.earlier = l.earlier.After(ending.Failures(), l.cfg.Identity.HostOf)
}

// next returns the attempt in which to take part, when it is time.
func (l *launch) next(ctx context.Context) (int, error) {
	if l.head && l.verdict != nil { // only the head makes the next one
		return l.floor, l.wait(ctx, backoff(l.cfg.After.Backoff, l.row))
	}
	m, err := l.look(ctx)
	for err == nil && m.doing == await {
		if err = l.outlive(ctx, m.attempt); err == nil {
			m, err = l.look(ctx)
		}
	}
	switch {
	case err != nil:
		return 0, err
	case m.doing == finish:
		return 0, l.finished(m.attempt)
	case m.attempt == 0:
		return 0, nil
	case l.head:
		return m.attempt, l.wait(ctx, l.cfg.After.Backoff)
	default:
		return m.attempt, l.meet(ctx, m.attempt)
	}
}
