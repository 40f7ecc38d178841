package planning

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// maxParallelReads is the number of records that the head reads at the same time.
const maxParallelReads = 64

// ReadOffers reads the offers of all members of the team, in a run of size nodes.
func ReadOffers(
	ctx context.Context, dir *signal.Dir, members []int, size int,
) ([]roles.NodeFacts, error) {
	offers := make([]roles.NodeFacts, len(members))
	reads, own := errgroup.WithContext(ctx)
	reads.SetLimit(maxParallelReads)
	for place, node := range members {
		reads.Go(func() error {
			var offer record.Offer
			if err := dir.ReadRecord(own, signal.NodesDir,
				signal.NodeName(node, size, record.StateOffer), &offer); err != nil {
				return health.AsFailure(err)
			}
			offers[place] = roles.NodeFacts{
				NodeIndex: node, Host: offer.Host, Address: offer.Address, Group: offer.Group,
				GPUs: offer.GPUs, NUMAs: offer.NUMAs, Cores: offer.Cores, Domain: offer.Domain,
				FirstPort: offer.FirstPort, BusyPorts: offer.BusyPorts,
			}
			return nil
		})
	}
	err := reads.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx) // the team has changed, or the run ends
	}
	return offers, err
}

// AwaitPlan waits until the head has published a plan of the roles that holds, and returns its
// record. early is the one with which the run has begun; nil: it has begun without.
func AwaitPlan(ctx context.Context, p *lifecycle.Publisher, early *roles.PlanRecord,
	defs []roles.Definition) (*roles.PlanRecord, error) {
	if early != nil && !roles.NeedsAgreement(defs) {
		return early, nil
	}
	// An early plan holds when the head has given an order by it, unless a newer one replaces it.
	isNeeded := func(l signal.Listing) bool {
		return early == nil || l.Newest(signal.SeriesPlan) > 0 || l.HasName(signal.NameGateOpen) ||
			slices.ContainsFunc(defs, func(d roles.Definition) bool { return l.HasName(signal.StartName(d.Name)) })
	}
	last, err := p.ControlWatch.FollowListings(ctx,
		func(l signal.Listing) bool { return l.Newest(signal.SeriesPlan) >= 0 && isNeeded(l) })
	if err != nil {
		return nil, context.Cause(ctx)
	}
	if newest := last.Newest(signal.SeriesPlan); early == nil || newest > early.Number {
		return ReadPlan(ctx, p.Dir, newest)
	}
	return early, nil
}

// ReadPlan reads the plan with a number. If ctx ends first, but not by its deadline, the error is
// its cause: the run may have ended in order.
func ReadPlan(ctx context.Context, dir *signal.Dir, number int) (*roles.PlanRecord, error) {
	rec := &roles.PlanRecord{Number: number}
	err := dir.ReadRecord(ctx, signal.ControlDir, signal.SeriesPlan.Name(number), rec)
	switch {
	case err == nil:
		return rec, nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), health.ErrDeadline):
		return nil, context.Cause(ctx)
	}
	return nil, health.AsFailure(err)
}

// MakePlan makes the plan of the roles on nodes with these offers.
func MakePlan(defs []roles.Definition, rec *roles.PlanRecord) (*roles.Plan, error) {
	plan, err := rec.MakePlan(defs)
	if err != nil {
		return nil, health.NewFailure(health.Launch, "%v", err)
	}
	return plan, nil
}

// MembersOf returns the nodes that have made these offers.
func MembersOf(offers []roles.NodeFacts) (members []int) {
	for _, offer := range offers {
		members = append(members, offer.NodeIndex)
	}
	return members
}
