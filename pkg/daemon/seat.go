package daemon

import (
	"context"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// launchSeat is the place of a node that the launch gives it; nil where there are spares.
func (n *node) launchSeat() *team.Seat {
	if n.cfg.Spares() {
		return nil
	}
	return &team.Seat{Rank: n.id.Rank, Size: n.id.Size}
}

// standbyPart is how many beats of a node are one of a node that stands by.
const standbyPart = 8

// standbyTempo is that of those who stand by, for the head: their death is worth
// knowing, and not worth much of the share.
func standbyTempo(tempo health.Tempo) health.Tempo {
	tempo.Beat, tempo.Silent = standbyPart*tempo.Beat, standbyPart*tempo.Silent
	return tempo
}

// workerOf returns the node's worker in a place; nil where there is none.
func (n *node) workerOf(endpoint framework.Endpoint, place *team.Seat) (*framework.Service, error) {
	self, err := n.describe(place)
	if err != nil {
		return nil, err
	}
	service, err := n.cfg.Framework.Worker(self, endpoint)
	if err != nil {
		return nil, health.Failed(health.ServiceDied, "%v", err)
	}
	if service != nil {
		service.Env = n.childEnv(service.Env, place)
	}
	return service, nil
}

// serveWorker starts the node's worker, proves it and tells.
func (n *node) serveWorker(ctx context.Context, endpoint framework.Endpoint, place *team.Seat) error {
	service, err := n.workerOf(endpoint, place)
	if err != nil {
		return err
	}
	if service != nil {
		n.post.Occupy(service.Name)
		err = n.children.Serve(ctx, service, health.ServiceDied, n.cfg.Times.Service, func(f *health.Failure) {
			if n.post.Seat.Load() == place { // otherwise it was ended to make way
				n.End(f)
			}
		})
	}
	if err != nil {
		return err
	}
	return n.Tell(signal.UpSince(place.Since))
}

// describe is this node as frameworks see it.
func (n *node) describe(place *team.Seat) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, health.Failed(health.Launch, "%v; give --interface", err)
	}
	if place == nil {
		place = new(team.Seat) // a head that does not know its team yet
	}
	temp, err := n.private.Dir()
	if n.Life.Err() != nil {
		return framework.Node{}, context.Cause(n.Life)
	}
	if err != nil {
		return framework.Node{}, health.Failed(health.CheckEnvironment, "cannot make a private directory on %s: %v", n.name(n.id.Rank), err)
	}
	self := framework.Node{
		Attempt: n.Dir.Name(), Rank: place.Rank, Size: place.Size, LaunchRank: n.id.Rank, Host: n.id.Host, Address: address,
		TempDir: temp, CPUs: n.id.CPUs, GPUs: n.id.GPUs, Memory: framework.GrantedMemory(n.cfg.Environ), Shared: n.id.LocalSize > 1,
		NVLinkDomain: n.cards.NVLinkDomain(), Environ: n.cfg.Environ,
	}
	env, err := n.private.Admit(n.cfg.Framework, self, n.Dir.Secret(n.cfg.Framework.Name()))
	if err != nil {
		return self, health.Failed(health.ServiceDied, "cannot keep strangers out of the services of %s: %v", n.name(n.id.Rank), err)
	}
	self.Environ = process.WithEnv(self.Environ, env)
	return self, nil
}
