package daemon

import (
	"maps"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/team"
)

// childEnv returns base with what a child of this node is told. The place is nil where there are
// spares and the child is none that has a place in the team.
func (n *node) childEnv(base []string, place *team.Seat) []string {
	env := service.Environment{
		Run: n.Dir.Name(), Dir: n.Dir.Path(), ID: n.id, Place: place, Trace: n.trace(), GPUs: n.cards.Env(),
	}
	if here := n.here.Load(); here != nil {
		env.Socket = here.Socket()
	}
	return env.Of(base)
}

// driverEnv is what the driver is told on top of that.
func (n *node) driverEnv(base []string, hosts []string, endpoint framework.Endpoint) []string {
	more := map[string]string{
		"BRINGUPD_HOSTS":      strings.Join(hosts, ","),
		framework.HeadAddress: endpoint.Address,
	}
	maps.Copy(more, endpoint.Env)
	maps.Copy(more, n.private.Env())
	return process.WithEnv(base, more)
}

// surroundings are what commands from outside are told of the run, once it is
// known.
type surroundings struct {
	endpoint framework.Endpoint
	hosts    []string // of the team; on the head alone
}
