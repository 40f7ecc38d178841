package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// node is the part that all daemons have in common, including the head.
type node struct {
	cfg  deps.Config
	id   launcher.Identity
	defs []roles.Definition // the roles that the run has
	reporters

	*lifecycle.Lifetime
	*lifecycle.Publisher
	lifecycle.Monitor
	children   *service.Children
	privateDir *service.TempDir
	teamPlace
	nodeMonitors
	localWorld
	localRoles

	commands    *exec.Node                   // from outside and of an mpirun; nil without a run directory
	serviceInfo atomic.Pointer[service.Team] // nil until the service is up, or a cluster of a role is planned
}

// reporters are the parts that report to users and to other systems.
type reporters struct {
	console   *console.Console
	telemetry *lifecycle.Telemetry
}

// nodeMonitors are the parts that detect failures of this node.
type nodeMonitors struct {
	checker    *lifecycle.Checker
	gpuMonitor *lifecycle.GPUMonitor
	nodeEvents *lifecycle.NodeEvents
	ncclPort   *ncclras.Reservation // nil if there is none
	steps      *stepwatch.Monitor
	exits      lifecycle.RecentExits
}

// finishWith ends this node's part in the run by an outcome that is final for the whole run.
func (n *node) finishWith(end *lifecycle.Outcome) {
	n.telemetry.ReportUp(false)
	n.CancelEndKnown(end)
	n.CancelRun(end)
}

// reportUp reports to telemetry that this node is up, unless the run has ended.
func (n *node) reportUp() {
	if n.RunCtx.Err() == nil {
		n.telemetry.ReportUp(true)
	}
}

// nodeName returns the name of a node for messages, such as "node 1 (t1)", or of another member,
// such as "step judge of node 1 (t1)".
func (n *node) nodeName(member int) string {
	return n.id.MemberLabel(member, n.id.HostOf(member))
}

// nodeNames returns a list of nodes, or of other members, for messages.
func (n *node) nodeNames(members []int) string {
	return n.id.FormatNodes(members, n.id.HostOf)
}

// ownNode returns the index of this node, also for the daemon of a further step.
func (n *node) ownNode() int { return record.NodeOfMember(n.id.NodeIndex, n.id.Size) }

func (n *node) recordHeader() record.Header {
	return record.Header{Version: record.FormatVersion, Nonce: n.Dir.Nonce(), NodeIndex: n.ownNode(),
		Host: n.id.Host, WrittenAt: time.Now()}
}

// readRecord reads a record of another node, within the silence timeout.
func (n *node) readRecord(ctx context.Context, sub, name string, rec record.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	return n.Dir.ReadRecord(ctx, sub, name, rec)
}

// publishFailure publishes err durably as a failure of this node, under the given state, and
// returns it.
func (n *node) publishFailure(err error, state record.State) *health.Failure {
	f := &health.Failure{Failure: health.AsFailure(err).Failure}
	f.Header = n.recordHeader()
	if !f.SeenAt.IsZero() {
		f.RecordDelay = time.Since(f.SeenAt)
	}
	if f.Phase == "" {
		f.Phase = n.Events.CurrentPhase()
	}
	n.Events.WriteEvent(eventlog.NodeFailed,
		eventlog.Fields{FailureFields: eventlog.FailureFields{Kind: f.Kind, What: f.Message}})
	rec := f.Failure
	tried := n.Report(signal.NodeName(n.id.NodeIndex, n.id.Size, state), &rec, true)
	if !health.IsRequestedEnd(f.Kind) { // a daemon that was asked to end does not wait for the file system
		<-tried
	}
	return f
}

// copyServiceLogs copies logs of services to the run directory, and more of them if this node has
// caused the end of the run, or is the head.
func (n *node) copyServiceLogs(end *lifecycle.Outcome) {
	if n.FileSystemSilence() <= lifecycle.UnresponsiveTimeout {
		n.children.CopyLogs(end.Cause != nil && (end.Cause.NodeIndex == n.id.NodeIndex || n.id.NodeIndex == 0))
	}
}

// stopChildren ends all children concurrently, and returns the names of those that could not be
// ended.
func (n *node) stopChildren(end *lifecycle.Outcome) (left []string) {
	if n.cfg.World.IsRequested() {
		n.stopRanks(end)
	}
	n.stopRoles(end)
	left = n.children.StopSelected(n.cfg.Times.ChildGracePeriod(end.HasFailed()), allChildren)
	if n.commands != nil && n.FileSystemSilence() < lifecycle.UnresponsiveTimeout {
		n.commands.AwaitPublished(lifecycle.UnresponsiveTimeout)
	}
	n.Reports.AwaitTried(n.PeerTimeout)
	return left
}

// stopRoles ends the instances of this node, if there are any: at an orderly end in the order of their
// roles, otherwise at once.
func (n *node) stopRoles(end *lifecycle.Outcome) {
	if n.roles != nil {
		if end.Orderly {
			within := roles.EndGrace(n.defs) + n.cfg.Times.Peer
			ctx, cancel := context.WithTimeoutCause(n.HeadWaitCtx, within, errDeadline)
			n.roles.StopInOrder(ctx)
			cancel()
		}
		grace := n.roles.LongestGrace()
		if health.IsIsolation(end.Cause) {
			grace = min(grace, n.cfg.Times.DriverGracePeriod(true))
		}
		ctx, cancel := context.WithTimeoutCause(n.GraceCtx, grace+n.cfg.Times.StopGrace, errDeadline)
		n.roles.StopAll(ctx)
		cancel()
	}
}

func allChildren(string) bool { return true }

// startRunTasks sets the run directory and starts the tasks that need it. log is the name of the
// daemon's own log, and pace the polling pace of Control.
func (n *node) startRunTasks(dir *signal.Dir, log string, pace signal.Pace) {
	n.Dir = dir
	pace.MaxPause = min(pace.MaxPause, n.Timing.MaxPollInterval)
	pace.MinPause = min(pace.MinPause, pace.MaxPause)
	n.ControlWatch = dir.NewWatch(signal.ControlDir, pace)
	n.ControlWatch.AllNotified = func() bool { return n.id.NodeIndex > 0 && n.Links.AllOnTime(time.Now()) }
	n.Events.Open(dir, n.id, log)
	n.children.OpenLogs(dir, n.ownNode(), n.id.Size, n.nodeName(n.ownNode()))
	n.initCommands()
	n.Background(n.ControlWatch.Run)
	n.Background(n.WatchShare)
}

// followSteps returns a task that follows the progress of the job. nodes is the head's watch of
// Nodes, and nil on other nodes.
func (n *node) followSteps(nodes *signal.Watch) func(ctx context.Context) {
	return func(ctx context.Context) {
		n.steps.Run(ctx, stepwatch.Store{Dir: n.Dir, Nodes: nodes,
			WriteTimeout: n.Timing.SilenceTimeout, OnWriteError: n.LogWriteError, OnStep: n.Events.LogStep})
	}
}

// environ returns the environment of a child of this node: base with what the node knows, and then
// more. slot is nil if the child has none in the team, and team if it needs no other node. See
// [service.Environment].
func (n *node) environ(kind launcher.ChildKind, base []string, slot *service.Slot, team *service.Team,
	more ...map[string]string) []string {
	address, _ := n.cfg.Address() // if there is none, the run ends where a peer or a program needs it
	env := service.Environment{
		Kind: kind, Run: n.Dir.Name(), Dir: n.Dir.Path(), ID: n.id, Address: address, Slot: slot, Team: team,
		GPUVariables: n.gpuMonitor.TopologyEnv(), NCCLAddress: n.ncclPort.Address(),
		Credentials: n.privateDir.CredentialEnv(),
	}
	if here := n.worldNode.Load(); here != nil {
		env.Socket = here.SocketPath()
	}
	return env.Of(base, more...)
}

// selectedAddress returns this node's address. Without one it fails only if the user has selected
// the interface: the run may need none.
func (n *node) selectedAddress() (launcher.NodeAddress, error) {
	address, err := n.cfg.Address()
	if err != nil && address.Selected {
		return address, health.NewFailure(health.Launch, "%s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	return address, nil
}
