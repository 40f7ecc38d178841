package planning

import (
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Part is the part of a node in the planning of the roles: it agrees to an early plan, or offers its
// resources for another one.
type Part struct {
	*lifecycle.Publisher
	Cfg        *deps.Config
	ID         *launcher.Identity // this node's
	Defs       []roles.Definition // the roles that the run has
	Ports      *PortBlock         // nil if there is none
	Early      *roles.PlanRecord  // with which the run has begun; nil: it has begun without
	Reviewed   *roles.Plan        // the plan of Early; nil: it has not been made here
	IsAccepted bool               // the early plan is right for this node
	HasNoRoles bool               // the early plan does not concern this node
}

// ReadEarly reads the plan of the roles with which the run has begun, if it has one that concerns this
// node and is not known without that.
func (n *Part) ReadEarly(job record.Job) (err error) {
	n.HasNoRoles = job.HasEarlyPlan && roles.AreOnHead(n.Defs)
	if !job.HasEarlyPlan || n.HasNoRoles {
		return nil
	}
	if n.Early = PlanLaunch(n.Defs, n.ID.Size); n.Early == nil {
		n.Early, err = ReadPlan(n.RunCtx, n.Dir, 0)
	}
	return err
}

// KnowsGPUs reports whether this node knows, before its checks, how many GPUs the plan has for it.
func (n *Part) KnowsGPUs() bool {
	return GrantedGPUs(*n.ID) >= 0 || !roles.DependsOnGPUs(n.Defs)
}

// Review decides whether an early plan of the roles is right for this node, which has these GPUs.
// If so, it publishes that, unless the head does not wait for it. That of flags is right for all nodes.
func (n *Part) Review(gpus int) (err error) {
	if n.Early == nil || n.Cfg.Roles.Step != "" || !n.Cfg.Roles.AreGiven() {
		return nil
	}
	if n.Reviewed == nil {
		if n.Reviewed, err = MakePlan(n.Defs, n.Early); err != nil {
			return err
		}
	}
	address, _ := n.Cfg.Address() // without one, the plan may be right nevertheless
	if !n.Reviewed.Accepts(n.ID.NodeIndex, gpus, address.Address) {
		return nil
	}
	if n.Cfg.Simulation.FirstPort == 0 {
		if n.Ports = KeepPlannedPorts(n.Publisher, n.Reviewed, n.ID.NodeIndex); n.Ports == nil {
			return nil
		}
	}
	n.IsAccepted = true
	if n.ID.NodeIndex == 0 || !roles.NeedsAgreement(n.Defs) {
		return nil
	}
	return n.PublishState(record.StateAccepted)
}

// Offer publishes what this node offers to roles, found by its checks, with its address and ports, unless
// the early plan is right for it.
func (n *Part) Offer(found record.Offer) error {
	if granted := GrantedGPUs(*n.ID); granted >= 0 {
		found.GPUs = granted
	} else if !n.KnowsGPUs() {
		if err := n.Review(found.GPUs); err != nil {
			return err
		}
	}
	if n.IsAccepted {
		return nil
	}
	name := n.ID.MemberLabel(n.ID.NodeIndex, n.ID.HostOf(n.ID.NodeIndex))
	address, err := n.Cfg.Address()
	if err != nil {
		return health.NewFailure(health.Launch, "%s: %v; give --interface", name, err)
	}
	if found.FirstPort = n.Cfg.Simulation.FirstPort; found.FirstPort == 0 {
		if n.Ports, err = ClaimPorts(n.Publisher, n.Defs, n.ID.LocalRank()); err != nil {
			return health.NewFailure(health.Launch, "cannot find free ports on %s: %v", name, err)
		}
		found.FirstPort = n.Ports.First
	}
	found.Address, found.BusyPorts = address.Address, n.Ports.BusyPorts()
	found.Group = launcher.ComponentOf(launcher.EnvironmentOf(n.Cfg.Environ), n.ID.Host)
	return n.Publish(signal.NodesDir, signal.NodeName(n.ID.NodeIndex, n.ID.Size, record.StateOffer), &found, false)
}
