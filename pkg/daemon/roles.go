package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// localRoles is a node's part of the roles. It has the zero value if there are none.
type localRoles struct {
	roles *instances.Node // nil before the roles of this node start
	part  planning.Part
}

// prepareNode waits until this node has passed its checks, and has agreed to an early plan of the roles,
// or has offered its resources for another one.
func (n *node) prepareNode(ctx context.Context) error {
	parts, own := errgroup.WithContext(ctx)
	if n.cfg.Roles.Step == "" { // otherwise the daemon of the run's own step checks the node
		parts.Go(func() error { return n.checker.PrepareNode(own) })
	}
	if n.part.KnowsGPUs() { // otherwise the checks find them
		parts.Go(func() error { return n.part.Review(planning.GrantedGPUs(n.id)) })
	}
	if err := parts.Wait(); err != nil {
		return err
	}
	if err := n.checkRankResources(); err != nil {
		return err
	}
	return n.offerResources(ctx)
}

// offerResources publishes what this node offers to roles, if the job has any and no early plan that is
// right for this node.
func (n *node) offerResources(ctx context.Context) (err error) {
	if !n.cfg.Roles.AreGiven() || n.part.HasNoRoles { // those of flags need none
		return nil
	}
	gpusOfNode := n.gpuMonitor.Topology()
	if n.cfg.Roles.Step != "" { // the checks of the daemon of the run's own step have queried them
		gpusOfNode = instances.StepTopology(ctx, n.Log)
	}
	if n.layout, err = n.cfg.Simulation.NodeResources(gpusOfNode, launcher.EnvironmentOf(n.cfg.Environ)); err != nil {
		return health.NewFailure(health.Launch, "cannot determine the resources of %s: %v",
			n.nodeName(n.id.NodeIndex), err)
	}
	if n.cfg.Roles.Step != "" {
		n.part.Ports = planning.NewPortBlock(n.Background)
		return nil // the daemon of the run's own step offers them
	}
	slots := n.rankSlots()
	return n.part.Offer(record.Offer{GPUs: len(n.layout.GPUs), NUMAs: max(1, slots.NUMAs),
		Cores: max(1, slots.Cores), Domain: n.gpuMonitor.NVLinkDomain()})
}

// bringUpRoles plans the roles, starts them, and waits for what the gate requires. Those of an early
// plan, and those of flags, start while other nodes still join and check themselves.
func (h *head) bringUpRoles(ctx context.Context) error {
	if h.node.cfg.Roles.AreGiven() && h.running.earlyChoice == nil {
		if err := h.awaitChecks(ctx); err != nil {
			return err
		}
		if err := h.planRoles(ctx); err != nil {
			return err
		}
		return h.awaitRoles(ctx)
	}
	parts, own := errgroup.WithContext(ctx)
	planned := make(chan struct{}) // closed when the plan holds
	parts.Go(func() error {
		if err := h.holdPlan(own); err != nil {
			return err
		}
		close(planned)
		return h.awaitRoles(own)
	})
	parts.Go(func() error {
		if err := h.awaitChecks(own); err != nil || !h.node.cfg.Roles.AreGiven() {
			return err
		}
		if err := h.awaitState(own, record.StateJoined, h.checksTimeout()); err != nil {
			return err
		}
		// From now on the run may go on without a node.
		if ctxutil.AwaitDone(own, planned) {
			h.membership.DecideLosses(h.roleHead().LoseNodes)
		}
		return nil
	})
	return parts.Wait()
}

// holdPlan makes the early plan hold when all nodes have agreed to it. Without one, it plans the built-in
// roles on the present team.
func (h *head) holdPlan(ctx context.Context) error {
	early := h.running.earlyChoice
	switch {
	case early == nil:
		return h.planTeam(ctx)
	case h.roleHead() != nil: // only the team has changed
		return nil
	}
	choice, err := h.agreeOnPlan(ctx, early)
	if err != nil {
		return err
	}
	return h.beginRoles(ctx, choice)
}

// planTeam plans the built-in roles on the team, and publishes the plan. Ranks follow when it is certain
// which nodes they use.
func (h *head) planTeam(ctx context.Context) error {
	isLater := func(d roles.Definition) bool { return !d.IsFlagWorld() }
	if !h.membership.HasSpares() && !slices.ContainsFunc(h.node.defs, isLater) {
		return nil
	}
	rec := h.teamRecord()
	rec.Without = []roles.BuiltIn{roles.BuiltInRanks}
	return h.useTeamPlan(ctx, rec)
}

// teamRecord returns the record of a plan on the present team.
func (h *head) teamRecord() *roles.PlanRecord {
	members, _ := h.membership.Members()
	rec := &roles.PlanRecord{Number: h.membership.NextPlan(h.running.number),
		Roles: roles.Describe(h.node.defs), Dropped: h.membership.DroppedNodes()}
	hosts := h.nodeHosts()
	for _, member := range members { // the team may change meanwhile, and another plan follows
		rec.Offers = append(rec.Offers, roles.NodeFacts{NodeIndex: member.NodeIndex, Host: hosts[member.NodeIndex],
			Since: member.SinceGeneration})
	}
	return rec
}

// useTeamPlan publishes a plan of the built-in roles, and makes it the newest one.
func (h *head) useTeamPlan(ctx context.Context, rec *roles.PlanRecord) error {
	plan, err := planning.MakePlan(h.node.defs, rec)
	if err != nil {
		return err
	}
	if err := h.publishPlan(rec); err != nil {
		return err
	}
	return h.beginRoles(ctx, &planning.NodeChoice{Plan: plan, Record: rec})
}

// startAlone starts the service of the head and its sandbox if the head chooses the team, which may take
// long: neither depends on it.
func (h *head) startAlone() error {
	if !h.node.cfg.AssignsPlaces() || len(h.node.defs) == 0 {
		return nil
	}
	return h.startOwnRoles(&roles.PlanRecord{
		Offers: []roles.NodeFacts{{Host: h.node.id.Host}}, Number: -1,
		Without: []roles.BuiltIn{roles.BuiltInWorker, roles.BuiltInRanks},
	})
}

// planRolesEarly plans the roles before any node has joined, if that is possible, and returns the
// record of the plan.
func (h *head) planRolesEarly(address launcher.NodeAddress) []signal.ControlRecord {
	if h.node.cfg.AssignsPlaces() {
		return nil // the plan follows when the team is known
	}
	choice := planning.PlanEarly(h.node.RunCtx, h.node.defs, h.node.cfg.Roles.Spares, planning.EarlyFacts{
		Identity: h.node.id, Environ: launcher.EnvironmentOf(h.node.cfg.Environ), Address: address,
		FirstPort: h.node.cfg.Simulation.FirstPort,
	})
	if choice == nil || h.addWorldFacts(choice.Record) != nil {
		return nil // the plan before the gate shows why
	}
	h.running.earlyChoice, h.running.number = choice, choice.Record.Number
	h.node.part.Early, h.node.part.Reviewed = choice.Record, choice.Plan
	first := *choice.Record // its header is written
	return []signal.ControlRecord{{Name: signal.SeriesPlan.Name(0), Record: &first}}
}

// agreeOnPlan waits until all nodes have agreed to the early plan. If some have made offers instead, it
// publishes a plan with these.
func (h *head) agreeOnPlan(ctx context.Context, early *planning.NodeChoice) (*planning.NodeChoice, error) {
	if !roles.NeedsAgreement(h.node.defs) {
		return early, nil
	}
	if err := h.awaitNodes(ctx, "to agree to the plan of the roles", h.checksTimeout(), func(l signal.Listing) []int {
		missing := signal.WithoutNodes(h.membership.MissingNodes(l, record.StateAccepted), l.NodesIn(record.StateOffer))
		areOnHead := roles.AreOnHead(h.node.defs)
		return slices.DeleteFunc(missing,
			func(node int) bool { return node == 0 && h.node.part.IsAccepted || node > 0 && areOnHead })
	}); err != nil {
		return nil, err
	}
	offering := h.nodeWatch.LastListing().NodesIn(record.StateOffer)
	if len(offering) == 0 {
		return early, nil
	}
	offers, err := planning.ReadOffers(ctx, h.node.Dir, offering, h.node.id.Size)
	if err != nil {
		return nil, err
	}
	next := &planning.NodeChoice{Record: early.Record.WithOffers(offers)}
	if next.Plan, err = planning.MakePlan(h.node.defs, next.Record); err != nil {
		return nil, err
	}
	return next, h.publishPlan(next.Record)
}

// planRoles plans the roles on the nodes of the team, by their offers.
func (h *head) planRoles(ctx context.Context) error {
	_, changed := h.membership.Members()
	if err := h.awaitState(ctx, record.StateOffer, h.checksTimeout()); err != nil {
		return err
	}
	nodes := slices.Sorted(slices.Values(h.membership.MemberNodes()))
	offers, err := planning.ReadOffers(ctx, h.node.Dir, nodes, h.node.id.Size)
	if err != nil {
		return err
	}
	left := h.node.cfg.Roles.Spares.Remaining(nodes, h.nodeHosts(), launcher.EnvironmentOf(h.node.cfg.Environ))
	unlinked := func(nodes []int) map[int]bool { return h.node.Links.Unlinked(nodes, time.Now()) }
	choice, err := planning.ChooseNodes(ctx, h.node.defs, offers, left, unlinked)
	if err != nil {
		h.membership.FreezeMembers(changed, nil)
		return err
	}
	choice.Record.Roles, choice.Record.Dropped = roles.Describe(h.node.defs), h.membership.DroppedNodes()
	all := h.newRoleHead(choice)
	// From now on a spare takes the place of a node, instead of being chosen in place of it.
	if !h.membership.FreezeMembers(changed, all.LoseNodes) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := h.publishPlan(choice.Record); err != nil {
		return err
	}
	return h.followRoles(ctx, choice, all)
}

// checksTimeout is how long the head waits for the nodes to pass their checks, to agree to a plan, or to
// make offers.
func (h *head) checksTimeout() time.Duration {
	return h.node.cfg.Times.Join + h.node.cfg.CheckTimeout() + h.node.Timing.SilenceTimeout
}

// publishPlan publishes a plan of the roles.
func (h *head) publishPlan(rec *roles.PlanRecord) error {
	h.running.number = rec.Number
	published := *rec // Publish writes its header, while a loss may already change the plan
	return h.node.Publish(signal.ControlDir, signal.SeriesPlan.Name(rec.Number), &published, false)
}

// newRoleHead returns the head's part of the roles. Nothing runs yet.
func (h *head) newRoleHead(choice *planning.NodeChoice) *instances.Head {
	var dropped func() []record.DroppedNode
	if len(h.node.cfg.Roles.Spares) > 0 {
		dropped = h.membership.DroppedNodes
	}
	return instances.NewHead(instances.HeadConfig{
		Dropped: dropped,
		Hang: instances.HangConfig{Steps: h.node.steps, LogName: h.node.children.LogName("daemon"),
			DescribeSuspects: h.suspects().Describe, Diagnose: world.DiagnoseHang},
		Publisher: h.node.Publisher, NodeChoice: choice, Defs: h.node.defs, Size: h.node.id.Size,
		Steps: h.node.id.Steps, SilentDelay: h.node.cfg.Times.Peer, Links: h.node.Links,
		HasStandIns: h.node.cfg.Simulation.RoleProcesses != nil, NodeWatch: h.nodeWatch, Worlds: &h.rendezvous,
		// Before the gate, the driver waits for what is no role.
		IsBusy: func() bool {
			return h.requests.IsBusy() || h.node.serviceInfo.Load() == nil && !h.node.cfg.Roles.AreGiven()
		},
		IsHeadServiceUp: h.isServiceUp,
		FlagRanks:       flagRanks{h, choice.Plan},
		Failed: func(cause record.Failure, at time.Time) {
			if cause.Kind == health.SandboxDied { // a spare may take the place of the node
				h.reportFailure(cause, at)
				return
			}
			h.recordFailure(health.ObservedFailure{Failure: cause, ObservedAt: at})
		},
	})
}

// beginRoles starts the roles by the plan that holds, which may replace another one before the gate.
func (h *head) beginRoles(ctx context.Context, choice *planning.NodeChoice) error {
	return h.followRoles(ctx, choice, h.newRoleHead(choice))
}

// followRoles starts the roles by the plan that holds, for which all decides.
func (h *head) followRoles(ctx context.Context, choice *planning.NodeChoice, all *instances.Head) error {
	if idle := choice.IdleNodes(); len(idle) > 0 && roles.HasNamed(h.node.defs) {
		h.node.Log.Warn("no role uses " + h.node.nodeNames(idle))
	}
	if h.node.cfg.GPUs != nil { // with --gpu-check=off, the roles need none
		all.WarnIdleGPUs()
	}
	if rec := instances.PlaceFlagRanks(choice.Plan, h.node.cfg.World.MaxPerNode); rec != nil {
		h.openFlagWorld(rec)
	}
	if h.running.endRoles != nil {
		h.running.endRoles()
	}
	h.running.roles.Store(all)
	following, end := context.WithCancel(h.node.WorkCtx)
	h.running.endRoles = end
	h.node.Background(func(context.Context) { all.Follow(following) })
	if h.node.roles == nil {
		return h.startOwnRoles(choice.Record)
	}
	h.node.roles.UsePlan(ctx, choice)
	return nil
}

// startOwnRoles starts the supervisors of the instances on the head's node.
func (h *head) startOwnRoles(rec *roles.PlanRecord) error {
	h.setRendezvousLink()
	return h.node.startRoles(rec, builtInServices{node: h.node, head: h}, h)
}

// awaitRoles waits until the roles have what the gate requires.
func (h *head) awaitRoles(ctx context.Context) error {
	if !h.node.cfg.Roles.AreGiven() {
		parts, own := errgroup.WithContext(ctx)
		parts.Go(func() error { return h.awaitServices(own) })
		if h.node.cfg.Sandbox.IsRequested() {
			parts.Go(func() error { return h.awaitSandboxes(own) })
		}
		return parts.Wait()
	}
	return h.node.RunPhase(record.PhaseWorkers, func() error {
		if err := h.roleHead().AwaitSteps(ctx, h.node.cfg.Times.Join); err != nil {
			return err
		}
		return h.roleHead().AwaitGate(ctx)
	})
}

// startRoles starts the supervisors of the instances on this node. driver has the driver, and is nil on
// other nodes than the head's.
func (n *node) startRoles(rec *roles.PlanRecord, services instances.ServiceHost,
	driver instances.DriverHost) (err error) {
	plan := n.part.Reviewed
	if plan == nil || rec != n.part.Early {
		if plan, err = planning.MakePlan(n.defs, rec); err != nil {
			return err
		}
	}
	n.roles, err = instances.NewNode(instances.NodeConfig{
		Publisher: n.Publisher, Children: n.children, Defs: n.defs, Record: rec, Plan: plan,
		Size: n.id.Size, Step: n.cfg.Roles.Step, Name: n.nodeName(n.ownNode()),
		Host: n, Services: services, Driver: driver, Steps: n.steps, StandIns: n.cfg.Simulation.RoleProcesses,
		Frameworks: n.cfg.Roles.Frameworks, Ports: n.part.Ports, Out: n.cfg.Streams.Out, Err: n.cfg.Streams.Err,
		Runners: func(d roles.Definition) *ranks.Runners { return n.cfg.Roles.RunnersOf(d, n.id.Size) },
	})
	if err != nil {
		return err
	}
	// Commands from outside find the cluster, if there is one.
	if endpoint, hasCluster := n.roles.ClusterEndpoint(); hasCluster {
		n.serviceInfo.Store(&service.Team{Endpoint: endpoint})
	}
	n.roles.Start()
	return nil
}

// runLocalRoles waits for the plan of the roles and starts those of this node.
func (w *worker) runLocalRoles(ctx context.Context) error {
	if len(w.node.defs) == 0 || w.node.part.HasNoRoles {
		return nil
	}
	w.setRendezvousLink()
	if w.node.cfg.Roles.AreGiven() { // the head takes a silent daemon for lost, and a spare may start its instances
		w.node.children.EndIfSilent(w.node.cfg.Times.Peer, func() {
			w.node.CancelRun(w.node.CutOffFailure(fmt.Sprintf("its daemon did not run for %s, so its guard has "+
				"ended its processes", w.node.cfg.Times.Peer)))
		})
	}
	rec, err := planning.AwaitPlan(ctx, w.node.Publisher, w.node.part.Early, w.node.defs)
	if err != nil {
		return err
	}
	return w.node.startRoles(rec, builtInServices{node: w.node, worker: w}, nil)
}

// The node gives the processes of roles what they get from it: it implements [instances.Host].

// Environ implements [instances.Host].
func (n *node) Environ(place roles.Placement, more map[string]string) []string {
	kind := launcher.ChildProcess
	switch {
	case place.HasRanks:
		kind = launcher.ChildRank
	case place.Nodes == roles.NodesHead && place.InstancesPerNode == 1 && place.RanksPerNode == 1:
		kind = launcher.ChildCommand // as the driver of flags
	}
	return n.environ(kind, n.cfg.Environ, n.slot.Load(), &service.Team{Hosts: n.id.Hosts}, more)
}

// ServiceEnviron implements [instances.Host].
func (n *node) ServiceEnviron(base []string) []string {
	return n.environ(launcher.ChildService, base, n.slot.Load(), nil)
}

// DescribeNode implements [instances.Host].
func (n *node) DescribeNode(f framework.Framework, member instances.Member) (framework.Node, error) {
	self, err := n.describeForFramework(f, &service.Slot{Place: member.Index, Size: member.Size})
	self.RunName, self.LaunchIndex = member.Cluster, member.Index
	return self, err
}

// RoleKey implements [instances.Host].
func (n *node) RoleKey(role string) string {
	return base64.RawURLEncoding.EncodeToString(n.Dir.DeriveSecret("role " + role))
}

// ReportSilence implements [instances.Host].
func (n *node) ReportSilence(child, log, errorLine string, silent time.Duration) {
	n.nodeEvents.ReportSilence(child, log, errorLine, silent)
}

// PrivateDir implements [instances.Host].
func (n *node) PrivateDir() (string, error) { return n.privateDir.EnsureDir() }
