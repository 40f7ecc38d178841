package attempt

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Run runs a daemon in the given role over all attempts, and returns its exit code. The
// configuration must have been validated. When ctx ends, the daemon leaves as at an orderly end. If
// the launch can have only one attempt, it calls daemon.Run.
func Run(ctx context.Context, cfg deps.Config, role roles.Role) int {
	traits := cfg.Identity.Launcher.Traits()
	if role == roles.RoleSandbox || cfg.After.Restarts == 0 && !traits.MayRelaunch {
		return daemon.Run(ctx, cfg, role).Code
	}
	l := &supervisor{cfg: cfg, isHead: cfg.Identity.NodeIndex == 0, relaunches: traits.MayRelaunch, relaunchesEach: traits.RelaunchesEachDaemon, runDaemon: daemon.Run}
	v := console.New(console.Config{Output: cfg.Streams.Err, JSON: cfg.JSONLog, Verbose: cfg.Verbose}, cfg.Identity, zapcore.AddSync(io.Discard))
	defer v.Close()
	l.logWarning = v.Log.Warn
	return l.runAttempts(ctx, role)
}

// supervisor is the state of one daemon over the attempts of a launch.
type supervisor struct {
	cfg            deps.Config
	isHead         bool
	relaunches     bool // the launcher may restart daemons
	relaunchesEach bool // it restarts each failed daemon
	runDaemon      func(context.Context, deps.Config, roles.Role) lifecycle.Exit
	logWarning     func(words string, fields ...zapcore.Field)

	hasStarted    bool // in this process
	minAttempt    int  // the minimum number of the next attempt
	failureStreak int  // number of consecutive early failures in this process
	// result of the newest finished attempt; nil if there is none
	lastResult *attemptResult
	headLost   bool                  // the head was lost in it
	earlier    deps.PreviousAttempts // information for the next attempt
}

// attemptResult is the result of an attempt.
type attemptResult struct {
	code   int
	reason string
	failed bool
}

// endError is the reason why a daemon ends between two attempts.
type endError struct {
	code   int
	reason string // empty if nothing is printed
}

func (e *endError) Error() string { return e.reason }

// runAttempts runs the attempts, and returns the exit code.
func (l *supervisor) runAttempts(ctx context.Context, role roles.Role) int {
	var told os.Signal // a head whose peers wait for it was asked to end
	for {
		attempt := l.minAttempt
		if told == nil {
			var err error
			attempt, err = l.nextAttempt(ctx)
			if told, err = l.resolveWaitError(err); err != nil {
				return l.reportEnd(err)
			}
		}
		// Take part in the attempt, and decide by its end whether another attempt follows.
		exit := l.runAttempt(ctx, role, attempt, told)
		switch {
		case exit.Duplicate && !exit.EndRequested: // the daemon that died there may have been this node's
			if err := l.awaitPreviousEnd(ctx, attempt); err != nil {
				return l.reportEnd(err)
			}
		case exit.Outcome == nil || exit.Outcome.NextAttempt.Number == 0 || told != nil || exit.EndRequested && !l.isHead || ctx.Err() != nil:
			return exit.Code
		default:
			l.prepareNext(exit)
			if exit.EndRequested { // after the decision
				told = syscall.SIGTERM
			}
		}
	}
}

// resolveWaitError decides by the reason why there is no next attempt whether the daemon ends. A
// head that is asked to end still makes the attempt, and ends it for all nodes, because the others
// wait for it.
func (l *supervisor) resolveWaitError(err error) (told os.Signal, _ error) {
	by, is := errors.AsType[*endSignalError](err)
	switch {
	case !is:
		return nil, err
	case l.isHead && l.lastResult != nil:
		return by.sig, nil
	default:
		f := lifecycle.NewSignalFailure(by.sig, l.cfg.Identity.Host, "", l.cfg.Identity.NodeIndex)
		return nil, &endError{health.OutcomeOfKind(f.Kind).Code, f.Message}
	}
}

// reportEnd prints why the daemon ends, and returns its exit code.
func (l *supervisor) reportEnd(err error) int {
	why, is := errors.AsType[*endError](err)
	if !is {
		f := health.AsFailure(err)
		why = &endError{health.OutcomeOfKind(f.Kind).Code, f.Message}
	}
	if why.reason != "" {
		l.logWarning(why.reason)
	}
	return why.code
}

// runAttempt takes part in an attempt. A signal that has arrived before is passed to the daemon
// first.
func (l *supervisor) runAttempt(ctx context.Context, role roles.Role, attempt int, told os.Signal) lifecycle.Exit {
	cfg := l.cfg
	cfg.Identity.Attempt, cfg.Previous = attempt, l.earlier
	if l.hasStarted && cfg.RenewChecks != nil {
		if err := cfg.RenewChecks(&cfg); err != nil {
			return lifecycle.Exit{Code: l.reportEnd(err)}
		}
	}
	l.hasStarted = true
	if told != nil {
		signals, stop := replaySignal(told, cfg.Signals)
		defer stop()
		cfg.Signals = signals
	}
	return l.runDaemon(ctx, cfg, role)
}

// prepareNext handles the end of an attempt that another one follows.
func (l *supervisor) prepareNext(exit lifecycle.Exit) {
	ending := exit.Outcome
	l.minAttempt = ending.NextAttempt.Number
	l.lastResult = &attemptResult{exit.Code, ending.Reason, true}
	if l.failureStreak++; ending.GateOpenTime > stableRunTime {
		l.failureStreak = 1
	}
	l.headLost = ending.Cause != nil && slices.Contains(ending.Cause.LostNodes, 0)
	l.earlier = l.earlier.AfterAttempt(ending.AllFailures(), l.cfg.Identity.HostOf)
}

// nextAttempt returns the attempt in which to take part, when it is time.
func (l *supervisor) nextAttempt(ctx context.Context) (int, error) {
	if l.isHead && l.lastResult != nil { // only the head makes the next one
		return l.minAttempt, l.waitFor(ctx, backoffPause(l.cfg.After.Backoff, l.failureStreak))
	}
	m, err := l.inspectNewest(ctx)
	for err == nil && m.actionKind == actionAwait {
		if err = l.awaitPreviousEnd(ctx, m.attempt); err == nil {
			m, err = l.inspectNewest(ctx)
		}
	}
	switch {
	case err != nil:
		return 0, err
	case m.actionKind == actionFinish:
		return 0, l.alreadyEndedError(m.attempt)
	case m.attempt == 0:
		return 0, nil
	case l.isHead:
		return m.attempt, l.waitFor(ctx, l.cfg.After.Backoff)
	default:
		return m.attempt, l.awaitDirectory(ctx, m.attempt)
	}
}
