package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// offerResources publishes what this node offers to roles, if the job has any.
func (n *node) offerResources(ctx context.Context) (err error) {
	if !n.cfg.Roles.AreGiven() {
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
		n.rolePorts = instances.NewPortBlock(n.Background)
		return nil // the daemon of the run's own step offers them
	}
	address, err := n.cfg.Address()
	if err != nil {
		return health.NewFailure(health.Launch, "%s: %v; give --interface", n.nodeName(n.id.NodeIndex), err)
	}
	first := n.cfg.Simulation.FirstPort
	if first == 0 {
		if n.rolePorts, err = instances.ClaimPorts(n.Publisher, n.cfg.Roles.Definitions, n.id.LocalRank()); err == nil {
			first = n.rolePorts.First
		}
	}
	if err != nil {
		return health.NewFailure(health.Launch, "cannot find free ports on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	gpus := len(n.layout.GPUs)
	if n.id.GPUs >= 0 && n.id.GPUsSource != "" {
		gpus = n.id.GPUs
	}
	return n.Publish(signal.NodesDir, signal.NodeName(n.id.NodeIndex, n.id.Size, record.StateOffer), &record.Offer{
		Address: address.Address, Group: launcher.ComponentOf(launcher.EnvironmentOf(n.cfg.Environ),
			n.id.Host), GPUs: gpus, FirstPort: first, BusyPorts: n.rolePorts.BusyPorts(),
		Domain: n.gpuMonitor.NVLinkDomain(),
	}, false)
}

// bringUpRoles plans the roles on the nodes of the team, starts them, and waits for what the gate
// requires.
func (h *head) bringUpRoles(ctx context.Context) error {
	if !h.cfg.Roles.AreGiven() {
		return nil
	}
	_, changed := h.membership.Members()
	if err := h.awaitState(ctx, record.StateOffer,
		h.cfg.Times.Join+h.cfg.CheckTimeout()+h.Timing.SilenceTimeout); err != nil {
		return err
	}
	nodes := slices.Sorted(slices.Values(h.membership.MemberNodes()))
	offers, err := instances.ReadOffers(ctx, h.Dir, nodes, h.id.Size)
	if err != nil {
		return err
	}
	left := instances.RemainingSpares(h.cfg.Roles.Spares, nodes, h.nodeHosts(), launcher.EnvironmentOf(h.cfg.Environ))
	unlinked := func(nodes []int) map[int]bool { return h.Links.Unlinked(nodes, time.Now()) }
	choice, err := instances.ChooseNodes(ctx, h.cfg.Roles.Definitions, offers, left, unlinked)
	if err != nil {
		h.membership.FreezeMembers(changed, nil)
		return err
	}
	if idle := choice.IdleNodes(); len(idle) > 0 {
		h.Log.Warn("no role uses " + h.nodeNames(idle))
	}
	choice.Record.Roles = roles.Describe(h.cfg.Roles.Definitions)
	roleHead := instances.NewHead(instances.HeadConfig{
		Hang: instances.HangConfig{Steps: h.steps, LogName: h.children.LogName("daemon"),
			Diagnose: world.DiagnoseHang},
		Publisher: h.Publisher, NodeChoice: choice, Size: h.id.Size, Steps: h.id.Steps,
		SilentDelay: h.cfg.Times.Peer, Links: h.Links,
		HasStandIns: h.cfg.Simulation.RoleProcesses != nil, NodeWatch: h.nodeWatch, Worlds: &h.rendezvous,
		IsBusy: h.requests.IsBusy,
		Failed: func(cause record.Failure, at time.Time) {
			h.recordFailure(health.ObservedFailure{Failure: cause, ObservedAt: at})
		},
	})
	// From now on a spare takes the place of a node, instead of being chosen in place of it.
	if !h.membership.FreezeMembers(changed, roleHead.LoseNodes) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	first := *choice.Record // Publish writes its header, while a loss may already change the plan
	if err := h.Publish(signal.ControlDir, signal.SeriesPlan.Name(0), &first, false); err != nil {
		return err
	}
	h.running.roles = roleHead
	h.setRendezvousLink()
	h.Background(h.running.roles.Follow)
	if err := h.startRoles(&first); err != nil {
		return err
	}
	return h.RunPhase(record.PhaseWorkers, func() error {
		if err := h.running.roles.AwaitSteps(ctx, h.cfg.Times.Join); err != nil {
			return err
		}
		return h.running.roles.AwaitGate(ctx)
	})
}

// startRoles starts the supervisors of the instances on this node.
func (n *node) startRoles(rec *roles.PlanRecord) (err error) {
	n.roles, err = instances.NewNode(instances.NodeConfig{
		Publisher: n.Publisher, Children: n.children, Defs: n.cfg.Roles.Definitions, Record: rec,
		Size: n.id.Size, Step: n.cfg.Roles.Step, Name: n.nodeName(n.ownNode()),
		Host: n, Steps: n.steps, StandIns: n.cfg.Simulation.RoleProcesses,
		Frameworks: n.cfg.Roles.Frameworks, Ports: n.rolePorts, Out: n.cfg.Streams.Out, Err: n.cfg.Streams.Err,
	})
	if err == nil {
		n.roles.Start()
	}
	return err
}

// runLocalRoles waits for the plan of the roles and starts those of this node.
func (w *worker) runLocalRoles(ctx context.Context) error {
	if !w.cfg.Roles.AreGiven() {
		return nil
	}
	w.setRendezvousLink()
	// The head takes a silent daemon for lost, and a spare may start its instances.
	w.children.EndIfSilent(w.cfg.Times.Peer, func() {
		w.CancelRun(w.CutOffFailure(fmt.Sprintf("its daemon did not run for %s, so its guard has "+
			"ended its processes", w.cfg.Times.Peer)))
	})
	rec, err := instances.AwaitPlan(ctx, w.Publisher)
	if err != nil {
		return err
	}
	return w.startRoles(rec)
}

// runPrimaries waits until all primary roles have ended. Its error is an orderly
// *lifecycle.Outcome then.
func (h *head) runPrimaries(ctx context.Context) error {
	why, err := h.running.roles.AwaitPrimaries(ctx)
	if err != nil {
		return err
	}
	return &lifecycle.Outcome{Orderly: true, Name: health.DriverOutcomeName, Reason: why}
}

// The node gives the processes of roles what they get from it: it implements [instances.Host].

// Environ implements [instances.Host].
func (n *node) Environ(more map[string]string) []string {
	return envlist.With(n.driverEnv(n.ChildEnviron(n.cfg.Environ), n.id.Hosts, framework.Endpoint{}), more)
}

// ChildEnviron implements [instances.Host].
func (n *node) ChildEnviron(base []string) []string { return n.childEnv(base, n.placement.Slot.Load()) }

// DescribeNode implements [instances.Host].
func (n *node) DescribeNode(f framework.Framework, member instances.Member) (framework.Node, error) {
	self, err := n.describeForFramework(f, &membership.Slot{TeamIndex: member.Index, Size: member.Size})
	self.RunName, self.LaunchIndex = member.Cluster, member.Index
	return self, err
}

// RoleKey implements [instances.Host].
func (n *node) RoleKey(role string) string {
	return base64.RawURLEncoding.EncodeToString(n.Dir.DeriveSecret("role " + role))
}

// PrivateDir implements [instances.Host].
func (n *node) PrivateDir() (string, error) { return n.privateDir.EnsureDir() }
