package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
)

// generation has the processes of a generation on this node.
type generation struct {
	mu      sync.Mutex
	started []startedProcess // guarded by mu
	failure *health.Failure  // failure of the first process that has failed; guarded by mu
	exit    roles.Exit       // guarded by mu
	world   *generationWorld // nil if the instance has no ranks
	ready   *service.Readiness
}

// fail records a failure, with its code, unless there is one already.
func (g *generation) fail(f *health.Failure, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure == nil {
		g.failure, g.exit = f, roles.Exit{Code: code, CannotExecute: isFinal(f.Failure)}
	}
}

func (g *generation) outcome() (*health.Failure, roles.Exit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure, g.exit
}

// watch waits until a process has exited that should not, all have ended with 0, or ctx ends.
func (g *generation) watch(ctx context.Context, s *supervisor, number int) {
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	g.watchHang(ctx, s, number, &watches, func(f *health.Failure) {
		g.fail(f, health.OutcomeOfCause(f.Failure).Code)
		cancel()
	})
	g.watchSilence(ctx, s, &watches)
	g.ready = service.NewReadiness(0)
	if s.role.ListsListeners() {
		g.ready = service.NewReadiness(2) // the change before is that its processes listen
	}
	watches.Go(func() { s.watchPorts(ctx, g.started, number) })
	var waits sync.WaitGroup
	if g.world != nil {
		defer g.world.local.WarnStragglers(ctx)()
		g.watchSimulated(ctx, s, &waits, cancel)
	}
	for _, one := range g.started {
		watches.Go(func() { s.withdrawAtExit(ctx, one, g, number) })
		waits.Go(func() {
			if f := s.awaitExit(ctx, one, number, g); f != nil {
				// A process that hangs may end with 0 when it is told to stop.
				g.fail(f, max(1, one.Exit().ShellStatus()))
				cancel()
			}
		})
	}
	waits.Wait()
}

// watchSimulated runs the simulated ranks of flags, if there are any, and watches them.
func (g *generation) watchSimulated(ctx context.Context, s *supervisor, waits *sync.WaitGroup, cancel func()) {
	if simulate := s.simulateRanks(); simulate != nil {
		waits.Go(func() {
			if err := simulate(ctx, g.world.local.Rendezvous, g.world.local.Ranks); err != nil && ctx.Err() == nil {
				g.fail(health.AsFailure(err), 1)
				cancel()
			}
		})
	}
}

// awaitExit waits for the end of a process, or for its probe to fail for too long. It returns nil if
// the process has ended as it should, or ctx ends first.
func (s *supervisor) awaitExit(ctx context.Context, one startedProcess, number int, g *generation) *health.Failure {
	switch {
	case one.isService:
		return one.AwaitFailure(ctx)
	case s.role.EndsWithAnyCode() && one.explain != nil:
		_ = one.explain(ctx) // the end of the rank is recorded, and is no failure
		return nil
	case s.role.EndsWithAnyCode():
		ctxutil.AwaitDone(ctx, one.Ended())
		return nil
	}
	watched, hangs := context.WithCancelCause(ctx)
	var probes sync.WaitGroup
	defer probes.Wait()
	defer hangs(nil)
	probes.Go(func() { s.watchProbes(watched, hangs, one, number, g.ready) })
	limited, cancel := s.withTimeLimit(watched)
	defer cancel()
	if f := s.awaitFailure(limited, one); f != nil || ctx.Err() != nil || limited.Err() == nil {
		return f
	}
	s.withdraw(g, number)
	if watched.Err() == nil {
		return s.endHanging(one.Handle, fmt.Sprintf("had not ended after %s", s.role.Timeout))
	}
	return s.endHanging(one.Handle, fmt.Sprintf("hangs: its probe %s has failed for %s: %v",
		s.role.Alive.Probe, s.role.Alive.After, context.Cause(limited)))
}

// awaitFailure waits until a process has ended, and returns that as a failure unless it is none. It
// returns nil if ctx or the run ends first.
func (s *supervisor) awaitFailure(ctx context.Context, one startedProcess) *health.Failure {
	if one.explain != nil {
		if err := one.explain(ctx); err != nil {
			return s.rankFailure(err)
		}
	}
	return one.AwaitFailure(ctx) // a rank that has ended with 0 has failed unless it may
}

// withTimeLimit returns ctx with the time limit of the role's processes, if they have one.
func (s *supervisor) withTimeLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.role.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.role.Timeout)
}

func (s *supervisor) endHanging(child process.Handle, what string) *health.Failure {
	f := health.NewFailure(s.failureKind(), "the %s of %s %s", child.Name(), s.cfg.Name, what)
	s.stopProcess(child)
	f.Child, f.Log, f.Lines = child.Name(), s.cfg.Children.LogName(child.Name()), child.LastLines()
	return f
}

// rankFailure returns the failure of a rank, or nil if the error is the end of the run or generation.
func (s *supervisor) rankFailure(err error) *health.Failure {
	f, failed := errors.AsType[*health.Failure](err)
	if !failed || s.cfg.RunCtx.Err() != nil {
		return nil
	}
	if !s.role.Primary {
		f.Kind = s.failureKind()
	}
	return f
}

// mayEnd reports whether the processes of the instance may end with 0.
func (s *supervisor) mayEnd() bool { return s.role.Oneshot || s.role.Primary }

// allEnded reports whether all processes have ended: with 0, or with any code.
func (g *generation) allEnded(anyCode bool) bool {
	for _, one := range g.started {
		if !service.HasEnded(one) || one.Exit().ShellStatus() != 0 && !anyCode {
			return false
		}
	}
	return len(g.started) > 0
}

// runningFirst returns the process of rank 0 if it runs on this node.
func (g *generation) runningFirst() process.Handle {
	for _, one := range g.started {
		if one.process.Rank == 0 && !service.HasEnded(one) {
			return one.Handle
		}
	}
	return nil
}

// stopRemaining stops the processes that still run, and waits until none is left.
func (g *generation) stopRemaining(s *supervisor) {
	if s.role.BuiltIn.IsService() && (s.cfg.RunCtx.Err() != nil || s.stopAll.Err() != nil) {
		return // it ends with all other processes of the node
	}
	if s.role.IsFlagWorld() {
		s.cfg.Host.StopFlagRanks() // and those that they have spawned
		return
	}
	var stops sync.WaitGroup
	for _, one := range g.started {
		stops.Go(func() {
			s.stopProcess(one)
			if s.role.BuiltIn == "" || s.role.BuiltIn.IsService() { // how it has ended is asked for later
				s.cfg.Children.RemoveChild(one.Handle)
			}
		})
	}
	stops.Wait()
}

// stopProcess ends a process as its role says.
func (s *supervisor) stopProcess(child process.Handle) process.Exit {
	if s.role.Primary {
		return child.Stop(s.cfg.DriverGraceCtx, s.cfg.CutGrace(s.role.Stop.Grace), s.stopSignal())
	}
	return child.Stop(s.cfg.GraceCtx, s.role.Stop.Grace, s.stopSignal())
}

// stopSignal returns the signal by which the processes of the role are told to end; 0 for none.
func (s *supervisor) stopSignal() syscall.Signal {
	if s.role.Stop.Signal == roles.StopSignalNone {
		return 0
	}
	if sig := process.SignalNumber("SIG" + strings.TrimPrefix(s.role.Stop.Signal, "SIG")); sig != 0 {
		return sig
	}
	return syscall.SIGTERM
}
