// Package restart decides what follows a failed run, and runs a daemon over all attempts of its
// launch.
//
// The attempts are counted by their directories: each has a run directory of its own, which the
// head makes, and a daemon that starts looks for the newest. So a daemon that its launcher has
// restarted finds its peers without knowing the number of restarts.
package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RunDaemon runs a daemon in the given role in one attempt.
type RunDaemon func(ctx context.Context, cfg deps.Config, role roles.DaemonRole) lifecycle.Exit

// Run runs a daemon in the given role over all attempts, and returns its exit code. The
// configuration must have been validated. When ctx ends, the daemon leaves as at an orderly end.
func Run(ctx context.Context, cfg deps.Config, role roles.DaemonRole, runDaemon RunDaemon) int {
	launcher := cfg.Identity.Launcher.Facts()
	ofStep := cfg.Roles.Step != ""
	if cfg.After.Restarts == 0 && !launcher.MayRelaunch && !ofStep {
		return runDaemon(ctx, cfg, role).Code
	}
	c := console.New(console.Config{
		Output: cfg.Streams.Err, JSON: cfg.JSONLog, Verbose: cfg.Verbose,
	}, cfg.Identity, zapcore.AddSync(io.Discard))
	defer c.Close()
	s := &supervisor{
		cfg: cfg, relaunches: launcher.MayRelaunch, relaunchesEach: launcher.RelaunchesEachDaemon,
		runDaemon: runDaemon, logWarning: c.Log.Warn,
	}
	if ofStep {
		if err := s.untilSignal(ctx, s.adoptRun); err != nil {
			return s.reportEnd(err)
		}
	}
	s.isHead = s.cfg.Identity.NodeIndex == 0
	return s.runAttempts(ctx, role)
}

// supervisor is the state of one daemon over the attempts of a launch.
type supervisor struct {
	cfg            deps.Config // Previous is the information for the next attempt
	isHead         bool
	relaunches     bool // the launcher may restart daemons
	relaunchesEach bool // it restarts each failed daemon
	runDaemon      RunDaemon
	logWarning     func(message string, fields ...zapcore.Field)

	hasStarted    bool           // in this process
	minAttempt    int            // the minimum number of the next attempt
	failureStreak int            // number of consecutive early failures in this process
	lastResult    *record.Result // the newest finished attempt's; nil if there is none
	headLost      bool           // the head was lost in it
	// its end, if this daemon has written the result in place of the head; otherwise nil
	claimed *lifecycle.Outcome
}

// endError is the reason why a daemon ends between two attempts.
type endError struct {
	code   int
	reason string // empty if nothing is printed
}

func (e *endError) Error() string { return e.reason }

// endSignalError is the reason why a signal ends the wait for an attempt.
type endSignalError struct{ sig os.Signal }

func (e *endSignalError) Error() string { return e.sig.String() }

// runAttempts runs the attempts, and returns the exit code.
func (s *supervisor) runAttempts(ctx context.Context, role roles.DaemonRole) int {
	s.continueHistory(ctx)
	var requested os.Signal // a head whose peers wait for it was asked to end
	for {
		attempt := s.minAttempt
		if requested == nil {
			err := s.untilSignal(ctx, func(ctx context.Context) (err error) {
				attempt, err = s.nextAttempt(ctx)
				return err
			})
			// A head that is asked to end still makes the attempt, and ends it for all nodes, because
			// the others wait for it.
			if by, is := errors.AsType[*endSignalError](err); is && s.isHead && s.lastResult != nil {
				requested, err = by.sig, nil
			}
			if err != nil {
				return s.reportEnd(err)
			}
		}
		// Take part in the attempt, and decide by its end whether another attempt follows.
		exit := s.runAttempt(ctx, role, attempt, requested)
		switch {
		case exit.Duplicate && !exit.EndRequested: // the daemon that died there may have been this node's
			err := s.untilSignal(ctx, func(ctx context.Context) error {
				return s.awaitPreviousEnd(ctx, attempt)
			})
			if err != nil {
				return s.reportEnd(err)
			}
		case exit.Outcome == nil || exit.Outcome.NextAttempt.Number == 0 || requested != nil ||
			exit.EndRequested && !s.isHead || ctx.Err() != nil:
			return exit.Code
		default:
			s.prepareNext(exit)
			if exit.EndRequested { // after the decision
				requested = syscall.SIGTERM
			}
		}
	}
}

// continueHistory continues the history of restarts if the job was requeued. Only the head needs
// it.
func (s *supervisor) continueHistory(ctx context.Context) {
	if !s.isHead || s.cfg.After.Restarts == 0 {
		return
	}
	if last, ok := s.cfg.PreviousStart(ctx); ok && last.History != nil {
		end := lifecycle.Outcome{Cause: last.Cause}
		s.cfg.Previous.History = addNodeFailures(*last.History, end.AllFailures(), &s.cfg.Identity)
		s.continueProgress(last.Progress)
	}
}

// continueProgress continues the progress of an attempt before the start of this process.
func (s *supervisor) continueProgress(p *record.Progress) {
	if p != nil {
		s.cfg.Previous.History.Progress, s.cfg.Previous.EarlierDuration = p, p.Elapsed
	}
}

// untilSignal runs wait with a context that also ends at a signal to end. If the context ends, it
// returns an *endSignalError, or an [*endError] with the exit code of the newest result.
func (s *supervisor) untilSignal(ctx context.Context, wait func(context.Context) error) error {
	waiting, cancel := context.WithCancel(ctx)
	var receiving sync.WaitGroup
	var end error
	receiving.Go(func() {
		for end == nil {
			select {
			case <-waiting.Done():
				return
			case sig := <-s.cfg.Signals:
				if s.cfg.LauncherSignals().IsEnd(sig) {
					end = &endSignalError{sig}
					cancel()
				}
			}
		}
	})
	err := wait(waiting)
	cancel()
	receiving.Wait()
	switch {
	case end != nil:
		return end
	case ctx.Err() != nil:
		return &endError{code: cmp.Or(s.lastResult, new(record.Result)).Code}
	default:
		return err
	}
}

// reportEnd prints why the daemon ends, and returns its exit code.
func (s *supervisor) reportEnd(err error) int {
	if by, is := errors.AsType[*endSignalError](err); is {
		err = lifecycle.NewSignalFailure(by.sig, s.cfg.Identity.Host, "", s.cfg.Identity.NodeIndex)
	}
	end, is := errors.AsType[*endError](err)
	if !is {
		f := health.AsFailure(err)
		end = &endError{health.OutcomeOfKind(f.Kind).Code, f.Message}
	}
	if end.reason != "" {
		s.logWarning(end.reason)
	}
	return end.code
}

// runAttempt takes part in an attempt. A signal that has arrived before is passed to the daemon
// first.
func (s *supervisor) runAttempt(
	ctx context.Context, role roles.DaemonRole, attempt int, requested os.Signal,
) lifecycle.Exit {
	cfg := s.cfg
	cfg.Identity.Attempt = attempt
	if s.hasStarted && cfg.RenewChecks != nil {
		if err := cfg.RenewChecks(&cfg); err != nil {
			return lifecycle.Exit{Code: s.reportEnd(err)}
		}
	}
	s.hasStarted = true
	if requested == nil {
		return s.runDaemon(ctx, cfg, role)
	}
	all, ended := make(chan os.Signal, 1), make(chan struct{})
	all <- requested
	cfg.Signals = all
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			select {
			case <-ended:
				return
			case sig := <-s.cfg.Signals:
				select {
				case all <- sig:
				case <-ended:
					return
				}
			}
		}
	})
	defer forwarding.Wait()
	defer close(ended)
	return s.runDaemon(ctx, cfg, role)
}

// prepareNext handles the end of an attempt that another one follows.
func (s *supervisor) prepareNext(exit lifecycle.Exit) {
	end := exit.Outcome
	s.minAttempt = end.NextAttempt.Number
	s.lastResult = &record.Result{Code: exit.Code, Reason: end.Reason, Cause: end.Cause}
	if s.failureStreak++; end.GateOpenTime > stableRunTime {
		s.failureStreak = 1
	}
	s.headLost = end.Cause != nil && slices.Contains(end.Cause.LostNodes, 0)
	if s.claimed = nil; end.ClaimedResult {
		s.claimed = end
	}
	s.cfg.Previous.History = withRankRestarts(s.cfg.Previous.History, end.RankRestarts)
	s.cfg.Previous = addAttempt(s.cfg.Previous, end.AllFailures(), &s.cfg.Identity, time.Now())
	if end.Progress != nil {
		s.cfg.Previous.History.Progress = end.Progress
	}
}

// nextAttempt returns the attempt in which to take part, when it is time.
func (s *supervisor) nextAttempt(ctx context.Context) (int, error) {
	if s.isHead && s.lastResult != nil { // only the head makes the next one
		ctxutil.SleepContext(ctx, restartPause(s.failureStreak))
		return s.minAttempt, nil
	}
	for {
		switch next := s.inspectNewest(ctx); {
		case next.actionKind == actionAwait:
			if err := s.awaitPreviousEnd(ctx, next.attempt); err != nil {
				return 0, err
			}
		case next.actionKind == actionFinish:
			return 0, s.alreadyEndedError(next.attempt)
		case next.attempt == 0:
			return 0, nil
		case s.isHead:
			ctxutil.SleepContext(ctx, minBackoff)
			return next.attempt, nil
		default:
			return next.attempt, s.awaitDirectory(ctx, next.attempt)
		}
	}
}

// attemptLocation returns the location of an attempt; that of the first one is also used to find
// all of them.
func (s *supervisor) attemptLocation(attempt int) signal.Location {
	cfg := s.cfg
	cfg.Identity.Attempt = attempt
	return cfg.RunLocation()
}

// inspectNewest finds the newest attempt, and returns what to do. If the log directory cannot be
// used, it returns the due attempt, which reports the error.
func (s *supervisor) inspectNewest(ctx context.Context) nextMove {
	begun, err := s.findNewest(ctx)
	if err == nil && begun.HasResult && s.lastResult == nil {
		err = s.loadPreviousResults(ctx, begun)
	}
	if err != nil {
		return nextMove{actionBegin, max(s.minAttempt, begun.Attempt)}
	}
	// A head has taken part in each attempt, because it has made it.
	joined := begun.Dir != nil && (s.isHead || s.hasJoined(begun))
	state := attemptState{newest: begun.Attempt, ended: begun.HasResult, joined: joined}
	// Read the result of a finished attempt: it says whether another one follows.
	if begun.HasResult && begun.Attempt >= s.minAttempt {
		result, err := s.readResult(ctx, begun)
		if err != nil {
			return nextMove{actionBegin, begun.Attempt}
		}
		s.lastResult = &result
		state.next, state.succeeded = result.NextAttempt, hasSucceeded(&result)
	}
	return chooseMove(state, s.minAttempt, s.relaunches)
}

// hasSucceeded reports whether the run has ended in order, with 0.
func hasSucceeded(r *record.Result) bool { return r.Cause == nil && r.Code == 0 }

// hasJoined reports whether a daemon of this node has joined an attempt.
func (s *supervisor) hasJoined(begun signal.AttemptInfo) bool {
	id := &s.cfg.Identity
	return slices.Contains(begun.NodeNames, signal.NodeName(id.NodeIndex, id.Size, record.StateJoined))
}

// findNewest returns the newest attempt. It retries while the file system does not show the log
// directory.
func (s *supervisor) findNewest(ctx context.Context) (begun signal.AttemptInfo, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Join, health.ErrDeadline)
	defer cancel()
	for {
		begun, err = s.attemptLocation(0).NewestAttempt(ctx)
		if err == nil || !signal.IsTransient(err) || !ctxutil.SleepContext(ctx, minPollInterval) {
			return begun, err
		}
	}
}

func (s *supervisor) readResult(
	ctx context.Context, begun signal.AttemptInfo,
) (record.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.ReadResult(ctx)
}

// loadPreviousResults reads the results of earlier attempts, for a restarted daemon. The head needs
// all of them.
func (s *supervisor) loadPreviousResults(ctx context.Context, begun signal.AttemptInfo) error {
	result, err := s.readResult(ctx, begun)
	if err != nil {
		return err
	}
	s.lastResult = &result
	all := []record.Result{result}
	if s.isHead {
		if all, err = s.attemptLocation(0).PreviousResults(ctx, begun.Attempt+1); err != nil {
			return err
		}
	}
	for _, r := range all {
		if h := r.History; h != nil && h.Count > s.cfg.Previous.History.Count { // with those of ranks
			s.cfg.Previous.History.Count, s.cfg.Previous.History.Times = h.Count, h.Times
		}
		end := lifecycle.Outcome{Cause: r.Cause, Consequences: r.Consequences}
		s.cfg.Previous = addAttempt(s.cfg.Previous, end.AllFailures(), &s.cfg.Identity, r.WrittenAt)
		s.continueProgress(r.Progress)
	}
	return nil
}

const (
	minPollInterval = 20 * time.Millisecond
	maxPollInterval = time.Second
	// goneTimeouts is the number of peer timeouts without a change in a run directory after which all
	// its daemons have gone. A healthy head writes a heartbeat file once in four: see
	// config.Timeouts.RelaxedPollInterval.
	goneTimeouts = 5
)

// goneTimeout returns the time without a change after which all daemons of an attempt have gone.
func (s *supervisor) goneTimeout() time.Duration { return goneTimeouts * s.cfg.Times.Peer }

// awaitPreviousEnd waits for the end of an attempt in which an earlier daemon of this node took
// part: its peers detect its loss. If all daemons of the attempt have gone, the head ends it.
func (s *supervisor) awaitPreviousEnd(ctx context.Context, attempt int) error {
	var before signal.AttemptInfo
	self := s.cfg.Identity.MemberLabel(s.cfg.Identity.NodeIndex, s.cfg.Identity.Host)
	timeout := s.cfg.Times.Join + s.goneTimeout() + health.FinalTermTimeout
	began := time.Now()
	for first, changed := true, began; ; first = false {
		now, err := s.findNewest(ctx)
		switch {
		case err != nil:
			return err
		case now.Attempt > attempt || now.HasResult:
			return nil
		}
		if first || !slices.Equal(now.ControlNames, before.ControlNames) ||
			!slices.Equal(now.NodeNames, before.NodeNames) {
			if err := s.checkDuplicate(ctx, now); err != nil {
				return err
			}
			if first {
				s.logWarning(fmt.Sprintf("an earlier daemon of %s takes part in attempt %d: waiting for its end",
					self, attempt+1))
			}
			changed, before = time.Now(), now
		}
		// If nothing changes any more, the head ends the attempt. If the wait is too long, another daemon
		// of this node must be alive, and this one gives up.
		if s.isHead && time.Since(changed) > s.goneTimeout() {
			return s.closeOrphanedAttempt(ctx, now)
		}
		waited, mayStandBy := time.Since(began), s.cfg.HasSpares() && !s.isHead
		if waited > timeout && (!mayStandBy || time.Since(changed) > timeout) {
			return health.NewFailure(health.Launch, "cannot take part as %s: another daemon of this node "+
				"has joined attempt %d already, which has not ended after %s; start one daemon per node",
				self, attempt+1, waited.Round(time.Second/10))
		}
		if !ctxutil.SleepContext(ctx, min(max(minPollInterval, time.Since(began)/8), maxPollInterval)) {
			return context.Cause(ctx)
		}
	}
}

// checkDuplicate returns an error if the earlier daemon of this node lives on this host: it was
// started in addition to this one, and waiting does not help.
func (s *supervisor) checkDuplicate(ctx context.Context, begun signal.AttemptInfo) error {
	if !s.hasJoined(begun) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.CheckDuplicate(ctx)
}

// closeOrphanedAttempt publishes the result of an attempt that has no daemons left.
func (s *supervisor) closeOrphanedAttempt(ctx context.Context, begun signal.AttemptInfo) error {
	f := health.NewFailure(health.DaemonDied,
		"the daemons of attempt %d have ended: its run directory has not changed for %s",
		begun.Attempt+1, s.goneTimeout())
	f.Host = s.cfg.Identity.Host
	outcome := health.OutcomeOfCause(f.Failure)
	result := &record.Result{
		Run: begun.Name(), Size: s.cfg.Identity.Size, Code: outcome.Code, Outcome: outcome.Name,
		Reason: f.Message, Cause: &f.Failure,
		RunTimings: record.RunTimings{ProgramVersion: s.cfg.Program},
	}
	if restarts, _ := decideAttempt(f.Failure, newAttemptPolicy(&s.cfg, begun.Attempt, true)); restarts {
		result.NextAttempt = begun.Attempt + 1
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	err := begun.PublishOnce(ctx, signal.NameResult, result)
	if errors.Is(err, signal.ErrAlreadyPublished) {
		return nil
	}
	if err == nil {
		s.logWarning(f.Message)
	}
	return err
}

// awaitDirectory waits for the directory of an attempt, not long after the loss of a head that
// nothing restarts.
func (s *supervisor) awaitDirectory(ctx context.Context, attempt int) error {
	within := s.cfg.Times.Join + config.MaxBackoff + s.cfg.Times.DriverGrace // the previous attempt's
	if s.headLost && !s.relaunches {
		within = min(within, s.cfg.Times.DaemonReturnTimeout()+minBackoff)
	}
	limited, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	_, _, err := signal.NewFinder(s.attemptLocation(attempt)).AwaitRun(limited)
	if !errors.Is(err, health.ErrDeadline) {
		return nil // the daemon finds it, or reports the error
	}
	last := cmp.Or(s.lastResult, &record.Result{Code: health.OutcomeOfKind(health.PeerLost).Code})
	reason := fmt.Sprintf("attempt %d has not started within %s: %s has not been restarted",
		attempt+1, within.Round(time.Second/10), launcher.NodeLabel(0, s.cfg.Identity.HostOf(0)))
	if last.Reason != "" {
		reason += "; the previous one ended: " + last.Reason
	}
	if s.claimed == nil {
		return &endError{last.Code, reason}
	}
	// Nothing makes the attempt that the result has announced: what would have followed without
	// restarts follows now.
	s.logWarning(reason)
	end := *s.claimed
	end.NextAttempt = lifecycle.NextAttempt{}
	decideJobRequeue(&s.cfg, &end, false)
	CarryOut(ctx, &end, s.cfg.After.Requeue.By, func() bool { return ctx.Err() != nil }, s.logWarning)
	return &endError{end.Code, ""}
}

// alreadyEndedError returns the reason why there is no further attempt: the run has ended already.
func (s *supervisor) alreadyEndedError(attempt int) error {
	last, place := s.lastResult, s.attemptLocation(attempt)
	run := place.Run
	switch {
	case !hasSucceeded(last):
		return &endError{last.Code, fmt.Sprintf("run %s has ended already, with code %d: %s",
			run, last.Code, last.Reason)}
	case s.isHead && !s.relaunchesEach:
		// This is another launch with that name, which must not seem to have succeeded.
		return health.NewFailure(health.ShareUnusable,
			"cannot create run %s in %s: it exists already, and has ended; %s",
			run, s.cfg.LogDir, place.OtherNameAdvice())
	default:
		return &endError{0, fmt.Sprintf("run %s has ended already: %s", run, last.Reason)}
	}
}

// adoptRun finds the run that waits for the daemons of this one's job step, and makes this daemon a
// member of it. Its index is that of this host's node there, and the step's.
func (s *supervisor) adoptRun(ctx context.Context) error {
	id, step := &s.cfg.Identity, s.cfg.Roles.Step
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Join, health.ErrDeadline)
	defer cancel()
	dir, job, err := signal.NewStepFinder(s.cfg.RunLocation(), id.IsRunOfJob, step).AwaitRun(ctx)
	if errors.Is(err, health.ErrDeadline) {
		return health.NewFailure(health.ShareUnusable,
			"cannot find the run of step %s: %s has seen none of job %s in %s for %s: start the "+
				"other step with the same --config and --log-dir",
			step, id.Host, id.Job, s.cfg.LogDir, s.cfg.Times.Join)
	}
	if err != nil {
		return err
	}
	// Usually both steps have the same nodes in the same order. On one machine all have one host.
	node := id.NodeIndex
	if id.LocalSize <= 1 {
		node, err = dir.AwaitNodeIndex(ctx, id.Host, node)
	}
	if errors.Is(err, health.ErrDeadline) {
		return health.NewFailure(health.Launch,
			"cannot find %s among the nodes of run %s: start step %s on nodes of that run", id.Host, dir.Name(), step)
	}
	if err != nil {
		return err
	}
	member := record.MemberIndex(node, 1+slices.Index(job.Steps, step), job.Size)
	id.AdoptRun(dir.Name(), job.Key, member, job.Size)
	id.Steps = job.Steps
	if s.cfg.Roles.AreGiven() {
		s.cfg.Team = s.cfg.Roles.NodeRange(membership.NodeRange{}, job.Size) // the step may have fewer nodes
	}
	if hosts, err := launcher.ExpandNodeList(job.Hosts, job.Size); err == nil && len(hosts) == job.Size {
		id.Hosts = hosts
	}
	return nil
}
