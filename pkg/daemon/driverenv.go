package daemon

import (
	"maps"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/systemd"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/trail"
)

// childEnv is what a child of ours is told on top of what we were. The place is
// nil where there are spares and the child is none that has a place in the team.
func (n *node) childEnv(base []string, place *team.Seat) []string {
	more := map[string]string{
		roles.RunVariable:    n.Dir.Name(),
		"BRINGUPD_RUN_DIR":   n.Dir.Path(),
		"BRINGUPD_ATTEMPT":   strconv.Itoa(n.id.Attempt),
		"BRINGUPD_NODE_HOST": n.id.Host,
		// Those of another daemon that runs around ours are none of a child's.
		"BRINGUPD_NODE_RANK": "", "BRINGUPD_NODE_COUNT": "",
		systemd.Variable:        "", // it is this daemon that the manager waits for
		"BRINGUPD_LAUNCH_RANK":  strconv.Itoa(n.id.Rank),
		"BRINGUPD_LAUNCH_COUNT": strconv.Itoa(n.id.Size),
	}
	if here := n.here.Load(); here != nil {
		more[client.SocketVariable] = here.Socket()
	}
	trace := n.trace()
	more[trail.ParentVariable], more[trail.StateVariable] = trace.String(), trace.State
	maps.Copy(more, n.cards.Env())
	if place != nil {
		more["BRINGUPD_NODE_RANK"], more["BRINGUPD_NODE_COUNT"] = strconv.Itoa(place.Rank), strconv.Itoa(place.Size)
	}
	return process.WithEnv(base, more)
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
