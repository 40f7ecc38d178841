package daemon

import (
	"context"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
)

// launchPlace returns the place of this node in the team, or nil if the head assigns the places.
func (n *node) launchPlace() *membership.Slot {
	if n.cfg.AssignsPlaces() {
		return nil
	}
	return &membership.Slot{TeamIndex: n.ownNode(), Size: n.id.Size}
}

// workerService returns the framework's worker service for this node in a place, or nil if it has
// none.
func (n *node) workerService(endpoint framework.Endpoint, place *membership.Slot) (*framework.Service, error) {
	self, err := n.describeForFramework(n.cfg.Framework, place)
	if err != nil {
		return nil, err
	}
	service, err := framework.Cluster{Framework: n.cfg.Framework, Endpoint: endpoint}.WorkerService(self)
	if service != nil {
		service.Env = n.childEnv(service.Env, place)
	}
	return service, err
}

// serveWorker starts the node's worker service, if there is one, and publishes that this node is
// up in the place.
func (n *node) serveWorker(ctx context.Context, endpoint framework.Endpoint, place *membership.Slot) error {
	service, err := n.workerService(endpoint, place)
	if err != nil {
		return err
	}
	if service != nil {
		n.placement.SetService(service.Name)
		err = n.children.StartService(ctx, service, health.ServiceDied, n.cfg.Times.Start, func(f *health.Failure) {
			if n.placement.Slot.Load() == place { // otherwise the daemon has ended it for another place
				n.CancelRun(f)
			}
		})
	}
	if err != nil {
		return err
	}
	return n.PublishState(signal.ServiceUpState(place.Generation))
}

func (n *node) describeForFramework(f framework.Framework, place *membership.Slot) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, health.NewFailure(health.Launch, "%v; give --interface", err)
	}
	if place == nil {
		place = new(membership.Slot) // the head, before a team has been chosen
	}
	temp, err := n.privateDir.EnsureShortDir(framework.TraitsOf(f).MaxTempDir)
	if n.RunCtx.Err() != nil {
		return framework.Node{}, context.Cause(n.RunCtx)
	}
	if err != nil {
		return framework.Node{}, health.NewFailure(health.CheckEnvironment, "cannot create a private directory on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self := framework.Node{
		RunName: n.Dir.Name(), TeamIndex: place.TeamIndex, Size: place.Size, LaunchIndex: n.id.NodeIndex, Host: n.id.Host, Address: address.Address,
		TempDir: temp, CPUs: n.id.CPUs, GPUs: n.id.GPUs, MaxMemory: framework.GrantedMemory(n.cfg.Environ), SharesHost: n.id.LocalSize > 1,
		NVLinkDomain: n.gpuMonitor.NVLinkDomain(), Environ: n.cfg.Environ,
	}
	env, err := n.privateDir.WriteCredentials(f, self, n.Dir.DeriveSecret(f.Name()))
	if err != nil {
		return self, health.NewFailure(health.ServiceDied, "cannot protect the services of %s from other users: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self.Environ = envlist.With(self.Environ, env)
	return self, nil
}
