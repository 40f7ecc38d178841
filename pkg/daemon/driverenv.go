package daemon

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// childEnv is what every child of ours is told on top of what we were.
func childEnv(base []string, id roles.Identity, dir *signal.Dir) []string {
	return with(base, map[string]string{
		roles.RunVariable:     dir.Name(),
		"BRINGUPD_RUN_DIR":    dir.Path(),
		"BRINGUPD_NODE_RANK":  strconv.Itoa(id.Rank),
		"BRINGUPD_NODE_COUNT": strconv.Itoa(id.Size),
		"BRINGUPD_NODE_HOST":  id.Host,
	})
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
