package instances

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

type startedProcess struct {
	*service.Running // never nil
	process          roles.Process
	ready, alive     *health.Probe // nil if there is none
	isService        bool          // it belongs to a cluster or to flags, which the probes of the role do not concern
	// explain waits for the end of a rank and returns why it has failed; nil for other processes.
	explain func(ctx context.Context) error
}

// startProcesses starts all processes of a generation, and waits until they are ready or one has
// failed. halt ends the generation when its world cannot go on.
func (s *supervisor) startProcesses(ctx context.Context, halt context.CancelCauseFunc, number int) *generation {
	g, life := new(generation), ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.role.Placement.HasRanks && s.cfg.StandIns == nil {
		fail := func(f *health.Failure) {
			g.fail(f, max(1, health.OutcomeOfCause(f.Failure).Code)) // one that failed may have ended with 0
			halt(f)
		}
		opened, err := s.openWorld(ctx, number, fail)
		if err != nil {
			if ctx.Err() == nil {
				fail(health.AsFailure(err))
			}
			return g
		}
		g.world, opened.life = opened, life
	}
	var starts sync.WaitGroup
	start := func(ctx context.Context, p roles.Process, number int) ([]startedProcess, *health.Failure) {
		return s.startCommand(ctx, p, number, s.processName(p), nil, g.world)
	}
	switch {
	case s.role.Program.Framework != "":
		start = s.startMember
	case s.role.IsFlagWorld():
		start = func(ctx context.Context, p roles.Process, number int) ([]startedProcess, *health.Failure) {
			return g.world.startFlagRank(ctx, p, number)
		}
	case s.role.BuiltIn.IsService():
		start = s.startService
	case s.role.BuiltIn != "":
		start = s.startDriver
	}
	if number == s.first {
		s.watchLaunches()
	}
	for _, p := range s.realProcesses() {
		starts.Go(func() {
			s.cfg.Ports.Release(planning.PortsOf(s.role, p)...)
			started, f := start(ctx, p, number)
			g.mu.Lock()
			g.started = append(g.started, started...)
			g.mu.Unlock()
			// Without a failure of its own, the start was only interrupted.
			if f != nil && (ctx.Err() == nil || f.Kind == s.failureKind()) {
				g.fail(f, health.OutcomeOfCause(f.Failure).Code)
				cancel()
			}
		})
	}
	starts.Wait()
	return g
}

// realProcesses returns the processes of the instance on this node: none if ranks of flags are simulated.
func (s *supervisor) realProcesses() []roles.Process {
	if s.simulateRanks() != nil {
		return nil
	}
	return s.processes
}

// isFinal reports whether no start follows a failure: it would occur again, or the job got a
// signal.
func isFinal(f record.Failure) bool {
	if f.Kind == health.Signalled {
		return true
	}
	cannotExecute := f.Code == health.OutcomeOfKind(health.NotExecutable).Code ||
		f.Code == health.OutcomeOfKind(health.NotFound).Code
	return f.ExitText == "" && (cannotExecute || f.Kind == health.Usage || f.Kind == health.Launch)
}

// failureKind returns the kind of the failure of a process of the role.
func (s *supervisor) failureKind() health.Kind {
	switch {
	case s.role.Primary:
		return health.DriverFailed
	case s.role.BuiltIn == roles.BuiltInSandbox:
		return health.SandboxDied
	}
	return health.ServiceDied
}

// startCommand starts the command of the role as a process with a name, with additional variables,
// and waits until it is ready. The process is a rank if ofWorld is not nil.
func (s *supervisor) startCommand(
	ctx context.Context, p roles.Process, number int, name string, more map[string]string, ofWorld *generationWorld,
) ([]startedProcess, *health.Failure) {
	s.cfg.Children.SetLogName(name, s.role.ProcessLogName(s.instance, p, number))
	start, err := s.environment.processStart(s, p, number)
	if err != nil {
		return nil, health.NewFailure(health.Usage, "cannot start %s on %s: %v", name, s.cfg.Name, err)
	}
	if s.role.Primary {
		s.cfg.Children.SetUserProgram(name)
		s.cfg.Steps.AddProcess(name, s.stepProcess(p.Rank, number))
	}
	start.spec.Name, start.spec.Env = name, envlist.With(start.spec.Env, more)
	start.spec.Stdout, start.spec.Stderr = s.writers(p)
	svc := framework.NewService(name, nil, nil, start.ready)
	svc.Ports = start.ports
	if s.role.ListsListeners() { // it may never listen: another user at its port does not keep it from running
		svc.Ports = slices.DeleteFunc(svc.Ports, func(port framework.Port) bool {
			return s.hasStranger(port.Number, max(port.Number, port.LastNumber))
		})
	}
	one := startedProcess{process: p, ready: start.ready, alive: start.alive}
	begin := func(ctx context.Context) (process.Handle, error) { return s.cfg.Children.Start(ctx, start.spec) }
	switch {
	case s.cfg.StandIns != nil: // they are ready at once
		svc = framework.NewService(name, nil, nil, nil)
		begin = func(ctx context.Context) (process.Handle, error) { return s.cfg.StandIns.Start(ctx, start.spec) }
	case ofWorld != nil:
		var explain func(context.Context) error
		begin = func(ctx context.Context) (child process.Handle, err error) {
			child, explain, err = ofWorld.startRank(ctx, p, start)
			return child, err
		}
		one.explain = func(ctx context.Context) error { return explain(ctx) }
	}
	return s.startProgram(ctx, one, svc, begin)
}

// startDriver starts the driver of the flags.
func (s *supervisor) startDriver(ctx context.Context, p roles.Process, _ int) ([]startedProcess, *health.Failure) {
	var startErr error
	begin := func(ctx context.Context) (child process.Handle, err error) {
		starting, started := s.cfg.ExtendForStart(ctx)
		defer started()
		child, startErr = s.cfg.Children.Start(starting, s.cfg.Driver.DriverSpec())
		return child, startErr
	}
	svc := framework.NewService(service.DriverName, nil, nil, nil)
	started, failure := s.startProgram(ctx, startedProcess{process: p}, svc, begin)
	if failure != nil && startErr != nil && ctx.Err() == nil {
		failure = health.AsFailure(service.DriverStartFailure(s.cfg.Name, startErr))
	}
	if failure == nil {
		running, ended := context.WithCancel(s.stop)
		context.AfterFunc(s.cfg.RunCtx, ended)
		s.cfg.Driver.DriverStarted(running, started[0].PID())
		s.cfg.Background(func(context.Context) {
			ctxutil.AwaitDone(running, started[0].Ended())
			ended()
		})
	}
	return started, failure
}

// startProgram starts a service as a process of the instance, and waits until it is ready. begin
// starts the process; nil: by the command of the service.
func (s *supervisor) startProgram(
	ctx context.Context, one startedProcess, svc *framework.Service,
	begin func(context.Context) (process.Handle, error),
) (started []startedProcess, failure *health.Failure) {
	var err error
	one.Running, err = s.cfg.Children.StartProgram(ctx, service.Program{
		Describe: func() (*framework.Service, error) { return svc, nil }, Begin: begin, Stop: s.stopProcess,
		Kind: s.failureKind(), Within: s.role.Ready.Timeout, MayEnd: s.mayEnd(),
		AwaitsPorts: true, StartsOnce: one.explain != nil, AcceptsBeside: s.wasReady,
	})
	if one.Running != nil {
		started = []startedProcess{one}
	}
	if err != nil {
		failure = health.AsFailure(err)
	}
	return started, failure
}

// instanceName returns the name of an instance for messages: judge.1.
func instanceName(role *roles.RolePlan, instance *roles.Instance) string {
	return fmt.Sprintf("%s.%d", role.Name, instance.Index)
}

func (s *supervisor) instanceName() string { return instanceName(s.role, s.instance) }

// processName returns the name of a process for messages and files: judge.1, or judge.1.3 if the
// instance has several processes.
func processName(role *roles.RolePlan, instance *roles.Instance, p roles.Process) string {
	name := instanceName(role, instance)
	if len(instance.Processes) > 1 {
		name += fmt.Sprintf(".%d", p.Rank)
	}
	return name
}

func (s *supervisor) processName(p roles.Process) string { return processName(s.role, s.instance, p) }

// launchWatchTime is how long the processes of a role are searched for launchers.
const launchWatchTime = time.Minute

// watchLaunches warns if a process of the role, which has no ranks, starts something like torchrun that does
// not fit the nodes of an instance. The first process of the role on this node watches those of all
// instances here, because they run the same command.
func (s *supervisor) watchLaunches() {
	role := s.role
	if role.Placement.HasRanks || role.BuiltIn != "" || role.Program.Framework != "" || s.cfg.Runners == nil ||
		s.cfg.StandIns != nil || len(s.processes) == 0 {
		return
	}
	by := s.cfg.Runners(*role.Definition)
	var names []string
	for i := range role.Instances {
		for _, p := range processesOn(&role.Instances[i], s.processes[0].Place) {
			names = append(names, processName(role, &role.Instances[i], p))
		}
	}
	isFirst := names[0] == s.processName(s.processes[0])
	if by == nil || !isFirst || ranks.LauncherAdvice(role.Program.SimpleCommand()) != "" {
		return
	}
	pids := func() (running []int) {
		for _, name := range names {
			if child := s.cfg.Children.FindChild(name); child != nil {
				running = append(running, child.PID())
			}
		}
		return running
	}
	look := ranks.LookBelow(fmt.Sprintf("role %s on %s", role.Name, s.cfg.Name), pids, *by)
	s.cfg.Background(func(context.Context) {
		ctx, cancel := context.WithTimeout(s.cfg.RunCtx, launchWatchTime)
		defer cancel()
		process.WatchTree(ctx, s.cfg.Host.WorldConfig().Warn, look)
	})
}

// writers returns the writers for the output of a process: nil for a role that is not primary. If
// several processes are primary, their lines begin with their name.
func (s *supervisor) writers(p roles.Process) (out, err io.Writer) {
	switch {
	case !s.role.Primary:
		return nil, nil
	case !s.tagsLines:
		return s.cfg.Out, s.cfg.Err
	}
	tag := s.processName(p) + ": "
	return process.NewLineTagger(s.cfg.Out, tag, &s.output), process.NewLineTagger(s.cfg.Err, tag, &s.output)
}
