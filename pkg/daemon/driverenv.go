package daemon

import (
	"maps"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/team"
)

// childEnv returns the environment base with the variables for a child of this node. place is nil
// if there are spares and the child has no place in the team.
func (n *node) childEnv(base []string, place *team.Seat) []string {
	env := service.Environment{
		Run: n.Dir.Name(), Dir: n.Dir.Path(), ID: n.id, Place: place, Trace: n.trace(), GPUs: n.cards.Env(),
	}
	if here := n.here.Load(); here != nil {
		env.Socket = here.Socket()
	}
	return env.Of(base)
}

// driverEnv returns the environment base with the additional variables for the driver: the hosts of
// its nodes, the address of the head's service, and the credentials of the services.
func (n *node) driverEnv(base []string, hosts []string, endpoint framework.Endpoint) []string {
	more := map[string]string{
		"BRINGUPD_HOSTS":      strings.Join(hosts, ","),
		framework.HeadAddress: endpoint.Address,
	}
	maps.Copy(more, endpoint.Env)
	maps.Copy(more, n.private.Env())
	return process.WithEnv(base, more)
}

// surroundings has the data about the run in the environment of commands from outside.
type surroundings struct {
	endpoint framework.Endpoint
	hosts    []string // hosts of the team; set only on the head
}
