package instances

import (
	"context"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
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
	// DescribeSuspects describes the likely reason.
	DescribeSuspects func() lifecycle.Suspect
	// Diagnose logs what they do, and returns the failure of the instance.
	Diagnose func(ctx context.Context, hung world.HungWorld) *health.Failure
}

// watchHang publishes whether all processes of a generation on this node are idle, and calls hangs
// when the head has decided that the instance hangs. Its tasks end with ctx.
func (g *generation) watchHang(ctx context.Context, s *supervisor, number int, tasks *sync.WaitGroup,
	hangs func(*health.Failure)) {
	if s.role.HangTimeout == 0 || s.cfg.StandIns != nil {
		return
	}
	tasks.Go(func() {
		if f := s.awaitHang(ctx, number); f != nil {
			hangs(f)
		}
	})
	changes, node := 0, s.ownNode()
	instance, generation := s.instance.Number, number
	detector := stackdump.HangDetector{
		Timeout: s.role.HangTimeout, RunningRanks: g.running, CPUTimes: s.cfg.CPUTimes,
		CountSteps: func() int64 { return s.cfg.Steps.CountChanges(instance, generation) },
		OnChange: func(bool) {
			changes++
			s.report(number, signal.IdleName(node, s.cfg.Size, instance, generation, changes), nil, false)
		},
	}
	tasks.Go(func() { detector.Run(ctx) })
}

// running returns the processes of the generation that run on this node, and ranks that they have spawned.
func (g *generation) running() (running []stackdump.RankProcess) {
	if g.world != nil {
		return g.world.node.RunningRanks()
	}
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

// followHangs ends the instances that hang, until ctx ends.
func (h *Head) followHangs(ctx context.Context) {
	if !slices.ContainsFunc(h.instances, func(s *instanceState) bool { return s.Role.HangTimeout > 0 }) {
		return
	}
	_, _ = h.cfg.NodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		for _, state := range h.instances {
			if state.Role.HangTimeout > 0 {
				h.checkHang(state, l)
			}
		}
		return false
	})
}

// checkHang ends an instance that hangs, in the background: inspecting its processes takes a while.
func (h *Head) checkHang(state *instanceState, l signal.Listing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	generation := state.Generation
	if state.hungBefore > generation || len(state.Unknown) > 0 || h.cfg.RunCtx.Err() != nil ||
		len(h.hanging(state, l)) == 0 {
		return
	}
	state.hungBefore = generation + 1
	h.cfg.Background(func(ctx context.Context) { h.endHanging(ctx, state, generation) })
}

// hanging returns those of the busy nodes of an instance that matter, if all of them are idle
// according to a listing, and nil otherwise. The caller holds [Head.mu].
func (h *Head) hanging(state *instanceState, l signal.Listing) []int {
	busy := slices.Clone(state.Running)
	number, generation := state.Instance.Number, state.Generation
	// Nodes without steps do not matter if others have steps.
	withSteps := h.cfg.Hang.Steps.NodesWithSteps(l, number, generation)
	if len(withSteps) > 0 {
		busy = slices.DeleteFunc(busy, func(node int) bool { return !slices.Contains(withSteps, node) })
	}
	idle := l.IdleNodes(number, generation)
	if slices.ContainsFunc(busy, func(node int) bool { return !slices.Contains(idle, node) }) {
		return nil
	}
	return busy
}

// endHanging gives the failure of an instance that hangs to one of the idle nodes, unless its
// processes have gone on meanwhile.
func (h *Head) endHanging(ctx context.Context, state *instanceState, generation int) {
	number := state.Instance.Number
	withSteps := h.cfg.Hang.Steps.NodesWithSteps(h.cfg.NodeWatch.LastListing(), number, generation)
	hung := world.HungWorld{
		Dir: h.cfg.Dir.Path(), Instance: instanceName(state.Role, state.Instance),
		Timeout: state.Role.HangTimeout, HasSteps: len(withSteps) > 0,
		Progress: h.cfg.Hang.Steps.Summary(), LogName: h.cfg.Hang.LogName, Log: h.cfg.Log,
	}
	if state.Role.IsFlagWorld() {
		hung.Instance = ""
	}
	hung.Suspect = h.cfg.Hang.DescribeSuspects()
	f := h.cfg.Hang.Diagnose(ctx, hung)
	f.Phase = h.cfg.Events.CurrentPhase()
	h.mu.Lock()
	hanging, isPresent := h.hanging(state, h.cfg.NodeWatch.LastListing()), state.Generation == generation
	h.mu.Unlock()
	if !isPresent || h.cfg.RunCtx.Err() != nil {
		return
	}
	if len(hanging) > 0 && state.Role.IsFlagWorld() {
		h.cfg.CancelRun(f)
		return
	}
	var err error
	if len(hanging) > 0 {
		err = h.cfg.Publish(signal.ControlDir,
			signal.OrderName(state.Instance.Number, generation, signal.OrderHang(hanging[0])), &f.Failure, false)
	}
	if len(hanging) == 0 || err != nil {
		h.cfg.LogWriteError(err)
		h.mu.Lock()
		state.hungBefore = 0 // it is decided again when it hangs again, or the share responds
		h.mu.Unlock()
		return
	}
	h.cfg.ControlWatch.NotifyChange() // the head's own instances
}
