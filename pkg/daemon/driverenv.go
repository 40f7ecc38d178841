package daemon

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/systemd"
	"github.com/bringupd/bringupd/pkg/trail"
)

// childEnv is what a child of ours is told on top of what we were. The place is
// nil where there are spares and the child is none that has a place in the team.
func (n *node) childEnv(base []string, place *seat) []string {
	more := map[string]string{
		roles.RunVariable:    n.dir.Name(),
		"BRINGUPD_RUN_DIR":   n.dir.Path(),
		"BRINGUPD_NODE_HOST": n.id.Host,
		// Those of another daemon that runs around ours are none of a child's.
		"BRINGUPD_NODE_RANK": "", "BRINGUPD_NODE_COUNT": "",
		systemd.Variable:        "", // it is this daemon that the manager waits for
		"BRINGUPD_LAUNCH_RANK":  strconv.Itoa(n.id.Rank),
		"BRINGUPD_LAUNCH_COUNT": strconv.Itoa(n.id.Size),
	}
	trace := n.trace()
	more[trail.ParentVariable], more[trail.StateVariable] = trace.String(), trace.State
	maps.Copy(more, n.cards.Env())
	if place != nil {
		more["BRINGUPD_NODE_RANK"], more["BRINGUPD_NODE_COUNT"] = strconv.Itoa(place.rank), strconv.Itoa(place.size)
	}
	return with(base, more)
}

// driverEnv is what the driver is told on top of that.
func driverEnv(base []string, hosts []string, endpoint framework.Endpoint) []string {
	more := map[string]string{
		"BRINGUPD_HOSTS":      strings.Join(hosts, ","),
		framework.HeadAddress: endpoint.Address,
	}
	maps.Copy(more, endpoint.Env)
	return with(base, more)
}

// with returns the environment with the variables set, each once.
func with(environ []string, set map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := set[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if value := set[name]; value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}
