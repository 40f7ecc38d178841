// Package instances starts, probes, watches, restarts and stops the instances of the roles of a run.
// Node does so for the processes of one node. Head decides for the run: when a role starts, whether
// it has enough instances, and when the run is over. What follows from an exit is decided by the
// pure functions of package roles.
package instances

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeConfig configures the part of a node.
type NodeConfig struct {
	*lifecycle.Publisher
	Children *service.Children
	Defs     []roles.Definition
	Record   *roles.PlanRecord // the first plan's
	Plan     *roles.Plan       // the first one
	Size     int               // number of nodes of the launch
	// Step is the further job step of this daemon, which starts the roles of that step; empty: the run's
	// own.
	Step string
	Name string // this node's, for messages
	Host Host   // gives the processes what they get from their node
	// Services has the built-in services; nil if there are none.
	Services ServiceHost
	// Driver has the driver, if that is a role of this node; nil on other nodes than the head's.
	Driver DriverHost
	// StandIns starts stand-ins in place of the processes; nil: there are none.
	StandIns   deps.ProcessStarter
	Frameworks map[string]framework.Framework // keyed by name, of the roles that are clusters
	Ports      *planning.PortBlock            // this node's; nil if nothing keeps its ports
	Steps      *stepwatch.Monitor             // gets the steps of primary roles
	// Runners returns the processes of an instance of a role that run its command; nil if any launcher, such
	// as torchrun, may fit them.
	Runners func(d roles.Definition) *ranks.Runners
	// CPUTimes returns the processor times of process trees; nil: as /proc says.
	CPUTimes func(children []int) (map[int]time.Duration, error)
	// Out and Err are the standard streams of the daemon, for the output of primary roles.
	Out, Err io.Writer
}

// Host gives processes what they get from their node.
type Host interface {
	// Environ returns the environment of a process of a role with this placement, with additional
	// variables; an empty value removes a variable.
	Environ(place roles.Placement, more map[string]string) []string
	// WorldConfig returns what configures the worlds of ranks of the node.
	WorldConfig() world.NodeConfig
	// OpenFlagWorld opens this node's part of the world that a generation of the ranks of flags is.
	// It ends with the run, and its tasks with life.
	OpenFlagWorld(life context.Context, rec *world.Placement, nodeIndex, number, generation int) *world.Node
	// RanksStartAgain reports whether all ranks of flags start again after a failure, as far as
	// this node knows: the head decides that. They have been started again generation times.
	RanksStartAgain(f record.Failure, generation int) bool
	// StopFlagRanks stops all ranks of flags on the node, and waits until none is left.
	StopFlagRanks()
	// ServiceEnviron returns the environment of a service of a framework, which needs none of the run's
	// other services, from the one with which the framework has described it.
	ServiceEnviron(base []string) []string
	// DescribeNode describes this node as a member of a framework's cluster.
	DescribeNode(f framework.Framework, member Member) (framework.Node, error)
	// RoleKey returns the secret that the processes of a role and their clients share.
	RoleKey(role string) string
	// TakePlace is called with each plan before its instances start, with the place of the node there and
	// in the plan before, which is -1 if it has none.
	TakePlace(rec *roles.PlanRecord, place, before int)
	// ReportSilence reports that a child with a log has printed an error and nothing since, for the given time,
	// or without an error that this is over.
	ReportSilence(child, log, errorLine string, silent time.Duration)
	// PrivateDir returns a directory of the node that other users cannot read.
	PrivateDir() (string, error)
}

// DriverHost has the driver of the flags.
type DriverHost interface {
	// DriverSpec returns how to start it.
	DriverSpec() process.Spec
	// DriverStarted is called when it runs, with a context that ends with it.
	DriverStarted(ctx context.Context, pid int)
}

// Node runs the instances of the roles of one node.
type Node struct {
	cfg         NodeConfig
	plan        atomic.Pointer[knownPlan]
	reading     ctxutil.Turn // held while a newer plan is read
	environment environment
	tagsLines   bool       // the output of primary roles comes from several processes
	output      sync.Mutex // held while such a line is written
	endpoints   *service.EndpointFiles
	writing     ctxutil.Turn // held while the files of endpoints are written
	nextList    int          // number of the first list that is newer than them; guarded by writing
	waiting     atomic.Int32 // number of instances that may wait for endpoints, see noteWaiting

	supervisors sync.WaitGroup
	starting    sync.Mutex // held while supervisors are started by a plan
	mu          sync.Mutex
	own         []*supervisor // those of this daemon, once they run; guarded by mu
	hasStarted  bool          // supervisors of this node have been started; guarded by mu
	nodeEnd
}

// nodeEnd has the contexts that end the instances of a node.
type nodeEnd struct {
	drained   context.Context // done when the orderly end is known
	drain     context.CancelFunc
	stopAll   context.Context // done when everything must stop
	cancelAll context.CancelFunc
}

// NewNode returns the part of a node. Nothing runs yet.
func NewNode(cfg NodeConfig) (n *Node, err error) {
	plan := cfg.Plan
	n = &Node{cfg: cfg, reading: make(ctxutil.Turn, 1), writing: make(ctxutil.Turn, 1)}
	primaries := 0
	for i := range plan.Roles {
		if role := &plan.Roles[i]; role.Primary {
			for _, instance := range role.Instances {
				primaries += len(instance.Processes)
			}
		}
	}
	n.tagsLines = primaries != 1
	n.setPlan(plan, cfg.Record)
	if roles.HasNamed(cfg.Defs) {
		cfg.Steps.SetWorlds(func(number int) string {
			role, instance := plan.FindInstance(number)
			if role == nil {
				return ""
			}
			return instanceName(role, instance)
		})
	}
	n.stopAll, n.cancelAll = context.WithCancel(context.Background())
	n.drained, n.drain = context.WithCancel(context.Background())
	n.environment, err = newEnvironment(cfg, &n.plan)
	n.endpoints = service.NewEndpointFiles(n.environment.endpointsDir, cfg.Log)
	return n, err
}

// Start starts the supervisors of all instances that have processes on this node. They end when
// their instances have ended, or have been stopped. A spare node starts them when it takes the place
// of a node that was lost.
func (n *Node) Start() {
	n.startOwn()
	n.cfg.Background(n.followPlans)
	if n.environment.endpointsDir != "" {
		n.cfg.Background(n.followEndpoints)
	}
}

// startOwn starts the supervisors of this node when it has a place: once, but those of built-in roles
// again when the team has changed before the gate.
func (n *Node) startOwn() {
	n.starting.Lock()
	defer n.starting.Unlock()
	known := n.known()
	if known.place < 0 {
		return
	}
	n.endMoved(known)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopAll.Err() != nil || n.drained.Err() != nil {
		return
	}
	isFirst := !n.hasStarted
	n.hasStarted = true
	for _, s := range n.addSupervisors(known, isFirst) {
		n.supervisors.Add(1)
		n.cfg.Background(func(context.Context) {
			defer n.supervisors.Done()
			s.run()
		})
	}
}

// endMoved ends the supervisors of services for which this node has another place by a plan.
func (n *Node) endMoved(by *knownPlan) {
	isMoved := func(s *supervisor) bool {
		return s.defined.BuiltIn == roles.BuiltInWorker && s.first != by.Nodes[by.place].Since
	}
	for _, s := range n.supervisorsNow() {
		if isMoved(s) {
			s.end()
			<-s.ended
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own = slices.DeleteFunc(n.own, isMoved)
}

// supervisorsNow returns the supervisors of this daemon at present.
func (n *Node) supervisorsNow() []*supervisor {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.own)
}

// addSupervisors adds the supervisors of the instances on this node by a plan, and returns them: unless
// they are the first ones, only those of built-in roles that have none. The caller holds mu.
func (n *Node) addSupervisors(by *knownPlan, areFirst bool) (added []*supervisor) {
	var planned []int
	for i := range by.Roles {
		role := &by.Roles[i]
		isOwn := role.Program.Step == n.cfg.Step // otherwise another daemon of this node starts its processes
		isThere := slices.ContainsFunc(n.own, func(s *supervisor) bool { return s.defined.Name == role.Name })
		if !areFirst && (role.BuiltIn == "" || isThere) {
			continue
		}
		for j := range role.Instances {
			instance := &role.Instances[j]
			here := processesOn(instance, by.place)
			// Ranks of flags can be spawned on nodes without any.
			if len(here) == 0 && !role.IsFlagWorld() || by.isOver(instance.Number) {
				continue
			}
			if isOwn {
				added = append(added, n.newSupervisor(by, role, instance))
			}
			for _, p := range here {
				if isOwn || n.cfg.Step == "" { // kept until that daemon takes them over
					planned = append(planned, planning.PortsOf(role, p)...)
				}
			}
		}
	}
	n.own = append(n.own, added...)
	if !areFirst {
		return added
	}
	if n.cfg.Ports != nil && n.cfg.Step != "" {
		if err := n.cfg.Ports.TakeGrants(n.stopAll, n.cfg.Dir, n.ownNode(), planned); err != nil {
			n.cfg.Log.Warn("cannot take over ports from the daemon of the run's own step", zap.Error(err))
		}
	}
	n.cfg.Ports.KeepOnly(planned...)
	return added
}

// StopInOrder stops the instances of this node in the order of their roles, and waits until they have
// ended, or ctx ends. The orderly end of the run is known.
func (n *Node) StopInOrder(ctx context.Context) {
	n.mu.Lock() // nothing starts any more
	n.drain()
	n.mu.Unlock()
	n.awaitSupervisors(ctx)
}

// StopAll stops all instances of this node at once, each with the grace period of its role, and
// waits until they have ended, or ctx ends.
func (n *Node) StopAll(ctx context.Context) {
	n.mu.Lock()
	n.cancelAll()
	n.mu.Unlock()
	n.awaitSupervisors(ctx)
}

// awaitSupervisors waits until all instances have ended, or ctx ends.
func (n *Node) awaitSupervisors(ctx context.Context) {
	ended := make(chan struct{})
	n.cfg.Background(func(context.Context) {
		n.supervisors.Wait()
		close(ended)
	})
	ctxutil.AwaitDone(ctx, ended)
}

// ownNode returns the index of this node, also for the daemon of a further step.
func (n *Node) ownNode() int { return record.NodeOfMember(n.cfg.NodeIndex, n.cfg.Size) }

// LongestGrace returns the longest grace period of the roles on this node.
func (n *Node) LongestGrace() (longest time.Duration) {
	plan := n.known().Plan
	for i := range plan.Roles {
		if role := &plan.Roles[i]; slices.Contains(role.Nodes, n.known().place) {
			longest = max(longest, role.Stop.Grace)
		}
	}
	return longest
}

// awaitControl waits until a listing of the control directory satisfies the condition, or ctx ends.
func (n *Node) awaitControl(ctx context.Context, holds func(signal.Listing) bool) bool {
	_, err := n.cfg.ControlWatch.FollowListings(ctx, holds)
	return err == nil
}

func (n *Node) markName(instance, generation int, state record.InstanceState, change int) string {
	return signal.InstanceName(record.InstanceMark{
		Node: n.ownNode(), Instance: instance, Generation: generation, State: state, Change: change,
	}, n.cfg.Size)
}
