package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// teamWaitDivisor is the divisor of the join timeout that gives how long the head waits: if no
// further node has become ready for that long, the head accepts the minimum number of nodes that
// the driver needs instead of waiting for the maximum.
const teamWaitDivisor = 8

// errTeamChanged is the cause of contexts that end because the team has changed.
var errTeamChanged = errors.New("the team was changed by another head")

// updateTeam chooses a new team if the listing l of Nodes requires one.
func (h *head) updateTeam(l signal.Listing) {
	if !h.membership.HasSpares() || h.node.RunCtx.Err() != nil {
		return
	}
	h.dropLateNodes(l)
	ready, within := l.NodesIn(h.requiredState()), h.node.cfg.Times.Join/teamWaitDivisor
	team := h.membership.NextTeam(ready, h.node.Links.Unlinked(ready, time.Now()), l.PolledAt, within)
	if team == nil {
		return
	}
	h.membership.ApplyTeam(team)
	h.node.Log.Info("selected the team", zap.Int("generation", team.Generation),
		zap.String("team", h.node.nodeNames(h.membership.MemberNodes())))
	h.nodeWatch.NotifyChange() // for tasks that wait for the team
}

// requiredState returns the state that a node must have reached to become a member of the team.
func (h *head) requiredState() record.State {
	if h.node.cfg.HasNodeChecks() {
		return record.StateChecked
	}
	return record.StateJoined
}

// dropLateNodes drops nodes that have not joined in time, or neither passed their checks nor
// failed. Nodes have shorter deadlines of their own.
func (h *head) dropLateNodes(l signal.Listing) {
	if waited := time.Since(h.started); waited > h.node.cfg.Times.Join {
		if missing := h.membership.NotKnownGone(l.NodesNotIn(record.StateJoined, h.node.id.Size)); len(missing) > 0 {
			h.recordLateNodes(h.joinTimeoutFailure(missing), l.PolledAt)
		}
	}
	within := h.checksTimeout()
	if !h.node.cfg.HasNodeChecks() || time.Since(h.started) < within {
		return
	}
	if missing := h.membership.NotKnownGone(l.NodesNotIn(record.StateChecked, h.node.id.Size)); len(missing) > 0 {
		f := h.lateNodesFailure(within, missing, "to be "+string(record.StateChecked))
		f.LostNodes = missing
		h.recordLateNodes(f, l.PolledAt)
	}
}

// recordLateNodes records f, the failure of nodes that are late according to a listing of the given
// time.
func (h *head) recordLateNodes(f *health.Failure, at time.Time) {
	f.Header, f.Phase = h.node.recordHeader(), record.PhaseJoin
	h.reportFailure(f.Failure, at)
}

// whileTeamUnchanged returns a context that also ends, with errTeamChanged, when changed is
// closed.
func (h *head) whileTeamUnchanged(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.node.Background(func(context.Context) {
		select {
		case <-changed:
			cancel(errTeamChanged)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// awaitTeamUp calls raise, which brings up the services of the team, again after each change of
// the team. Afterwards the team is fixed.
func (h *head) awaitTeamUp(ctx context.Context, raise func(ctx context.Context) error) error {
	for {
		changed, err := h.awaitTeam(ctx)
		if err != nil {
			return err
		}
		own, stop := h.whileTeamUnchanged(ctx, changed)
		err = raise(own)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errTeamChanged):
		case err != nil:
			return err
		case h.membership.FreezeMembers(changed, nil):
			return nil
		default: // a member is lost: wait for the team that replaces it
			if !ctxutil.AwaitDone(ctx, changed) {
				return context.Cause(ctx)
			}
		}
	}
}

// awaitTeam waits until a team has been chosen. It returns a channel that is closed when it changes.
func (h *head) awaitTeam(ctx context.Context) (<-chan struct{}, error) {
	for {
		members, changed := h.membership.Members()
		if members != nil {
			return changed, nil
		}
		if !ctxutil.AwaitDone(ctx, changed) {
			return nil, context.Cause(ctx)
		}
	}
}

// teamHosts returns the hosts of the team, in the order of the places.
func (h *head) teamHosts() []string {
	hosts := h.nodeHosts()
	var team []string
	for _, nodeIndex := range h.membership.MemberNodes() {
		team = append(team, hosts[nodeIndex])
	}
	return team
}

// addTeamToResult adds the driver's nodes and the dropped nodes to the result, if there are spares.
func (h *head) addTeamToResult(result *record.Result) {
	if !h.membership.HasSpares() {
		return
	}
	// a spare may have failed a moment ago, and its record is not known yet
	h.awaitFreshListing()
	result.Team, result.Dropped = h.membership.MemberNodes(), h.droppedNodes()
}

// droppedNodes returns the nodes without which the job has run: those that failed, were lost, or
// have not joined.
func (h *head) droppedNodes() []record.DroppedNode {
	dropped := h.membership.DroppedNodes()
	if !h.membership.HasSpares() {
		return dropped
	}
	for _, nodeIndex := range h.nodeWatch.LastListing().NodesNotIn(record.StateJoined, h.node.id.Size) {
		if !slices.ContainsFunc(dropped, func(d record.DroppedNode) bool { return d.NodeIndex == nodeIndex }) {
			dropped = append(dropped, record.DroppedNode{NodeIndex: nodeIndex,
				Host: h.node.id.HostOf(nodeIndex), Reason: "it did not join"})
		}
	}
	return dropped
}

// logDroppedNodes logs, at the end of the run, the nodes without which the job has run, and why.
func (h *head) logDroppedNodes() {
	for _, dropped := range h.droppedNodes() {
		h.node.Log.Warn("the job ran without " + h.node.nodeName(dropped.NodeIndex) + ": " + dropped.Reason)
	}
}

// nodeHosts returns the host of every node: from the launcher, or from its record; otherwise the
// node's index.
func (h *head) nodeHosts() []string {
	joined := h.nodeWatch.LastListing().NodesIn(record.StateJoined)
	hosts := make([]string, h.node.id.Size)
	for nodeIndex := range hosts {
		hosts[nodeIndex] = h.node.id.HostOf(nodeIndex)
		if _, there := slices.BinarySearch(joined, nodeIndex); hosts[nodeIndex] == "" && there {
			hosts[nodeIndex] = h.hostOfJoined(nodeIndex)
		}
		if hosts[nodeIndex] == "" {
			hosts[nodeIndex] = strconv.Itoa(nodeIndex)
		}
	}
	return hosts
}

// hostOfJoined reads the host of a node that has joined. It returns an empty string if it cannot be
// read.
func (h *head) hostOfJoined(nodeIndex int) string {
	joined, err := h.readJoined(nodeIndex)
	if err != nil {
		h.node.Log.Warn("cannot read the host of a node", zap.Int("of", nodeIndex), zap.Error(err))
	}
	return joined.Host
}

// readJoined reads the record with which a node has joined. It is only for information.
func (h *head) readJoined(nodeIndex int) (joined record.Joined, err error) {
	ctx, cancel := context.WithTimeoutCause(h.node.WorkCtx, h.node.Timing.MaxPollInterval, errDeadline)
	defer cancel()
	err = h.node.Dir.ReadRecord(ctx, signal.NodesDir, h.node.Dir.NodeName(nodeIndex, record.StateJoined), &joined)
	return joined, err
}

// shouldGiveUp reports whether all missing nodes were lost in earlier attempts, had time to come
// back, and nothing is known to restart them.
func (h *head) shouldGiveUp(missing []int) bool {
	return !h.membership.HasSpares() && len(missing) > 0 && h.node.cfg.Previous.HasLost(missing) &&
		time.Since(h.started) > h.node.cfg.Times.DaemonReturnTimeout() &&
		!h.node.id.Launcher.Facts().MayRelaunch
}

// nodesNotBackFailure returns the failure that the missing nodes, which earlier attempts have lost,
// have not come back.
func (h *head) nodesNotBackFailure(missing []int) *health.Failure {
	f := health.NewFailure(health.NotReturned,
		"cannot continue without %s: lost in attempt %d, and not restarted within %s; give "+
			"--nnodes=%d:%d to continue with fewer nodes",
		h.node.nodeNames(missing), h.node.id.Attempt, time.Since(h.started).Round(time.Second/10),
		max(1, h.node.id.Size-len(missing)), h.node.id.Size)
	f.LostNodes = missing
	return f
}

// joinTimeoutFailure returns the failure that nodes have not joined in time, with a hint at the
// probable reason.
func (h *head) joinTimeoutFailure(missing []int) *health.Failure {
	if h.node.cfg.Previous.HasLost(missing) && !h.membership.HasSpares() {
		return h.nodesNotBackFailure(missing)
	}
	remedy := "check that their tasks have started, and that they see the same file system"
	if h.node.Dir.FileSystem().Local && h.node.id.Launcher != launcher.LauncherLocal {
		remedy = fmt.Sprintf("it is on %s, which exists on one machine only: give a --log-dir that "+
			"all nodes share", h.node.Dir.FileSystem().Name)
	}
	f := health.NewFailure(health.ShareUnusable,
		"cannot reach %d of %d nodes: %s did not join through %s within %s: %s",
		len(missing), h.node.id.Size, h.node.nodeNames(missing), h.node.cfg.LogDir,
		time.Since(h.started).Round(time.Second/10), remedy)
	f.LostNodes = missing
	return f
}

func newChecker(n *node) *lifecycle.Checker {
	checker := &lifecycle.Checker{Publisher: n.Publisher, ID: &n.id, Checks: n.cfg.Checks,
		WatchGPU: n.gpuMonitor.StartWatch}
	if setup := n.cfg.SetupRole(); setup != nil {
		checker.Setup = func(ctx context.Context) error {
			env := n.environ(launcher.ChildCommand, n.cfg.Environ, n.launchSlot(), nil, setup.Program.Env)
			return n.children.RunSetup(ctx, setup.Program.Command, env, setup.Timeout)
		}
	}
	return checker
}

// compareNodes compares the nodes of the team when all have passed their checks. Its error is a
// difference because of which the driver must not start, unless spares can replace the nodes that
// differ.
func (h *head) compareNodes(ctx context.Context, l signal.Listing) error {
	if h.node.cfg.Checks == nil {
		return nil
	}
	// Consider the members of the team only.
	kinds := l.NodesByKind()
	for kind, nodes := range kinds {
		if kinds[kind] = h.membership.FilterMembers(nodes); len(kinds[kind]) == 0 {
			delete(kinds, kind)
		}
	}
	c := preflight.Comparison{
		OwnReport: h.node.checker.Report, ApplyPolicy: h.node.cfg.Checks.ApplyPolicy, FormatHosts: h.node.nodeNames,
		ReadReport: h.readCheckReport, Trail: h.node.Events, Log: h.node.Log,
	}
	differ, gpus, err := c.CompareNodes(ctx, kinds)
	h.progress.hasGPUs.Store(gpus)
	switch {
	case err != nil:
		return err
	case differ == nil:
		return nil
	case !h.membership.HasSpares() || len(differ.LostNodes) == 0:
		return differ
	}
	// Spares may take the places of the nodes that differ.
	differ.Header, differ.Phase = h.node.recordHeader(), record.PhaseCheck
	h.reportFailure(differ.Failure, time.Now())
	return nil
}

// readCheckReport reads the report of another node's checks. kind is part of the record's name.
func (h *head) readCheckReport(ctx context.Context, nodeIndex int, kind int64) (report check.Report, err error) {
	var rec record.Checked
	err = h.node.readRecord(ctx, signal.NodesDir, signal.CheckedName(nodeIndex, h.node.id.Size, kind), &rec)
	if err == nil && len(rec.Report) > 0 {
		err = json.Unmarshal(rec.Report, &report)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return report, nil
	case cause != nil && !errors.Is(cause, errDeadline):
		return report, cause
	default:
		return report, health.NewFailure(health.ShareUnusable,
			"cannot read the check results of %s: %v", h.node.nodeName(nodeIndex), err)
	}
}
