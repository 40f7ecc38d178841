package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// supervisor runs the processes of one instance on this node, generation after generation.
type supervisor struct {
	*Node
	defined   *roles.Definition // its role's, in any plan
	role      *roles.RolePlan
	instance  *roles.Instance
	processes []roles.Process // those on this node
	spans     bool            // it may have processes on other nodes, so that the head decides on restarts

	budget   roles.RestartBudget
	wasReady bool
	first    int // the generation with which it begins
	level    int // at which it is stopped at an orderly end; -1 for a built-in service
	supervisorLife

	mu    sync.Mutex
	names map[int][]string // published names of the newest generations; guarded by mu
}

// supervisorLife has the contexts and channels that end with parts of a supervisor's life.
type supervisorLife struct {
	stop    context.Context // done when the instance must stop and not start again
	end     func()          // ends it
	settled context.Context // done when the instance has been ready, or has ended
	settle  func()          // ends it
	ended   chan struct{}   // closed when the supervisor has ended
}

// report reports a name of a generation of the instance to the head, and removes old ones: an
// instance that is started again for ever must not fill the directory.
func (s *supervisor) report(generation int, name string, rec record.Record, durable bool) {
	s.cfg.Report(name, rec, durable)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[generation] = append(s.names[generation], name)
	for known, names := range s.names {
		if known <= generation-roles.KeptGenerations {
			s.cfg.RemoveOldNames(signal.NodesDir, names)
			delete(s.names, known)
		}
	}
}

func (s *supervisor) mark(generation int, state record.InstanceState, change int) {
	s.report(generation, s.markName(s.instance.Number, generation, state, change), nil, false)
}

func (n *Node) newSupervisor(by *knownPlan, role *roles.RolePlan, instance *roles.Instance) *supervisor {
	s := &supervisor{Node: n, names: make(map[int][]string), defined: role.Definition,
		first: by.firstGeneration(role, instance)}
	s.ended = make(chan struct{})
	s.stop, s.end = context.WithCancel(n.cfg.WorkCtx)
	s.settled, s.settle = context.WithCancel(n.cfg.WorkCtx)
	s.usePlan(by, role, instance)
	s.level = slices.IndexFunc(roles.EndLevels(n.cfg.Defs),
		func(level []string) bool { return slices.Contains(level, role.Name) })
	return s
}

// processesOn returns the processes of an instance on the node at a place.
func processesOn(instance *roles.Instance, place int) (here []roles.Process) {
	for _, p := range instance.Processes {
		if p.Place == place {
			here = append(here, p)
		}
	}
	return here
}

func (s *supervisor) usePlan(by *knownPlan, role *roles.RolePlan, instance *roles.Instance) {
	s.role, s.instance = role, instance
	s.processes = processesOn(instance, by.place)
	s.spans = len(s.processes) < len(instance.Processes) || role.IsFlagWorld()
}

// refreshPlan makes the next generation use the newest plan: another node of the instance may have
// been replaced.
func (s *supervisor) refreshPlan() {
	if err := s.loadPlan(s.stop, s.cfg.ControlWatch.LastListing()); err != nil {
		s.cfg.Log.Warn("cannot read the plan of the roles", zap.Error(err))
	}
	known := s.known()
	role, instance := known.FindInstance(s.instance.Number)
	s.usePlan(known, role, instance)
}

// simulateRanks returns what replaces the ranks of flags in a simulation; nil: they are processes.
func (s *supervisor) simulateRanks() deps.RankSimulation {
	if !s.role.IsFlagWorld() {
		return nil
	}
	return s.cfg.Host.WorldConfig().Simulation.RunRanks
}

// run runs the instance until it has ended, is lost, or has been stopped.
func (s *supervisor) run() {
	defer close(s.ended)
	defer s.settle()
	defer s.end()
	if s.role.EndsWithRun() {
		defer context.AfterFunc(s.cfg.RunCtx, s.end)()
	}
	s.cfg.Background(func(context.Context) {
		s.awaitStopOrder(s.stop)
		s.end()
	})
	isNext := s.awaitStart()
	if s.first > 0 && !s.role.BuiltIn.IsService() {
		s.wasReady = true // on a spare, it is a restart
		isNext = isNext && (!s.spans || s.awaitNextGeneration(s.first-1))
	}
	for generation := s.first; ; generation++ {
		if !isNext || s.cfg.RunCtx.Err() != nil || s.stop.Err() != nil {
			s.endUnstarted(generation)
			return
		}
		if generation > s.first {
			s.refreshPlan()
		}
		if s.isStopOrdered(generation) { // before it has started, because a node of the instance is lost
			s.publishStop(generation, health.StoppedOutcome.Code)
			isNext = s.awaitNextGeneration(generation)
			continue
		}
		end := s.runGeneration(generation)
		mayGoOn := end.byHead
		switch {
		case end.stopped && !s.isStopAwaited():
		case end.stopped:
			s.publishStop(generation, end.code)
		default:
			mayGoOn = s.handleExit(generation, end)
		}
		if !mayGoOn {
			return
		}
		if s.spans {
			isNext = s.awaitNextGeneration(generation)
		}
	}
}

// isStopOrdered reports whether the head has ordered to stop a generation of an instance that spans
// several nodes.
func (s *supervisor) isStopOrdered(generation int) bool {
	order := signal.OrderName(s.instance.Number, generation+1, signal.OrderStop)
	return s.spans && s.cfg.ControlWatch.LastListing().HasName(order)
}

// endUnstarted ends the instance instead of starting a generation, after the order to stop. The
// head waits for that generation only if it has ordered it.
func (s *supervisor) endUnstarted(generation int) {
	<-s.stop.Done()
	isExpected := !s.spans || generation == 0 ||
		s.cfg.ControlWatch.LastListing().HasName(signal.OrderName(s.instance.Number, generation, signal.OrderStart))
	if isExpected && s.isStopAwaited() {
		s.publishStop(generation, health.StoppedOutcome.Code)
	}
}

// publishStop publishes that a generation was stopped, and that of a primary role with its code: it
// may become that of the run.
func (s *supervisor) publishStop(generation, code int) {
	var rec record.Record
	if s.role.Primary {
		rec = &record.InstanceStop{Code: code}
	}
	s.report(generation, s.markName(s.instance.Number, generation, record.InstanceStopped, 0), rec, false)
}

// publishDone publishes that the processes of a generation have ended, and how if ranks may have failed.
func (s *supervisor) publishDone(number int, running *generation) {
	var rec record.Record
	if s.role.Placement.RanksGoOn {
		ended := new(record.RanksEnded)
		if running.world != nil { // otherwise there are stand-ins
			ended.Exits = running.world.local.Exits()
		}
		rec = ended
	}
	s.report(number, s.markName(s.instance.Number, number, record.InstanceDone, 0), rec, false)
}

// awaitStopOrder waits until the instance must stop: everything on this node, or the level of its
// role. It also returns if the supervisor has ended.
func (s *supervisor) awaitStopOrder(ended context.Context) {
	both, cancel := context.WithCancel(ended)
	defer cancel()
	defer context.AfterFunc(s.stopAll, cancel)()
	if s.role.BuiltIn.IsService() {
		<-both.Done()
		return
	}
	// Wait for the end: by an order, or after that of the primary roles.
	begun, begin := context.WithCancel(both)
	defer begin()
	defer context.AfterFunc(s.drained, begin)()
	isOrdered := s.awaitControl(begun, func(l signal.Listing) bool { return l.HasName(signal.EndName(1)) })
	// Wait for the levels before: of this daemon, and of others.
	for _, other := range s.supervisorsNow() {
		if other.level < s.level {
			ctxutil.AwaitDone(both, other.ended)
		}
	}
	end := roles.EndOrder{Defs: s.cfg.Defs, Plan: s.known().Plan, AfterPrimaries: !isOrdered}
	if slices.Contains(end.Awaiting(s.level), roles.EndMember{Place: s.known().place, Step: s.cfg.Step}) {
		s.awaitControl(both, func(l signal.Listing) bool { return l.HasName(signal.EndName(s.level + 1)) })
	}
}

// isLastLevel reports whether this daemon has no instance that is stopped after this one.
func (s *supervisor) isLastLevel() bool {
	return !slices.ContainsFunc(s.supervisorsNow(), func(other *supervisor) bool { return other.level > s.level })
}

// isStopAwaited reports whether the head waits for the end of the stopped instance, before that of all
// processes of the daemon.
func (s *supervisor) isStopAwaited() bool {
	if s.role.BuiltIn.IsService() {
		return false
	}
	if s.role.IsFlagWorld() { // it stops when the run ends; nothing waits for it if that is known
		end, isKnown := errors.AsType[*lifecycle.Outcome](context.Cause(s.cfg.EndKnownCtx))
		return !isKnown || end.Requested
	}
	return s.stopAll.Err() == nil && (s.drained.Err() == nil || !s.isLastLevel())
}

func (s *supervisor) startRule() roles.StartRule {
	return roles.StartRuleOf(s.cfg.Defs, s.role.Definition, s.cfg.Record.Early)
}

// awaitStart waits until the role starts, and makes the endpoints that are ready then
// known to its processes. It reports whether the instance may start.
func (s *supervisor) awaitStart() bool {
	var name string
	switch s.startRule() {
	case roles.StartWithPlan:
		return true
	case roles.StartAtGate:
		name = signal.NameGateOpen
	case roles.StartByOrder:
		name = signal.StartName(s.role.Name)
	}
	starts := s.awaitControl(s.stop, func(l signal.Listing) bool { return l.HasName(name) })
	if starts {
		s.loadEndpoints(s.stop, s.cfg.ControlWatch.LastListing())
	}
	return starts
}

// generationEnd describes the end of a generation on this node, after all of its processes have been
// reaped.
type generationEnd struct {
	stopped bool            // it was told to stop
	code    int             // then the exit code of the process of rank 0, if it was running
	byHead  bool            // only this generation, because another node has reported an exit
	isDone  bool            // all processes of this node have ended with 0, which is published
	failure *health.Failure // nil if all processes have ended with 0
	action  roles.Action    // what follows, unless it was told to stop
	pause   time.Duration   // before a restart
}

// decide decides what follows from the end of a generation, as far as this node does. The exit of
// a lost instance is published before its other processes are stopped: none is started in their
// place.
func (s *supervisor) decide(generation int, end *generationEnd, exit roles.Exit) {
	exit.WasReady = s.wasReady
	end.action, end.pause = s.role.Decide(exit, &s.budget, time.Now())
	if s.spans && end.action == roles.ActionRestart {
		end.action = roles.ActionLose // unless the head decides otherwise
	}
	switch {
	case end.action == roles.ActionLose && s.role.BuiltIn.IsService():
		s.loseService(end.failure)
	case end.action == roles.ActionLose && s.role.IsFlagWorld():
		if !end.isDone && s.cfg.RunCtx.Err() == nil && s.cfg.Host.RanksStartAgain(end.failure.Failure, generation) {
			end.action, end.pause = roles.ActionRestart, 0
		} else {
			s.cfg.CancelRun(end.failure) // the verdict compares it with the failures of other nodes
		}
	case end.action == roles.ActionLose && s.isLossFinal():
		s.publishExit(generation, end)
	}
}

// isLossFinal reports whether the head does not start a lost instance again.
func (s *supervisor) isLossFinal() bool { return !s.spans || s.role.Restarts.Max == 0 }

// handleExit publishes the end of a generation, and waits for the back-off. It reports whether there
// may be another generation: of an instance that spans several nodes, the head decides that.
func (s *supervisor) handleExit(generation int, end generationEnd) bool {
	switch end.action {
	case roles.ActionDone:
		if s.role.BuiltIn == "" && !s.role.EndsWithAnyCode() { // otherwise its end is published already
			s.mark(generation, record.InstanceDone, 0)
		}
		return s.spans // all start again if a process on another node fails
	case roles.ActionLose:
		if s.role.EndsWithRun() {
			if s.isStopAwaited() {
				s.publishStop(generation, end.code)
			}
			return false
		}
		if !s.isLossFinal() {
			s.publishExit(generation, &end)
		}
		return s.spans
	}
	s.publishExit(generation, &end)
	if s.role.IsFlagWorld() { // the head decides
		return true
	}
	s.cfg.Log.Debug(fmt.Sprintf("%s; starting it again", end.failure.Message), zap.Duration("pause", end.pause))
	pause := end.pause
	if seen := end.failure.SeenAt; !seen.IsZero() {
		pause -= time.Since(seen) // the time in which the exit was explained is part of the back-off
	}
	ctxutil.SleepContext(s.stop, pause)
	return true
}

func (s *supervisor) publishExit(generation int, end *generationEnd) {
	rec := &record.InstanceExit{Failure: end.failure.Failure, Role: s.role.Name,
		Index: s.instance.Index, WillRestart: end.action == roles.ActionRestart, Pause: end.pause}
	if end.action == roles.ActionLose && !s.spans {
		rec.Message += s.budget.DescribeUsed(s.role.Restarts)
	}
	s.report(generation, s.markName(s.instance.Number, generation, record.InstanceExited, 0), rec, true)
}

// awaitNextGeneration waits until the head starts the next generation of an instance that spans
// several nodes, or the instance must stop. It reports whether it does start.
func (s *supervisor) awaitNextGeneration(generation int) bool {
	start := signal.OrderName(s.instance.Number, generation+1, signal.OrderStart)
	return s.awaitControl(s.stop, func(l signal.Listing) bool { return l.HasName(start) })
}

// runGeneration starts the processes of a generation, publishes when they are ready, and waits for
// their end. When it returns, none of them is left.
func (s *supervisor) runGeneration(generation int) generationEnd {
	halt, cancel := context.WithCancelCause(s.stop)
	defer cancel(nil)
	if s.spans {
		// Another node may report the exit of one of its processes. If no other process was left,
		// the next generation starts without an order to stop.
		stop := signal.OrderName(s.instance.Number, generation+1, signal.OrderStop)
		start := signal.OrderName(s.instance.Number, generation+1, signal.OrderStart)
		s.cfg.Background(func(context.Context) {
			if s.awaitControl(halt, func(l signal.Listing) bool { return l.HasName(stop) || l.HasName(start) }) {
				cancel(errInstanceStopped)
			}
		})
	}
	endWait := s.noteWaiting()
	defer endWait()
	if generation > s.first {
		s.loadEndpoints(halt, s.cfg.ControlWatch.LastListing())
	}
	var readyAt time.Time
	running := s.startProcesses(halt, cancel, generation)
	if !s.role.Oneshot {
		endWait()
	}
	if failure, _ := running.outcome(); failure == nil && halt.Err() == nil {
		s.wasReady = true
		readyAt = time.Now()
		s.settle()
		if s.role.BuiltIn.IsService() {
			// its start has published that
			s.cfg.Log.Debug("a service is ready", zap.String("service", s.role.Name))
		} else if generation > 0 || !roles.IsReadyAtStart(s.role.Definition, s.startRule()) {
			s.mark(generation, record.InstanceReady, 0)
		}
		running.watch(halt, s, generation)
		switch failure, _ := running.outcome(); {
		case failure == nil:
		case running.allEnded(true):
			s.setServing(s.instance.Number, false)
		default:
			s.withdraw(running, generation) // its other processes may take long to stop
		}
	}
	// Without a failure, processes that may end have ended, or all have been stopped: a service that is
	// told to stop may have ended with 0 already.
	failure, exit := running.outcome()
	if failure != nil && !readyAt.IsZero() { // explaining the exit may have taken a while
		exit.UpFor = cmp.Or(failure.SeenAt, time.Now()).Sub(readyAt)
	}
	s.flushSteps(failure != nil)
	if failure != nil {
		failure = s.environment.withoutKeys(failure)
	}
	hasEnded := s.mayEnd() && running.allEnded(s.role.EndsWithAnyCode()) || len(s.processes) == 0
	end := generationEnd{stopped: failure == nil && !hasEnded, failure: failure}
	if !end.stopped {
		s.decide(generation, &end, exit)
	}
	first := running.runningFirst()
	if !end.stopped && failure == nil && (s.role.BuiltIn != "" || s.role.EndsWithAnyCode()) {
		s.publishDone(generation, running)
		end.isDone = true
		<-halt.Done()
		if end.failure, exit = running.outcome(); end.failure != nil { // a spawned rank has failed
			s.decide(generation, &end, exit)
		}
	}
	if hasEnded && s.role.EndsWithAnyCode() && running.world == nil {
		// Processes that forward its output, such as tee, read all of it before they are stopped.
		ctxutil.AwaitDone(s.cfg.DriverGraceCtx, running.started[0].Done())
	}
	running.stopRemaining(s)
	for _, p := range s.processes {
		s.cfg.Ports.Keep(planning.PortsOf(s.role, p)...) // until the next generation starts
	}
	if running.world != nil {
		running.world.close()
	}
	if end.code = health.StoppedOutcome.Code; first != nil {
		end.code = first.Exit().ShellStatus()
	}
	end.byHead = errors.Is(context.Cause(halt), errInstanceStopped)
	return end
}

// noteWaiting records that an instance may be waiting for the endpoints of others: until it is ready,
// or has ended if it is a oneshot. The returned function ends that.
func (s *supervisor) noteWaiting() (end func()) {
	if !s.role.MayAwaitOthers() {
		return func() {}
	}
	s.waiting.Add(1)
	return sync.OnceFunc(func() { s.waiting.Add(-1) })
}

// errInstanceStopped is the cause of the end of a generation that the head has stopped because
// another node has reported an exit.
var errInstanceStopped = errors.New("another process of the instance has exited")

// stepProcess returns the process of a rank of a generation, whose steps are watched.
func (s *supervisor) stepProcess(rank, generation int) stepwatch.Process {
	if len(s.instance.Processes) == 1 && !s.role.Placement.HasRanks {
		rank = -1
	}
	return stepwatch.Process{Instance: s.instance.Number, Generation: generation, Rank: rank}
}

// stepReporter returns the function that records the steps that the ranks of a generation report
// themselves. Only those of primary roles are steps of the job.
func (s *supervisor) stepReporter(generation int) func(rank int, step float64) {
	if !s.role.Primary {
		return func(int, float64) {}
	}
	return func(rank int, step float64) {
		s.cfg.Steps.ReportProcessStep(s.stepProcess(rank, generation), step)
	}
}

// flushSteps publishes the last steps of a generation that has ended, before its end is published. A
// failure does not wait for that, unless a restart of all ranks may depend on it.
func (s *supervisor) flushSteps(hasFailed bool) {
	switch {
	case !s.role.Primary:
	case hasFailed && (!s.role.IsFlagWorld() || s.role.Restarts.Max == 0):
		s.cfg.Background(s.cfg.Steps.Flush)
	default:
		s.cfg.Steps.Flush(s.cfg.WorkCtx)
	}
}
