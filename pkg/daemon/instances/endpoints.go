package instances

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// followEndpoints replaces the files of endpoints whenever the head publishes a new list of ready
// instances, until ctx ends.
func (n *Node) followEndpoints(ctx context.Context) {
	newest := -1
	_, _ = n.cfg.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		if number := l.NewestLive(); number > newest {
			var live record.LiveInstances
			if err := n.cfg.Dir.ReadRecord(ctx, signal.ControlDir, signal.LiveName(number), &live); err != nil {
				return false // a newer one follows, or the share does not respond
			}
			newest = number
			n.writeEndpoints(live.Ready)
		}
		return false
	})
}

// writeEndpoints writes the endpoints of the ready instances into the file of each role.
func (n *Node) writeEndpoints(ready []int) {
	plan := n.plans.plan.Load()
	for i := range plan.Roles {
		role := &plan.Roles[i]
		var lines strings.Builder
		for _, endpoint := range plan.Endpoints(role) {
			if slices.Contains(ready, role.Instances[endpoint.Instance].Number) {
				lines.WriteString(endpoint.HostPort() + "\n")
			}
		}
		file := filepath.Join(n.environment.endpointsDir, role.Name)
		// A reader sees the file before or after the change.
		err := os.WriteFile(file+".new", []byte(lines.String()), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			n.cfg.Log.Warn("cannot write the endpoints of a role", zap.String("role", role.Name), zap.Error(err))
		}
	}
}
