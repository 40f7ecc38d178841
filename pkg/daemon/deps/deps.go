// Package deps has the dependencies of a daemon: what its configuration, which is plain data,
// cannot contain.
package deps

import (
	"context"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Config is the configuration of a daemon with its dependencies.
type Config struct {
	config.Config
	Set
}

// Set contains the dependencies of a daemon on its node.
type Set struct {
	// Address returns the address at which peers reach this node. It is called when the address is
	// needed.
	Address func() (launcher.NodeAddress, error)
	Checks  lifecycle.NodeChecks // nil if there are no checks
	GPUs    lifecycle.NodeGPUs   // the monitored GPUs; nil if none are monitored
	Signals <-chan os.Signal
	// RenewChecks replaces Checks and GPUs for another attempt in this process, because theirs end
	// with each attempt. It is nil if they can be used again.
	RenewChecks func(*Config) error
	Access      signal.Access
	// Network is the network by which workers connect to the head. It is nil for TCP.
	Network peerlink.Network
	// ChildrenStarter starts the daemon's children. It is nil if they are processes.
	ChildrenStarter process.Starter
	Simulation      SimHooks
	Previous        PreviousAttempts
}

// LauncherSignals returns the signals by which the launcher ends the job, if their meaning is known.
func (c Config) LauncherSignals() health.LauncherSignals {
	f := c.Identity.Launcher.Facts()
	known := health.LauncherSignals{TermIsFinal: f.TermIsFinal, AlarmIsFinal: f.AlarmIsFinal}
	if f.TermIsFinal {
		known.KillDelay = f.KillDelay
	}
	return known
}

// NewChildStarter returns the starter of the daemon's children. If the driver or ranks will run on
// this node, its guard starts at once, because they must not start before it, and every node waits
// for them.
func (c *Config) NewChildStarter() (process.Starter, error) {
	if c.ChildrenStarter != nil {
		return c.ChildrenStarter, nil
	}
	super, err := process.NewSupervisor(launcher.JobVariables())
	if err != nil {
		return nil, err
	}
	super.AdoptOrphans()
	if len(c.Driver) > 0 && c.Simulation.RunRanks == nil && (c.Identity.NodeIndex == 0 || c.World.IsRequested()) {
		super.StartGuard()
	}
	return super, nil
}

// ProcessStarter starts a process, or a stand-in for one.
type ProcessStarter interface {
	Start(ctx context.Context, spec process.Spec) (process.Handle, error)
}

// RankSimulation replaces the ranks of a node, until ctx ends. It returns the failure of one of them.
type RankSimulation func(ctx context.Context, meet *rendezvous.Node, of []ranks.Rank) error

// SimHooks replaces a node, its sockets and the processes of ranks in a simulation. The zero value
// means no simulation.
type SimHooks struct {
	NoSockets bool // makes the daemon open no sockets for programs of the node
	Node      affinity.Node
	RunRanks  RankSimulation
	// RoleProcesses starts stand-ins for the processes of roles, whose ports begin with FirstPort. It is
	// nil if they are processes.
	RoleProcesses ProcessStarter
	FirstPort     int
}

// NodeResources returns the resources of this node for ranks and roles.
func (p SimHooks) NodeResources(gpus gpu.Topology,
	lookup func(name string) (value string, set bool)) (affinity.Node, error) {
	if p.RunRanks != nil || p.RoleProcesses != nil {
		return p.Node, nil
	}
	return affinity.DiscoverNode("/", gpus, lookup)
}

// PreviousAttempts is the information that earlier attempts of the same launch leave to this one.
// Later attempts come last.
type PreviousAttempts struct {
	UnfitNodes []record.DroppedNode // nodes with a fault, which only stand by
	LostNodes  []record.DroppedNode // nodes whose daemons were lost in the last attempt
	Failures   []record.Failure     // the failures of all earlier attempts
	History    record.RestartHistory
	// EarlierDuration is how long the job has run before the start of this process: before a requeue,
	// or before its launcher has restarted this daemon.
	EarlierDuration time.Duration
}

// maxSingleFailures is the number of failures of a node that do not make it a suspect: it may have
// been a coincidence.
const maxSingleFailures = 1

// SuspectNodes returns the nodes of a launch that have failed more than once.
func (p PreviousAttempts) SuspectNodes(id *launcher.Identity) (nodes []int) {
	for node := range id.Size {
		if p.History.NodeFailures[HistoryName(id, node)] > maxSingleFailures {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// HistoryName returns the name of a node in the history of restarts: its host, so that it is known
// after a requeue, or its index if daemons share a host, or the launcher does not provide the host.
func HistoryName(id *launcher.Identity, node int) string {
	if host := id.HostOf(node); host != "" && id.LocalSize <= 1 {
		return host
	}
	return "node " + strconv.Itoa(node)
}

// HasLost reports whether the last attempt has lost all of the given nodes.
func (p PreviousAttempts) HasLost(nodes []int) bool {
	return !slices.ContainsFunc(nodes, func(node int) bool {
		return !slices.ContainsFunc(p.LostNodes, func(d record.DroppedNode) bool { return d.NodeIndex == node })
	})
}

// NodesEverLost returns the sorted indices of the nodes that any earlier attempt has lost. They may
// have come back since.
func (p PreviousAttempts) NodesEverLost() []int { return LostNodes(p.Failures, health.IsPeerLoss) }

// LostNodes returns the sorted indices of the nodes that are lost by failures of the selected kinds.
func LostNodes(failures []record.Failure, selected func(health.Kind) bool) (nodes []int) {
	for _, failure := range failures {
		if selected(failure.Kind) {
			nodes = append(nodes, failure.LostNodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// causesTimeout is the timeout for reading the result of the job's previous start.
const causesTimeout = 2 * time.Second

// EarlierFailures returns the failures of the earlier attempts of this launch. If the job was
// restarted by its launcher, it adds the cause of the last attempt before that, if it can be read.
func (c *Config) EarlierFailures() []record.Failure {
	result, ok := c.PreviousStart(context.Background())
	if !ok || result.Cause == nil {
		return c.Previous.Failures
	}
	return append(slices.Clip(c.Previous.Failures), *result.Cause)
}

// PreviousStart returns the result of the last attempt before the launcher has started the job
// again. ok is false if it has not, or the result cannot be read.
func (c *Config) PreviousStart(ctx context.Context) (_ record.Result, ok bool) {
	if c.Identity.Restart == 0 {
		return record.Result{}, false
	}
	place := c.RunLocation()
	last := c.Identity
	last.Restart, last.Attempt = last.Restart-1, 0
	place.Run, place.Key = last.RunName(), "" // its launch was another one
	ctx, cancel := context.WithTimeoutCause(ctx, causesTimeout, health.ErrDeadline)
	defer cancel()
	newest, err := place.NewestAttempt(ctx)
	if err != nil || !newest.HasResult {
		return record.Result{}, false
	}
	result, err := newest.ReadResult(ctx)
	return result, err == nil
}
