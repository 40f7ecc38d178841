package daemon

import (
	"context"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// launchSeat returns the place of this node in the team if all nodes of the launch are members,
// which is its node index. It returns nil if there are spares, because the head then assigns the
// places.
func (n *node) launchSeat() *team.Seat {
	if n.cfg.Spares() {
		return nil
	}
	return &team.Seat{Rank: n.id.Rank, Size: n.id.Size}
}

// standbyPart is the factor by which the heartbeat interval of a spare is longer than that of other
// nodes once the job runs.
const standbyPart = 8

// standbyTempo returns the heartbeat timing of spares, for the head. The loss of a spare must be
// detected, but may take longer, to reduce the load on the file system.
func standbyTempo(tempo health.Tempo) health.Tempo {
	tempo.Beat, tempo.Silent = standbyPart*tempo.Beat, standbyPart*tempo.Silent
	return tempo
}

// workerOf returns the framework's worker service for this node in the given place, or nil if the
// framework has none.
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

// serveWorker starts the node's worker service, if there is one, waits until it is ready, and
// publishes that this node is up in the given place.
func (n *node) serveWorker(ctx context.Context, endpoint framework.Endpoint, place *team.Seat) error {
	service, err := n.workerOf(endpoint, place)
	if err != nil {
		return err
	}
	if service != nil {
		n.post.Occupy(service.Name)
		err = n.children.Serve(ctx, service, health.ServiceDied, n.cfg.Times.Service, func(f *health.Failure) {
			if n.post.Seat.Load() == place { // otherwise the daemon has ended it for another place
				n.End(f)
			}
		})
	}
	if err != nil {
		return err
	}
	return n.Tell(signal.UpSince(place.Since))
}

// describe returns the description of this node for frameworks.
func (n *node) describe(place *team.Seat) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, health.Failed(health.Launch, "%v; give --interface", err)
	}
	if place == nil {
		place = new(team.Seat) // the head, before a team has been chosen
	}
	// Make the private directory.
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
	// Create the credentials that keep other users out of the services.
	env, err := n.private.Admit(n.cfg.Framework, self, n.Dir.Secret(n.cfg.Framework.Name()))
	if err != nil {
		return self, health.Failed(health.ServiceDied, "cannot keep strangers out of the services of %s: %v", n.name(n.id.Rank), err)
	}
	self.Environ = process.WithEnv(self.Environ, env)
	return self, nil
}
