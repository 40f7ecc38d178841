package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// initCommands creates the parts of this node that run commands from outside (bringupd exec), and
// those of an mpirun (bringupd rsh).
func (n *node) initCommands() {
	daemon := exec.Daemon{
		NodeIndex: n.id.NodeIndex, Dir: n.Dir, Control: n.ControlWatch, Log: n.Log, Trail: n.Events,
		LogWriteError: n.LogWriteError, FileTimeout: n.cfg.Times.Peer, RunCtx: n.RunCtx,
		Go: n.Background, OwnProgramEnv: n.children.DescribeChildren,
		Start: n.commandStarter(n.children.StartWithLog), StartRemote: n.commandStarter(n.children.Start),
		Local: exec.Local{
			PrivateDir: n.privateDir.EnsureDir, SocketDir: n.privateDir.EnsureSocketDir, Environ: n.cfg.Environ,
		},
	}
	n.commands = exec.NewNode(daemon)
}

// commandStarter returns a function that starts a command, unless the run is ending, and returns
// the process with a function that ends it.
func (n *node) commandStarter(start func(context.Context, process.Spec) (process.Handle, error)) exec.StartFunc {
	return func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
		if n.RunCtx.Err() != nil {
			return nil, nil, errors.New("the run is ending")
		}
		spec.Env = append(requestEnv(n), spec.Env...)
		starting, started := n.ExtendForStart(ctx)
		defer started()
		child, err := start(starting, spec)
		if err != nil {
			return nil, nil, err
		}
		return child, func() {
			child.Stop(n.GraceCtx, n.cfg.Times.StopGrace, syscall.SIGTERM)
			n.children.RemoveChild(child)
		}, nil
	}
}

// requestEnv returns the environment of a command from outside on this node: that of the node's
// other children, and the address of the head's service once it is up.
func requestEnv(n *node) []string {
	return n.environ(launcher.ChildCommand, n.cfg.Environ, n.slot.Load(), n.serviceInfo.Load())
}

// commandNodes selects and notifies nodes for commands from outside and for those of an mpirun.
type commandNodes struct{ head *head }

// OutputPrefix returns the name by which a user can select a node: its host, or its index if the
// host is unknown or runs several daemons.
func (t commandNodes) OutputPrefix(nodeIndex int) string {
	id := t.head.node.id
	host, node := id.HostOf(nodeIndex), record.NodeOfMember(nodeIndex, id.Size)
	if host == "" || slices.Index(id.Hosts, host) != node || slices.Contains(id.Hosts[node+1:], host) {
		return fmt.Sprintf("node %d", node)
	}
	return host
}

// AbsentNodes returns the nodes that the job runs without.
func (t commandNodes) AbsentNodes() []int {
	return t.head.membership.AbsentNodes(t.head.nodeWatch.LastListing())
}

// SelectNodes implements [exec.Team].
func (t commandNodes) SelectNodes(words []string) ([]int, error) {
	h := t.head
	return exec.Selection{ID: h.node.id, Nodes: h.nodeWatch.LastListing(), Absent: t.AbsentNodes(),
		MayLackNodes: h.membership.HasSpares()}.SelectMembers(words)
}

// NotifyWorker notifies a worker of a new order on its peer link, if there are peer links.
func (t commandNodes) NotifyWorker(nodeIndex int) {
	if t.head.peerLinks != nil {
		t.head.peerLinks.NotifyWorker(nodeIndex)
	}
}

// tidyTimeout is the maximum time that the removal of orders may add to the end of the run.
const tidyTimeout = 2 * time.Second

// removeOrders removes the records of commands for the workers at the end of the run. It does
// nothing if the file system is unresponsive.
func (h *head) removeOrders() {
	if h.node.FileSystemSilence() > lifecycle.UnresponsiveTimeout {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.node.GraceCtx, tidyTimeout, errDeadline)
	defer cancel()
	h.requests.RemoveOrders(ctx)
}

// Hosts returns the indices of the driver's nodes and their hosts.
func (t commandNodes) Hosts() ([]int, []string) {
	return t.head.membership.MemberNodes(), t.head.teamHosts()
}

// Address returns the address of a node, or an empty string if it is unknown.
func (t commandNodes) Address(nodeIndex int) string {
	if nodeIndex == 0 {
		address, _ := t.head.node.cfg.Address()
		return address.Address
	}
	joined, _ := t.head.readJoined(nodeIndex)
	return joined.Address
}

// HasLink implements [exec.Team].
func (t commandNodes) HasLink(nodeIndex int) bool { return t.head.isConnected(nodeIndex) }

// RequestConn asks a worker, on its peer link, to connect to the head and receive a command.
func (t commandNodes) RequestConn(nodeIndex int) error {
	if !t.head.isConnected(nodeIndex) {
		return fmt.Errorf("%s has no peer link, which bringupd rsh needs: see --lifeline, and "+
			"whether it reaches the head's ports", t.head.node.nodeName(nodeIndex))
	}
	t.head.peerLinks.RequestStream(nodeIndex)
	return nil
}

// addRemoteEnv adds the variables by which the driver's mpirun finds its nodes and starts
// processes there.
func (h *head) addRemoteEnv(env []string) []string {
	program, err := os.Executable()
	if err != nil {
		h.node.Log.Warn("the driver's mpirun is not told how to reach the nodes", zap.Error(err))
	}
	quiet := err != nil || h.node.cfg.Framework.Name() != framework.None{}.Name()
	return envlist.With(env, h.node.commands.PrepareDriver(exec.DriverInfo{
		Program: program, Hosts: h.teamHosts(), Slots: h.slotsPerNode(), HostsOnly: quiet,
		Argv: h.node.cfg.Driver, IsMPIRun: ranks.IsMPILauncher(h.node.cfg.Driver),
	}, env))
}

// DriverStarted implements [instances.DriverHost]: it warns if the driver of several nodes, until ctx
// ends, is an MPI program that runs alone, or starts something that has only this one of the nodes.
func (h *head) DriverStarted(ctx context.Context, pid int) {
	nodes := h.membership.Count()
	if nodes < 2 || h.node.cfg.Framework.Name() != (framework.None{}).Name() {
		return
	}
	looks := []process.Look{
		mpidetect.LookForLone(func() *mpidetect.LoadedMPI { return mpidetect.DetectLoaded(pid) }, nodes),
	}
	if !h.node.cfg.Framework.HasServices() {
		looks = append(looks, framework.LookForOwnCluster(h.node.cfg.Roles.Frameworks, nodes))
	}
	if !h.node.cfg.NodesHaveServices() {
		looks = append(looks, ranks.LookBelow("the driver", func() []int { return []int{pid} },
			ranks.Runners{MinNodes: nodes, MaxNodes: nodes}))
	}
	h.node.Background(func(context.Context) { process.WatchTree(ctx, h.node.nodeEvents.Warn, looks...) })
}

// slotsPerNode returns the number of slots of a node. It assumes that all nodes are like the
// head's.
func (h *head) slotsPerNode() int {
	if given := h.node.cfg.World.MaxPerNode; given > 0 {
		return given
	}
	var err error
	if h.node.layout, err = h.node.cfg.Simulation.NodeResources(h.node.gpuMonitor.Topology(),
		launcher.EnvironmentOf(h.node.cfg.Environ)); err != nil {
		h.node.Log.Warn("cannot determine the number of slots per node; give --slots-per-node", zap.Error(err))
	}
	room, _ := ranks.LayoutRequest{}.NodeRanks(h.node.rankSlots()) // cannot fail without a requested number
	return room
}
