package instances

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// knownPlan is the newest plan that a node knows.
type knownPlan struct {
	*roles.Plan
	record *roles.PlanRecord
	place  int // the node's; -1 for a spare
	// listVariables returns the variables that are the same for all processes. The caller must not change
	// the map. They are computed once: a plan may have thousands of endpoints.
	listVariables func() map[string]string
}

// known returns the newest plan that this node knows.
func (n *Node) known() *knownPlan { return n.plan.Load() }

// firstGeneration returns the generation with which this node begins an instance.
func (p *knownPlan) firstGeneration(role *roles.RolePlan, instance *roles.Instance) int {
	return max(0, p.record.FirstGeneration(role, instance))
}

// isOver reports whether an instance is over, so that a spare does not start it.
func (p *knownPlan) isOver(instance int) bool { return p.record.Generations[instance] == noGeneration }

// loadPlan reads the newest plan in a listing, unless it is known. If another node has the place
// of this one there, the head has taken this node for lost.
func (n *Node) loadPlan(ctx context.Context, l signal.Listing) error {
	if !n.reading.Take(ctx) {
		return context.Cause(ctx)
	}
	defer n.reading.Leave()
	number := l.Newest(signal.SeriesPlan)
	if number <= n.known().record.Number {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	rec, err := planning.ReadPlan(ctx, n.cfg.Dir, number)
	if err != nil {
		return err
	}
	plan, err := planning.MakePlan(n.cfg.Defs, rec)
	if err != nil {
		return err
	}
	if n.known().place >= 0 && rec.PlaceOf(n.ownNode()) < 0 && roles.HasNamed(n.cfg.Defs) {
		n.endAsLost()
	}
	n.setPlan(plan, rec)
	return nil
}

// setPlan makes a plan the newest one.
func (n *Node) setPlan(plan *roles.Plan, rec *roles.PlanRecord) {
	before := -1
	if known := n.known(); known != nil {
		before = known.place
	}
	next := &knownPlan{Plan: plan, record: rec, place: rec.PlaceOf(n.ownNode()),
		listVariables: sync.OnceValue(plan.ListVariables)}
	n.plan.Store(next)
	n.cfg.Host.TakePlace(rec, next.place, before)
}

// UsePlan makes a plan of the head the newest one, and starts what it has on the head's node.
func (n *Node) UsePlan(ctx context.Context, choice *planning.NodeChoice) {
	if n.reading.Take(ctx) {
		n.setPlan(choice.Plan, choice.Record)
		n.reading.Leave()
		n.startOwn()
	}
}

// endAsLost ends the part of this node in the run: another node may start its instances.
func (n *Node) endAsLost() {
	f := health.NewFailure(health.CutOff, "%s was taken for lost, and another node may have its place", n.cfg.Name)
	f.LostNodes = []int{n.cfg.NodeIndex}
	n.cfg.CancelRun(f)
}

// followPlans reads each newer plan, and learns whether this node was taken for lost. A spare node
// starts its instances when it has taken a place.
func (n *Node) followPlans(ctx context.Context) {
	lost := signal.LostName(n.cfg.NodeIndex, n.cfg.Size)
	_, _ = n.cfg.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		if l.HasName(lost) {
			n.endAsLost()
		}
		if err := n.loadPlan(ctx, l); err != nil && ctx.Err() == nil && !signal.IsStalled(err) {
			n.cfg.Log.Warn("cannot read the plan of the roles", zap.Error(err))
		}
		n.startOwn()
		return false
	})
}
