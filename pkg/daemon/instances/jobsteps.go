package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// StepTopology returns the topology of the GPUs that the daemon of a further step can see. Such a
// daemon runs no checks, which would query them.
func StepTopology(ctx context.Context, log *zap.Logger) gpu.Topology {
	topology, isKnown := gpu.QuickTopology("/")
	if isKnown {
		return topology
	}
	topology, err := gpu.Child{}.ProbeTopology(ctx)
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot query the GPUs: the processes of this step are not bound to them", zap.Error(err))
	}
	return topology
}

// AwaitSteps waits until each further step has a daemon on all nodes on which it starts roles. It
// fails if they have not joined within a time.
func (h *Head) AwaitSteps(ctx context.Context, within time.Duration) error {
	needed := h.stepMembers()
	if len(needed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	missing := needed // the share may show no listing in time
	_, err := h.cfg.NodeWatch.WaitListing(ctx, func(l signal.Listing) bool {
		missing = signal.WithoutNodes(needed, l.OfSteps().NodesIn(record.StateJoined))
		return len(missing) == 0
	})
	if !errors.Is(err, health.ErrDeadline) {
		return err
	}
	first := h.cfg.Steps[record.StepOfMember(missing[0], h.cfg.Size)-1]
	f := health.NewFailure(health.DeadlinePassed,
		"%s did not join within %s: check that the step was created, the output of its srun, and "+
			"that it runs bringupd --step=%s with the same --config and --log-dir",
		h.describeMembers(missing), textutil.FlagDuration(within), first)
	f.Phase = record.PhaseJoin
	return f
}

// stepMembers returns the sorted member indices of the daemons of further steps that start roles.
func (h *Head) stepMembers() (members []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, state := range h.instances {
		if state.Role.Program.Step == "" {
			continue
		}
		for _, node := range state.Evidence.Nodes {
			members = append(members, h.memberOf(node, state.Role))
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}

// describeMembers describes daemons of further steps by step and host.
func (h *Head) describeMembers(members []int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var parts []string
	for number, step := range h.cfg.Steps {
		var hosts []string
		for _, offer := range h.plan.Offers {
			if slices.Contains(members, record.MemberIndex(offer.NodeIndex, number+1, h.cfg.Size)) {
				hosts = append(hosts, offer.Host)
			}
		}
		if len(hosts) > 0 {
			parts = append(parts, fmt.Sprintf("the daemons of step %s on %s", step,
				launcher.CompactNodeList(slices.Compact(hosts))))
		}
	}
	return strings.Join(parts, " and ")
}
