package instances

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/roleview"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// maxParallelReads is the number of records that the head reads at the same time.
const maxParallelReads = 64

// ReadOffers reads the offers of all members of the team, in a run of size nodes.
func ReadOffers(ctx context.Context, dir *signal.Dir, members []int, size int) (*record.RolePlan, error) {
	rec := &record.RolePlan{Offers: make([]record.PlacedOffer, len(members))}
	reads, own := errgroup.WithContext(ctx)
	reads.SetLimit(maxParallelReads)
	for place, node := range members {
		reads.Go(func() error {
			var offer record.Offer
			if err := dir.ReadRecord(own, signal.NodesDir, signal.NodeName(node, size, record.StateOffer), &offer); err != nil {
				return health.AsFailure(err)
			}
			rec.Offers[place] = record.PlacedOffer{
				NodeIndex: node, Host: offer.Host, Address: offer.Address, Group: offer.Group, GPUs: offer.GPUs, FirstPort: offer.FirstPort, Domain: offer.Domain,
			}
			return nil
		})
	}
	return rec, reads.Wait()
}

// AwaitPlan waits until the head has published the plan of the roles, and returns it.
func AwaitPlan(ctx context.Context, p *lifecycle.Publisher, defs []roles.Definition) (*roles.Plan, error) {
	if _, err := p.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool { return l.NewestPlan() >= 0 }); err != nil {
		return nil, context.Cause(ctx)
	}
	rec := new(record.RolePlan)
	if err := p.Dir.ReadRecord(ctx, signal.ControlDir, signal.PlanName(0), rec); err != nil {
		return nil, health.AsFailure(err)
	}
	return MakePlan(defs, rec)
}

// MakePlan makes the plan of the roles on nodes with these offers.
func MakePlan(defs []roles.Definition, rec *record.RolePlan) (*roles.Plan, error) {
	plan, err := roles.MakePlan(defs, roleview.NodesOf(rec))
	if err != nil {
		return nil, health.NewFailure(health.Launch, "%v", err)
	}
	return plan, nil
}
