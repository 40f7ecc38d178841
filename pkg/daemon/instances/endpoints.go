package instances

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// endpointFiles has the state of the files of endpoints of a node.
type endpointFiles struct {
	writing ctxutil.Turn // held while the files are written
	next    int          // number of the first list that is newer than the files; guarded by writing
}

// followEndpoints replaces the files of endpoints at each new list of ready instances. Before the
// gate a node reads only lists that it may need: when one of its instances starts, and while one
// is not ready.
func (n *Node) followEndpoints(ctx context.Context) {
	_, _ = n.cfg.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		if n.waiting.Load() > 0 || l.HasName(signal.NameGateOpen) {
			n.loadEndpoints(ctx, l)
		}
		return false
	})
}

// loadEndpoints reads the newest list of ready instances in a listing of the control directory,
// unless it is known, and replaces the files of endpoints.
func (n *Node) loadEndpoints(ctx context.Context, l signal.Listing) {
	if !n.endpoints.writing.Take(ctx) {
		return
	}
	defer n.endpoints.writing.Leave()
	number := l.NewestLive()
	if number < n.endpoints.next {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	var live record.LiveInstances
	if err := n.cfg.Dir.ReadRecord(ctx, signal.ControlDir, signal.LiveName(number), &live); err != nil {
		return // a newer one follows, or the share does not respond
	}
	if err := n.loadPlan(ctx, l); err != nil {
		return // the next listing shows both again
	}
	n.endpoints.next = number + 1
	n.writeEndpoints(live.Ready)
}

// writeEndpoints writes the endpoints of the ready instances into the file of each role.
func (n *Node) writeEndpoints(ready []int) {
	if n.environment.endpointsDir == "" {
		return
	}
	plan := n.plans.plan.Load()
	isReady := make(map[int]bool, len(ready))
	for _, number := range ready {
		isReady[number] = true
	}
	for i := range plan.Roles {
		role := &plan.Roles[i]
		var lines strings.Builder
		for _, endpoint := range plan.Endpoints(role) {
			if isReady[role.Instances[endpoint.Instance].Number] {
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
