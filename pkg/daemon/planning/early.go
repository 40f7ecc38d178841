package planning

import (
	"context"
	"crypto/rand"
	"math/big"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// lookupTimeout limits the time for looking up the addresses of hosts, before there is a run
// directory. Without them the plan is made from the offers of the nodes.
const lookupTimeout = 500 * time.Millisecond

// EarlyFacts is what the head knows of all nodes before any of them has joined.
type EarlyFacts struct {
	launcher.Identity                      // the head's
	Environ           launcher.Environment // the head's
	Address           launcher.NodeAddress // the head's
	FirstPort         int                  // the first of each node's block; 0: the blocks are drawn
}

// PlanEarly plans the roles before any node has joined. It returns nil if their plan depends on what
// only the nodes know, or if they do not fit: then the offers of the nodes show why. A later plan has the
// ranks of flags if their number depends on that.
func PlanEarly(ctx context.Context, defs []roles.Definition, spares roles.Spares, known EarlyFacts) *NodeChoice {
	if rec := PlanLaunch(defs, known.Size); rec != nil {
		plan, err := MakePlan(defs, rec)
		if err != nil {
			return nil
		}
		return &NodeChoice{Plan: plan, Record: rec}
	}
	rec, early := beginEarly(defs)
	if len(early) == 0 || len(spares) > 0 || roles.NeedsOffers(early) {
		return nil
	}
	if roles.AreOnHead(defs) { // no other node takes part
		known.Size, known.Hosts = 1, []string{known.Host}
	}
	if len(known.Hosts) < known.Size || slices.Contains(known.Hosts, "") {
		return nil
	}
	firsts := known.drawBlocks(defs)
	if firsts == nil {
		return nil
	}
	for node, host := range known.Hosts[:known.Size] {
		facts := roles.NodeFacts{NodeIndex: node, Host: host, GPUs: max(0, GrantedGPUs(known.Identity)),
			FirstPort: firsts[node]}
		if roles.HasNamed(defs) { // those of flags do not select a component
			facts.Group = launcher.ComponentOf(known.Environ, host)
		}
		rec.Offers = append(rec.Offers, facts)
	}
	plan, err := MakePlan(defs, rec)
	if err != nil {
		return nil
	}
	// If nodes are left over, those that have no peer link are the idle ones.
	isClaim := func(d roles.Definition) bool { return d.Placement.ClaimsNodes() }
	if slices.ContainsFunc(defs, isClaim) && len(plan.IdleNodes()) > 0 {
		return nil
	}
	if !known.addAddresses(ctx, rec.Offers, plan.AddressedPlaces()) {
		return nil
	}
	return &NodeChoice{Plan: plan, Record: rec}
}

// beginEarly returns the record of an early plan without its nodes, and the roles that have instances
// there.
func beginEarly(defs []roles.Definition) (rec *roles.PlanRecord, early []roles.Definition) {
	rec = &roles.PlanRecord{Roles: roles.Describe(defs), Early: true}
	early = slices.DeleteFunc(slices.Clone(defs),
		func(d roles.Definition) bool { return d.IsFlagWorld() && d.Placement.RanksPerNode == roles.PerSlot })
	if len(early) < len(defs) {
		rec.Without = []roles.BuiltIn{roles.BuiltInRanks}
	}
	return rec, early
}

// PlanLaunch returns the record of the early plan in a launch of size nodes if it depends on nothing else:
// that of the driver and the services of flags. Each node knows it without reading it. For other roles it
// returns nil.
func PlanLaunch(defs []roles.Definition, size int) *roles.PlanRecord {
	rec, early := beginEarly(defs)
	needsFacts := func(d roles.Definition) bool { return d.BuiltIn == "" || d.IsFlagWorld() }
	if len(early) == 0 || slices.ContainsFunc(early, needsFacts) {
		return nil
	}
	if roles.AreOnHead(defs) { // no other node takes part
		size = 1
	}
	rec.Offers = make([]roles.NodeFacts, size)
	for node := range rec.Offers {
		rec.Offers[node].NodeIndex = node
	}
	return rec
}

// GrantedGPUs returns how many GPUs the launcher has granted on this node, or -1 if it does not say so.
func GrantedGPUs(id launcher.Identity) int {
	if id.GPUsSource == "" {
		return -1
	}
	return id.GPUs
}

// isOneMachine reports whether all nodes of the run are daemons of one machine.
func (k EarlyFacts) isOneMachine() bool { return k.Launcher == launcher.LauncherLocal }

// drawBlocks returns the first port of each node, which nobody can guess: daemons of one machine have
// different blocks. Without a block, because the kernel assigns all ports, it returns nil.
func (k EarlyFacts) drawBlocks(defs []roles.Definition) []int {
	firsts := make([]int, k.Size)
	if k.FirstPort > 0 || !roles.NeedsPorts(defs) {
		for node := range firsts {
			firsts[node] = k.FirstPort
		}
		return firsts
	}
	_, blocks := PortRange()
	if blocks <= 0 {
		return nil
	}
	drawn, err := rand.Int(rand.Reader, big.NewInt(int64(blocks)))
	if err != nil {
		return nil
	}
	onHost := make(map[string]int)
	for node, host := range k.Hosts[:k.Size] {
		index := onHost[host]
		onHost[host]++
		if k.isOneMachine() { // its nodes may have different names
			index = node
		}
		firsts[node] = LowestPort + (int(drawn.Int64())+index)%blocks*roles.BlockSize
	}
	return firsts
}

// addAddresses adds the addresses of places to the facts of their nodes, and reports whether it has
// found all. If the user has selected an interface, only the nodes know their addresses.
func (k EarlyFacts) addAddresses(ctx context.Context, facts []roles.NodeFacts, places []int) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTimeout, health.ErrDeadline)
	defer cancel()
	lookups, ctx := errgroup.WithContext(ctx)
	lookups.SetLimit(maxParallelReads)
	for _, place := range places {
		if place == 0 || k.isOneMachine() || facts[place].Host == k.Host {
			facts[place].Address = k.Address.Address
			continue
		}
		if k.Address.Selected {
			return false
		}
		lookups.Go(func() error {
			found, err := net.DefaultResolver.LookupHost(ctx, facts[place].Host)
			if err == nil {
				facts[place].Address = found[0]
			}
			return err
		})
	}
	isUnknown := func(place int) bool { return facts[place].Address == "" }
	return lookups.Wait() == nil && !slices.ContainsFunc(places, isUnknown)
}

// KeepPlannedPorts claims the block of a node in an early plan, and keeps the ports of its processes.
// It returns nil if another program listens in the block, or another daemon claims it. Without a
// block it returns one that has no ports.
func KeepPlannedPorts(p *lifecycle.Publisher, plan *roles.Plan, place int) *PortBlock {
	first := plan.Nodes[place].FirstPort
	if first == 0 {
		return NewPortBlock(p.Background)
	}
	last := first
	var defs []roles.Definition
	for i := range plan.Roles {
		role := &plan.Roles[i]
		defs = append(defs, *role.Definition)
		for _, instance := range role.Instances {
			for _, process := range instance.Processes {
				if process.Place == place {
					last = max(last, slices.Max(append(PortsOf(role, process), last)))
				}
			}
		}
	}
	block, err := ClaimBlockAt(p.Background, first, last-first+1)
	if err != nil || block == nil {
		return nil
	}
	serveSteps(p, block, defs)
	return block
}

// ClaimPorts claims a block of ports of the node for roles, and passes on those of further steps. If
// no role needs a block, the result has no ports.
func ClaimPorts(p *lifecycle.Publisher, defs []roles.Definition, number int) (*PortBlock, error) {
	if !roles.NeedsPorts(defs) {
		return NewPortBlock(p.Background), nil
	}
	block, err := ClaimBlock(p.Background, p.Dir.Name(), number)
	if err == nil {
		serveSteps(p, block, defs)
	}
	return block, err
}

// serveSteps passes on the ports of further steps, if the roles have any.
func serveSteps(p *lifecycle.Publisher, block *PortBlock, defs []roles.Definition) {
	if len(roles.StepNames(defs)) == 0 {
		return
	}
	if err := block.ServeGrants(p.Background, p.Dir, p.NodeIndex); err != nil {
		p.Log.Warn("the ports of further steps are not kept for them", zap.Error(err))
	}
}

// PortsOf returns the ports of a process that the file does not fix.
func PortsOf(role *roles.RolePlan, p roles.Process) (ports []int) {
	for at, request := range role.Program.Ports {
		for i := range max(1, request.Count) {
			if request.Number == 0 {
				ports = append(ports, p.Ports[at]+i)
			}
		}
	}
	return ports
}
