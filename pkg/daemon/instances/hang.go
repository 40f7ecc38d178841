package instances

import (
	"context"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// HangConfig configures how the head decides that an instance hangs.
type HangConfig struct {
	Steps   *stepwatch.Monitor
	LogName string // the file to which the head logs what the processes of an instance do
	// Diagnose logs what they do, and returns the failure of the instance; nil: as for a world.
	Diagnose func(ctx context.Context, hung world.HungWorld) *health.Failure
}

// watchHang publishes whether all processes of a generation on this node are idle, and calls hangs
// when the head has decided that the instance hangs. stop ends the watch and waits for it.
func (g *generation) watchHang(ctx context.Context, s *supervisor, number int,
	hangs func(*health.Failure)) (stop func()) {
	if s.role.HangTimeout == 0 || s.cfg.StandIns != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if f := s.awaitHang(ctx, number); f != nil {
			hangs(f)
		}
	})
	changes, node, instance := 0, s.ownNode(), s.instance.Number
	detector := stackdump.HangDetector{
		Timeout: s.role.HangTimeout, RunningRanks: g.running, CPUTimes: s.cfg.CPUTimes,
		CountSteps: func() int64 { return s.cfg.Steps.CountChanges(instance, number) },
		OnChange: func(bool) {
			changes++
			s.report(number, signal.IdleName(node, s.cfg.Size, instance, number, changes), nil, false)
		},
	}
	tasks.Go(func() { detector.Run(ctx) })
	return func() {
		cancel()
		tasks.Wait()
	}
}

// running returns the processes of the generation that run on this node.
func (g *generation) running() (running []stackdump.RankProcess) {
	for _, one := range g.started {
		if !service.HasEnded(one) {
			printed, _ := one.OutputStats()
			running = append(running, stackdump.RankProcess{Rank: one.process.Rank, PID: one.PID(), Printed: printed})
		}
	}
	return running
}

// awaitHang waits until the head decides that a generation hangs, and gives the failure to this node.
// It returns nil if ctx ends first.
func (s *supervisor) awaitHang(ctx context.Context, number int) *health.Failure {
	name := signal.OrderName(s.instance.Number, number, signal.OrderHang(s.ownNode()))
	if !s.awaitControl(ctx, func(l signal.Listing) bool { return l.HasName(name) }) {
		return nil
	}
	reading, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	f := new(health.Failure)
	if err := s.cfg.Dir.ReadRecord(reading, signal.ControlDir, name, &f.Failure); err != nil {
		f = health.NewFailure(health.DeadlinePassed,
			"%s hangs, and the record about that cannot be read: %v", s.instanceName(), err)
	}
	return f
}

// hangWatch decides on the head which instances hang.
type hangWatch struct {
	*Head
	decided map[*instanceState]int // the generation that was found to hang; guarded by mu
}

// followHangs ends the instances that hang, until ctx ends.
func (h *Head) followHangs(ctx context.Context) {
	if !slices.ContainsFunc(h.instances, func(s *instanceState) bool { return s.role.HangTimeout > 0 }) {
		return
	}
	w := &hangWatch{Head: h, decided: make(map[*instanceState]int)}
	_, _ = h.cfg.NodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		for _, state := range h.instances {
			w.check(state, l)
		}
		return false
	})
}

// check ends an instance that hangs, in the background: inspecting its processes takes a while.
func (w *hangWatch) check(state *instanceState, l signal.Listing) {
	if state.role.HangTimeout == 0 {
		return
	}
	w.mu.Lock()
	generation, busy := state.Generation, slices.Clone(state.Running)
	areKnown := len(state.Unknown) == 0 && w.cfg.RunCtx.Err() == nil
	known, isDecided := w.decided[state]
	w.mu.Unlock()
	if isDecided && known == generation || !areKnown {
		return
	}
	if len(w.hanging(state, generation, busy, l)) == 0 {
		return
	}
	w.mu.Lock()
	w.decided[state] = generation
	w.mu.Unlock()
	w.cfg.Background(func(ctx context.Context) { w.endHanging(ctx, state, generation) })
}

// hanging returns those of the busy nodes of a generation that matter, if all of them are idle
// according to a listing, and nil otherwise.
func (w *hangWatch) hanging(state *instanceState, generation int, busy []int, l signal.Listing) []int {
	// Nodes without steps do not matter if others have steps.
	if withSteps := w.cfg.Hang.Steps.NodesWithSteps(l, state.instance.Number, generation); len(withSteps) > 0 {
		busy = slices.DeleteFunc(busy, func(node int) bool { return !slices.Contains(withSteps, node) })
	}
	idle := l.IdleNodes(state.instance.Number, generation)
	if slices.ContainsFunc(busy, func(node int) bool { return !slices.Contains(idle, node) }) {
		return nil
	}
	return busy
}

// endHanging gives the failure of an instance that hangs to one of the idle nodes, unless its
// processes have gone on meanwhile.
func (w *hangWatch) endHanging(ctx context.Context, state *instanceState, generation int) {
	diagnose := w.cfg.Hang.Diagnose
	if diagnose == nil {
		diagnose = func(ctx context.Context, hung world.HungWorld) *health.Failure { return hung.DiagnoseFailure(ctx) }
	}
	f := diagnose(ctx, world.HungWorld{
		Dir: w.cfg.Dir.Path(), Instance: instanceName(state.role, state.instance), Timeout: state.role.HangTimeout,
		HasSteps: len(w.cfg.Hang.Steps.NodesWithSteps(w.cfg.NodeWatch.LastListing(),
			state.instance.Number, generation)) > 0,
		Progress: w.cfg.Hang.Steps.Summary(), LogName: w.cfg.Hang.LogName, Log: w.cfg.Log,
	})
	f.Phase = w.cfg.Events.CurrentPhase()
	w.mu.Lock()
	busy, isPresent := slices.Clone(state.Running), state.Generation == generation
	w.mu.Unlock()
	if !isPresent || w.cfg.RunCtx.Err() != nil {
		return
	}
	var err error
	hanging := w.hanging(state, generation, busy, w.cfg.NodeWatch.LastListing())
	if len(hanging) > 0 {
		err = w.cfg.Publish(signal.ControlDir,
			signal.OrderName(state.instance.Number, generation, signal.OrderHang(hanging[0])), &f.Failure, false)
	}
	if len(hanging) == 0 || err != nil {
		w.cfg.LogWriteError(err)
		w.mu.Lock()
		delete(w.decided, state) // it is decided again when it hangs again, or the share responds
		w.mu.Unlock()
		return
	}
	w.cfg.ControlWatch.NotifyChange() // the head's own instances
}
