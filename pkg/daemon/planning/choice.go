package planning

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

// NodeChoice states which nodes the roles use.
type NodeChoice struct {
	Plan   *roles.Plan
	Record *roles.PlanRecord // with the offers of the nodes of the plan, by place
	Spares []roles.NodeFacts // offers of the spare nodes, in the order of the nodes
}

// UnlinkedNodes returns those of the nodes that have no peer link: see [health.Links.Unlinked].
type UnlinkedNodes func(nodes []int) map[int]bool

const (
	linkDelay = 250 * time.Millisecond // how long the choice of nodes waits for peer links
	// linkPollInterval is the interval between two looks at the peer links, which are in memory.
	linkPollInterval = 5 * time.Millisecond
)

// ChooseNodes plans the roles on the nodes with these offers, which are sorted, except for the
// spare ones of each group: the last ones. If there are more nodes than the roles need, those
// without a peer link are not used, unless none has one or the roles do not fit on the others. If
// this changes the plan, it waits a moment for their links.
func ChooseNodes(
	ctx context.Context, defs []roles.Definition, offers []roles.NodeFacts, spares roles.Spares,
	unlinked UnlinkedNodes,
) (*NodeChoice, error) {
	first, err := chooseLinked(defs, offers, spares, nil)
	if err != nil {
		return nil, err
	}
	nodes, firstNodes := MembersOf(offers), MembersOf(first.Record.Offers)
	for began := time.Now(); ; {
		missing := unlinked(nodes)
		if len(missing) == 0 || len(missing) >= len(nodes)-1 { // none of the workers has a link
			return first, nil
		}
		choice, err := chooseLinked(defs, offers, spares, missing)
		if err != nil {
			return first, nil
		}
		if slices.Equal(MembersOf(choice.Record.Offers), firstNodes) {
			return choice, nil
		}
		if time.Since(began) >= linkDelay || !ctxutil.SleepContext(ctx, linkPollInterval) {
			return choice, context.Cause(ctx)
		}
	}
}

// chooseLinked plans the roles on nodes, preferably those that are not in missing.
func chooseLinked(
	defs []roles.Definition, offers []roles.NodeFacts, spares roles.Spares, missing map[int]bool,
) (*NodeChoice, error) {
	choice := &NodeChoice{Record: new(roles.PlanRecord)}
	preferred := PreferLinked(offers, missing)
	used, spare := spares.Split(preferred)
	for _, place := range used {
		choice.Record.Offers = append(choice.Record.Offers, preferred[place])
	}
	for _, place := range spare {
		choice.Spares = append(choice.Spares, preferred[place])
	}
	inOrder := func(a, b roles.NodeFacts) int { return cmp.Compare(a.NodeIndex, b.NodeIndex) }
	slices.SortFunc(choice.Record.Offers, inOrder)
	slices.SortFunc(choice.Spares, inOrder) // a loss prefers those that have a link then
	plan, err := MakePlan(defs, choice.Record)
	if err != nil {
		return nil, err
	}
	choice.Plan = plan
	// Roles may need fewer nodes than there are: they get the first ones.
	before := choice.countUsed(missing)
	if before == 0 || len(plan.IdleNodes()) == 0 {
		return choice, nil
	}
	sorted := &roles.PlanRecord{Offers: PreferLinked(choice.Record.Offers, missing)}
	other := &NodeChoice{Record: sorted, Spares: choice.Spares}
	other.Plan, err = MakePlan(defs, sorted)
	if err != nil || other.countUsed(missing) >= before {
		return choice, nil
	}
	return other, nil
}

// IdleNodes returns the nodes of the plan on which no process runs.
func (c *NodeChoice) IdleNodes() (nodes []int) {
	for _, place := range c.Plan.IdleNodes() {
		nodes = append(nodes, c.Record.Offers[place].NodeIndex)
	}
	return nodes
}

// countUsed returns how many of the nodes in missing the roles use.
func (c *NodeChoice) countUsed(missing map[int]bool) (count int) {
	idle := c.IdleNodes()
	for _, offer := range c.Record.Offers {
		if missing[offer.NodeIndex] && !slices.Contains(idle, offer.NodeIndex) {
			count++
		}
	}
	return count
}

// PreferLinked returns offers with those of the nodes in missing behind the others.
func PreferLinked(offers []roles.NodeFacts, missing map[int]bool) (sorted []roles.NodeFacts) {
	var last []roles.NodeFacts
	for _, offer := range offers {
		if missing[offer.NodeIndex] {
			last = append(last, offer)
		} else {
			sorted = append(sorted, offer)
		}
	}
	return append(sorted, last...)
}
