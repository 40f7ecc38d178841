package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// teamPatienceDivisor is the divisor of the join timeout that gives the head's patience: if no
// further node has become ready for that long, the head accepts the minimum number of nodes that
// the driver needs instead of waiting for the maximum.
const teamPatienceDivisor = 8

// errTeamChanged is the cause of contexts that end because the team has changed.
var errTeamChanged = errors.New("the team was changed by another head")

// updateTeam publishes a new team if the listing l of Nodes requires one. It ends the run if that
// fails.
func (a *membershipManager) updateTeam(l signal.Listing) {
	if !a.membership.HasSpares() || a.RunCtx.Err() != nil {
		return
	}
	a.dropLateNodes(l)
	ready, patience := l.NodesIn(a.requiredState()), a.cfg.Times.Join/teamPatienceDivisor
	record := a.membership.NextRecord(ready, a.Links.Unlinked(ready, time.Now()), l.PolledAt, patience)
	if record == nil {
		return
	}
	if err := a.Publish(signal.ControlDir, signal.TeamName(record.Generation), record, false); err != nil {
		a.CancelRun(health.AsFailure(err))
		return
	}
	a.membership.ApplyRecord(record)
	a.Log.Info("selected the team", zap.Int("generation", record.Generation), zap.String("team", a.nodeNames(a.membership.MemberNodes())))
	a.nodeWatch.NotifyChange() // for tasks that wait for the team
}

// requiredState returns the state that a node must have reached to become a member of the team.
func (a *membershipManager) requiredState() record.State {
	if a.cfg.HasNodeChecks() {
		return record.StateChecked
	}
	return record.StateJoined
}

// dropLateNodes drops the nodes that have not joined in time, and the nodes that have joined but
// neither passed their checks nor failed. Such a node has its own deadline and should report its
// failure; the head's longer timeout is for a node that does not.
func (a *membershipManager) dropLateNodes(l signal.Listing) {
	if waited := time.Since(a.started); waited > a.cfg.Times.Join {
		if missing := a.membership.NotKnownGone(l.NodesNotIn(record.StateJoined, a.id.Size)); len(missing) > 0 {
			a.recordLateNodes(a.joinTimeoutFailure(missing), l.PolledAt)
		}
	}
	within := a.cfg.Times.Join + a.cfg.CheckTimeout() + a.Timing.SilenceTimeout
	if !a.cfg.HasNodeChecks() || time.Since(a.started) < within {
		return
	}
	if missing := a.membership.NotKnownGone(l.NodesNotIn(record.StateChecked, a.id.Size)); len(missing) > 0 {
		f := health.NewFailure(health.DeadlinePassed, "the head waited %s for %s to be checked, which neither happened nor failed", within, a.nodeNames(missing))
		f.LostNodes = missing
		a.recordLateNodes(f, l.PolledAt)
	}
}

// recordLateNodes records f, the failure of nodes that are late according to a listing of the given
// time.
func (a *membershipManager) recordLateNodes(f *health.Failure, at time.Time) {
	f.Header, f.Phase = a.recordHeader(), record.PhaseJoin
	a.tracker.handleFailure(f.Failure, at)
}

// whileTeamUnchanged returns a context that also ends, with the cause errTeamChanged, when changed
// is closed. The caller must call the returned function when it needs the context no longer.
func (a *membershipManager) whileTeamUnchanged(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.Background(func(context.Context) {
		select {
		case <-changed:
			cancel(errTeamChanged)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// awaitTeamUp waits until there is a team and calls raise, which brings up the services of all its
// nodes. If the team changes meanwhile, it starts again. Afterwards the team is fixed.
func (a *membershipManager) awaitTeamUp(ctx context.Context, raise func(ctx context.Context) error) error {
	for {
		_, changed, err := a.awaitTeam(ctx)
		if err != nil {
			return err
		}
		own, stop := a.whileTeamUnchanged(ctx, changed)
		err = raise(own)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errTeamChanged):
		case err != nil:
			return err
		case a.membership.FreezeMembers(changed, nil):
			return nil
		default: // a member is lost: wait for the team that replaces it
			if !ctxutil.AwaitDone(ctx, changed) {
				return context.Cause(ctx)
			}
		}
	}
}

// awaitTeam waits until a team has been chosen. It returns the present members, and a channel that
// is closed when they change.
func (a *membershipManager) awaitTeam(ctx context.Context) ([]record.Member, <-chan struct{}, error) {
	for {
		members, changed := a.membership.Members()
		if members != nil {
			return members, changed, nil
		}
		if !ctxutil.AwaitDone(ctx, changed) {
			return nil, nil, context.Cause(ctx)
		}
	}
}

// teamHosts returns the hosts of the team, in the order of the places.
func (a *membershipManager) teamHosts() []string {
	hosts := a.nodeHosts()
	if !a.membership.HasSpares() {
		return hosts
	}
	var team []string
	for _, nodeIndex := range a.membership.MemberNodes() {
		team = append(team, hosts[nodeIndex])
	}
	return team
}

// addTeamToResult adds the driver's nodes and the dropped nodes to the result, if there are spares.
func (a *membershipManager) addTeamToResult(result *record.Result) {
	if !a.membership.HasSpares() {
		return
	}
	// a spare may have failed a moment ago, and its record is not known yet
	a.tracker.awaitFreshListing()
	result.Team, result.Dropped = a.membership.MemberNodes(), a.droppedNodes()
}

// droppedNodes returns the nodes without which the job has run: those that failed, were lost, or
// have not joined.
func (a *membershipManager) droppedNodes() []record.DroppedNode {
	dropped := a.membership.DroppedNodes()
	if !a.membership.HasSpares() {
		return dropped
	}
	for _, nodeIndex := range a.nodeWatch.LastListing().NodesNotIn(record.StateJoined, a.id.Size) {
		if !slices.ContainsFunc(dropped, func(d record.DroppedNode) bool { return d.NodeIndex == nodeIndex }) {
			dropped = append(dropped, record.DroppedNode{NodeIndex: nodeIndex, Host: a.id.HostOf(nodeIndex), Reason: "it did not join"})
		}
	}
	return dropped
}

// logDroppedNodes logs, at the end of the run, the nodes without which the job has run, and why.
func (a *membershipManager) logDroppedNodes() {
	for _, dropped := range a.droppedNodes() {
		a.Log.Warn("the job ran without " + a.nodeName(dropped.NodeIndex) + ": " + dropped.Reason)
	}
}

// nodeHosts returns the host of every node, by node index. It is the host that the launcher has
// provided, or the one in the record of the node. If neither is known, it is the node's index.
func (a *membershipManager) nodeHosts() []string {
	joined := a.nodeWatch.LastListing().NodesIn(record.StateJoined)
	hosts := make([]string, a.id.Size)
	for nodeIndex := range hosts {
		hosts[nodeIndex] = a.id.HostOf(nodeIndex)
		if _, there := slices.BinarySearch(joined, nodeIndex); hosts[nodeIndex] == "" && there {
			hosts[nodeIndex] = a.hostOfJoined(nodeIndex)
		}
		if hosts[nodeIndex] == "" {
			hosts[nodeIndex] = strconv.Itoa(nodeIndex)
		}
	}
	return hosts
}

// hostOfJoined reads the host of a node that has joined. It returns an empty string if it cannot be
// read.
func (a *membershipManager) hostOfJoined(nodeIndex int) string {
	joined, err := a.roundTrip.ReadJoined(a.WorkCtx, nodeIndex)
	if err != nil {
		a.Log.Warn("cannot read the host of a node", zap.Int("of", nodeIndex), zap.Error(err))
	}
	return joined.Host
}

// shouldGiveUp reports whether the head should stop waiting for the missing nodes. That is the case
// if all of them were lost in earlier attempts, the time to come back is over, and the launcher is
// not known to restart daemons.
func (a *membershipManager) shouldGiveUp(missing []int) bool {
	return !a.membership.HasSpares() && len(missing) > 0 && a.cfg.Previous.HasLost(missing) && time.Since(a.started) > a.cfg.Times.DaemonReturnTimeout() &&
		!a.id.Launcher.Facts().MayRelaunch
}

// nodesNotBackFailure returns the failure that the missing nodes, which earlier attempts have lost,
// have not come back.
func (a *membershipManager) nodesNotBackFailure(missing []int) *health.Failure {
	f := health.NewFailure(health.NotReturned, "cannot continue without %s: lost in attempt %d, and not restarted within %s; give --nnodes=%d:%d to continue with fewer nodes",
		a.nodeNames(missing), a.id.Attempt, time.Since(a.started).Round(time.Second/10), max(1, a.id.Size-len(missing)), a.id.Size)
	f.LostNodes = missing
	return f
}

// joinTimeoutFailure returns the failure that nodes have not joined in time, with a hint at the
// probable reason.
func (a *membershipManager) joinTimeoutFailure(missing []int) *health.Failure {
	if a.cfg.Previous.HasLost(missing) && !a.membership.HasSpares() {
		return a.nodesNotBackFailure(missing)
	}
	mend := "check that their tasks have started, and that they see the same file system"
	if a.Dir.FileSystem().Local && a.id.Launcher != launcher.LauncherLocal {
		mend = fmt.Sprintf("it is on %s, which exists on one machine only: give a --log-dir that all nodes share", a.Dir.FileSystem().Name)
	}
	f := health.NewFailure(health.ShareUnusable, "cannot reach %d of %d nodes: %s did not join through %s within %s: %s",
		len(missing), a.id.Size, a.nodeNames(missing), a.cfg.LogDir, time.Since(a.started).Round(time.Second/10), mend)
	f.LostNodes = missing
	return f
}

// membershipManager chooses the team from the nodes that have joined. It belongs to the head.
type membershipManager struct {
	*node
	nodeWatch  *signal.Watch // watches Nodes
	membership *membership.Membership
	tracker    *failureTracker
	roundTrip  *lifecycle.RoundTripProbe
	started    time.Time
}
