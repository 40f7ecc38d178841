// Package world runs one node's part of a world of ranks: it starts the ranks of this node, serves
// MPI to them, connects them with the ranks of other nodes, and starts the ranks that they spawn.
// It also contains the head's side.
package world

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeConfig configures all worlds of a node.
type NodeConfig struct {
	*deps.Config
	RunDir    string // run directory
	Layout    affinity.Node
	BindKinds affinity.ResourceKinds // resources to which ranks are bound
	Children  *service.Children
	// Background runs a task in a goroutine. The daemon waits for its end before it exits.
	Background func(task func(ctx context.Context))
	Trail      *eventlog.EventLog
	Log        *zap.Logger
	Warn       func(words string) // logs a warning, and reports it as an event
	// SocketDir returns a directory for sockets and files on this node that only this user can access.
	SocketDir func() (string, error)
	RendezvousLink
}

// Within returns the configuration of a world whose tasks end when life does.
func (c NodeConfig) Within(life context.Context) NodeConfig {
	background := c.Background
	c.Background = func(task func(ctx context.Context)) {
		background(func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			task(ctx)
		})
	}
	return c
}

// Config configures a node's part of a world.
type Config struct {
	NodeConfig
	ID
	Placement *Placement // plan of the world
	NodeIndex int        // index of this node in the world
	// BaseEnv returns the environment on which those of the ranks are based, unless their programs
	// have their own: see [Node.BuildSpec].
	BaseEnv func() []string
	PMIx    *PMIxStartup
	// Output returns the writer of a rank's standard output or standard error, or nil if only its log
	// needs it; nil: the daemon's streams, as the configuration requests.
	Output func(rank int, isErr bool) io.Writer
	// ReportStep records a step that a rank has reported itself; nil: as a step of the run's world.
	ReportStep func(rank int, step float64)
}

// RendezvousLink is the way to the head's side of the rendezvous.
type RendezvousLink struct {
	// Dial opens a connection to the world with a key; see [ID].
	Dial func(ctx context.Context, key string) (io.ReadWriteCloser, error)
	// Await waits until it is known whether this node can reach the head's side, or ctx ends. It
	// returns an error that describes why the node cannot.
	Await func(ctx context.Context) error
}

// Node is one node's part of a world.
type Node struct {
	*mpiServers
	cfg        Config
	plan       ranks.Plan
	rendezvous *rendezvous.Node
	socket     string
	mpi        *pmi.Node
	output     func(rank int, isErr bool) io.Writer
	mux        *console.Mux    // nil if the output goes elsewhere
	lifetime   context.Context // ends with this part of the world; its cause is the reason
	end        context.CancelCauseFunc

	mu sync.Mutex
	// localRanks are the local ranks of the run's world and of each spawned job; guarded by mu.
	localRanks []*ranks.LocalRanks
	slotOwners []int // rank in each slot, -1 if free; guarded by mu
}

// OpenNode opens the rendezvous of this node's ranks with the others, until ctx ends.
func OpenNode(ctx context.Context, cfg Config) *Node {
	n := &Node{cfg: cfg, plan: ranks.NewPlan(cfg.Placement.PerNode)}
	n.lifetime, n.end = context.WithCancelCause(ctx)
	hosts := cfg.Placement.Hosts
	if cfg.ReportStep == nil {
		cfg.ReportStep = cfg.Children.ReportStep
	}
	// Join the rendezvous, then create the MPI servers and the output of the ranks on top of it.
	n.rendezvous, n.socket = rendezvous.StartNode(rendezvous.Config{
		Self: n.plan.NodeRanks(cfg.NodeIndex, hosts), Layout: func() rendezvous.Layout {
			return n.plan.RendezvousLayout(hosts)
		},
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return cfg.Dial(ctx, cfg.Key)
		}, AwaitLink: n.requireLink, Log: cfg.Log,
		AbortJob: ranks.AbortHandler(cfg.Name, cfg.Identity.Host, n.end), OnRoundEnd: cfg.Trail.LogFence,
		ReportStep: cfg.ReportStep,
		HandleOrder: func(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
			return n.mpi.HandleOrder(ctx, node, name, data)
		},
	}, cfg.SocketDir, cfg.socketName(), cfg.Background)
	n.mpi = pmi.NewNode(n.rendezvous, cfg.NodeIndex, n)
	if !cfg.World.GoOn {
		n.mpi.FailureDelay = failureDelay
	}
	n.mpiServers = newMPIServers(n)
	if n.output = cfg.Output; n.output == nil {
		n.mux = console.NewMux(console.MuxConfig{
			Out: cfg.Streams.Out, Err: cfg.Streams.Err, Mode: cfg.World.Output, TagLines: cfg.World.Tag,
			Host: cfg.Identity.Host, Ranks: n.plan.RankCount(),
		})
		n.output = n.mux.RankWriter
	}
	return n
}

// requireLink calls [RendezvousLink.Await] for a request of a rank, or of another program if rank is
// -1. If a rank's request fails, the job was launched wrongly, and linked ends it.
func (n *Node) requireLink(ctx context.Context, rank int) error {
	err := n.cfg.Await(ctx)
	if err != nil && ctx.Err() == nil && rank >= 0 {
		n.end(err)
	}
	return err
}

// failureDelay is the delay before a failed collective operation of MPI returns. If another rank
// has died, the job ends in this time, with this death as the cause.
const failureDelay = 5 * time.Second

// SocketEnviron returns the variable by which the programs of this node find the rendezvous.
func (n *Node) SocketEnviron() map[string]string {
	return map[string]string{launcher.RendezvousVariable: n.socket}
}

// SocketPath returns the path of the Unix socket at which programs of this node reach the
// rendezvous. It is empty if there is none.
func (n *Node) SocketPath() string { return n.socket }

// StartServers starts the MPI servers for this node's ranks, and watches the ranks. A simulation does
// neither.
func (n *Node) StartServers(ctx context.Context) error {
	if n.cfg.Simulation.RunRanks != nil || n.cfg.Simulation.NoSockets {
		return nil
	}
	if err := n.startPMIx(ctx); err != nil {
		return err
	}
	n.startRrun()
	n.cfg.Background(n.singletons.watchRanks)
	n.watchLaunches()
	return n.mpi.AddJob(ctx, InitialJob(n.plan, n.cfg.Placement, n.cfg.JobName))
}

// watchLaunches warns if the program of rank 0, which runs here, starts something like torchrun that
// does not fit the ranks of the world, until ctx ends. The other ranks run the same program.
func (n *Node) watchLaunches() {
	nodes, count := n.plan.NodeCount(), n.plan.RankCount()
	own := n.plan.RanksOn(n.cfg.NodeIndex)
	if count < 2 || len(own) == 0 || own[0].Rank != 0 {
		return
	}
	pids := func() (first []int) {
		for _, rank := range n.RunningRanks() {
			if rank.Rank == 0 {
				first = append(first, rank.PID)
			}
		}
		return first
	}
	look := ranks.LookBelow(n.rankName(0), pids, ranks.Runners{MinNodes: nodes, MaxNodes: nodes, IsRanked: true,
		MinRanks: count, MaxRanks: count, AreOfRole: n.cfg.Name != ""})
	n.cfg.Background(func(ctx context.Context) { process.WatchTree(ctx, n.cfg.Warn, look) })
}

// RunningRanks returns the ranks that are running on this node.
func (n *Node) RunningRanks() (running []stackdump.RankProcess) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, crew := range n.localRanks {
		running = append(running, crew.RunningRanks()...)
	}
	return running
}

// Ended returns a context that ends when a rank has aborted the world, or the world cannot go on for
// another reason. Its cause is that reason.
func (n *Node) Ended() context.Context { return n.lifetime }

// Close stops the MPI servers of this node. All its ranks must have ended. It then writes the
// remaining output of the ranks, until ctx ends.
func (n *Node) Close(ctx context.Context) error {
	n.end(nil)
	n.removeSharedMemory(n.cfg.JobName)
	n.stopPMIx()
	if n.mux == nil {
		return nil
	}
	return n.mux.Close(ctx)
}

// InitialJob returns the world with which a run begins, as an MPI job with this name.
func InitialJob(plan ranks.Plan, placement *Placement, name string) *pmi.Job {
	job := &pmi.Job{Name: name, Hosts: NodeNames(placement.Hosts), Nodes: plan.NodesByRank()}
	for _, slots := range placement.Slots {
		job.UniverseSize += slots
	}
	job.UniverseSize = max(job.UniverseSize, len(job.Nodes))
	return job
}

// newLocalRanks returns the part of a plan's ranks that run on this node, ready to start with the
// command of the run. spawned describes the spawn, and is nil for the world with which the run begins.
func (n *Node) newLocalRanks(plan ranks.Plan, spawned *spawnedJob) *ranks.LocalRanks {
	cfg := &n.cfg
	crew := n.addRanks(plan.RanksOn(cfg.NodeIndex))
	base, bound := cfg.BaseEnv(), n.assignSlots(crew.Ranks, spawned != nil)
	crew.NewSpec = func(ctx context.Context, rank ranks.Rank) (ranks.RankSpec, error) {
		program := ranks.RankProgram{
			Name: service.RankName(rank.Rank), Argv: cfg.Driver, BaseEnv: base, Affinity: bound[rank.Local],
			UserEnv: ranks.ParseVariables(cfg.World.Env),
		}
		fit, err := n.buildSpec(ctx, plan, rank, spawned.procOf(rank, cfg.JobName), program)
		if err != nil {
			return fit, err
		}
		if rank.Rank == 0 {
			fit.Stdin = cfg.Streams.In
		}
		spawned.applyCommand(&fit, rank)
		return fit, nil
	}
	return crew
}

// InitialRanks returns the ranks of this node with which the run begins, ready to start with the command
// of the run: see [ranks.LocalRanks.Start].
func (n *Node) InitialRanks() *ranks.LocalRanks { return n.newLocalRanks(n.plan, nil) }

// AddRanks returns the ranks of this node, which the caller starts one by one: with
// [ranks.LocalRanks.StartRank] and the results of BuildSpec.
func (n *Node) AddRanks() *ranks.LocalRanks { return n.addRanks(n.plan.RanksOn(n.cfg.NodeIndex)) }

func (n *Node) addRanks(local []ranks.Rank) *ranks.LocalRanks {
	cfg := &n.cfg
	crew := &ranks.LocalRanks{
		Ranks: local, Node: cfg.Identity.Host, World: cfg.Name, ContinueOnFailure: cfg.World.GoOn,
		StrictBinding: cfg.World.Bind.IsStrict,
		Children:      cfg.Children, Background: cfg.Background, Log: cfg.Log, Rendezvous: n.rendezvous,
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.localRanks = append(n.localRanks, crew)
	return crew
}

// BuildSpec returns how to start a rank with a program of its own. It starts to serve MPI to the rank.
func (n *Node) BuildSpec(ctx context.Context, rank ranks.Rank, program ranks.RankProgram) (ranks.RankSpec, error) {
	return n.buildSpec(ctx, n.plan, rank, pmi.ProcID{Job: n.cfg.JobName, Rank: rank.Rank}, program)
}

func (n *Node) buildSpec(ctx context.Context, plan ranks.Plan, rank ranks.Rank, proc pmi.ProcID,
	program ranks.RankProgram) (ranks.RankSpec, error) {
	given, err := n.prepareRank(ctx, proc)
	if err != nil {
		return ranks.RankSpec{Name: program.Name}, err
	}
	placement := n.cfg.Placement
	fit := program.BuildSpec(plan, rank, ranks.Master{
		Address: placement.MasterAddress, Port: placement.MasterPort, RunName: filepath.Base(n.cfg.RunDir),
		RestartCount: placement.RestartCount, MaxRestarts: placement.MaxRestarts,
	}, given.env)
	fit.Files, fit.DescribeUnfinalized = given.files, given.describeUnfinalized
	if dir, err := n.cfg.SocketDir(); err == nil { // otherwise nothing but this file is missing
		fit.UseErrorFile(filepath.Join(dir, ranks.ErrorFileName(n.cfg.Key, rank.Rank)), program)
	}
	if n.cfg.World.GoOn { // otherwise the end of this rank ends all ranks
		fit.OnFailed = n.deathNotifier(proc)
	}
	fit.Stdout, fit.Stderr = n.output(rank.Rank, false), n.output(rank.Rank, true)
	fit.OnOutputDone = func() {
		if n.mux != nil {
			n.mux.EndRank(rank.Rank)
		}
	}
	return fit, nil
}

// rankName returns the name of a rank of this node for messages.
func (n *Node) rankName(rank int) string {
	return record.WorldRank{World: n.cfg.Name, Number: rank}.String() + " on " + n.cfg.Identity.Host
}

// assignSlots returns the bindings of ranks. The initial ranks of the run share the whole node.
// Spawned ranks get one free slot each; ranks for which no slot is free are not bound.
func (n *Node) assignSlots(local []ranks.Rank, spawned bool) []affinity.Affinity {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Assign free slots, also to the initial ranks, so that spawned ranks get others.
	if n.slotOwners == nil {
		n.slotOwners = slices.Repeat([]int{-1}, max(n.slotCount(), len(local)))
	}
	slots := n.cfg.Layout.AssignRanks(max(len(n.slotOwners), 1), n.cfg.BindKinds)
	places := make([]affinity.Affinity, len(local))
	for i, rank := range local {
		if free := slices.Index(n.slotOwners, -1); free >= 0 {
			n.slotOwners[free], places[i] = rank.Rank, slots[free]
		}
	}
	if !spawned {
		return n.cfg.Layout.AssignRanks(len(local), n.cfg.BindKinds)
	}
	return places
}

func (n *Node) slotCount() int {
	if n.cfg.NodeIndex < len(n.cfg.Placement.Slots) {
		return n.cfg.Placement.Slots[n.cfg.NodeIndex]
	}
	return n.plan.LocalCount(n.cfg.NodeIndex)
}

// spawnedJob is a job that a rank has spawned, with the spawn request.
type spawnedJob struct {
	job *pmi.Job
	pmi.SpawnRequest
}

// procOf returns the identity of a rank in MPI. world is the name of the run's world.
func (s *spawnedJob) procOf(rank ranks.Rank, world string) pmi.ProcID {
	if s == nil {
		return pmi.ProcID{Job: world, Rank: rank.Rank}
	}
	return pmi.ProcID{Job: s.job.Name, Rank: rank.Rank - s.job.FirstNumber}
}

// applyCommand applies the command, directory and variables of the spawn request to fit.
func (s *spawnedJob) applyCommand(fit *ranks.RankSpec, rank ranks.Rank) {
	if s == nil {
		return
	}
	command := s.Commands[s.job.CommandIndex(rank.Rank-s.job.FirstNumber)]
	fit.Argv, fit.Dir, fit.Stdin = command.Argv, command.Dir, nil
	fit.Env = append(fit.Env, command.Env...)
}

// StartRanks starts the ranks of a spawned job that run on this node. It returns when they have
// been started or one could not be started.
func (n *Node) StartRanks(_ context.Context, job *pmi.Job, s pmi.SpawnRequest) error {
	crew := n.newLocalRanks(ranks.PlanSpawned(job.Nodes, len(job.Hosts), job.FirstNumber), &spawnedJob{job, s})
	started := make(chan error, 1)
	crew.OnStarted = func(err error) { started <- err }
	n.cfg.Background(func(ctx context.Context) {
		if _, err := crew.Run(n.lifetime, n.lifetime); err != nil {
			n.end(err)
			return
		}
		n.freeSlots(crew, job.Name)
		if err := n.mpi.ReportJobEnd(ctx, job.Name); err != nil {
			n.cfg.Log.Warn("cannot report the end of spawned ranks", zap.Error(err))
		}
	})
	return <-started
}

// freeSlots releases the slots of a spawned job after its ranks on this node have ended.
func (n *Node) freeSlots(crew *ranks.LocalRanks, job string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeSharedMemory(job)
	n.localRanks = slices.DeleteFunc(n.localRanks, func(c *ranks.LocalRanks) bool { return c == crew })
	for slot, taken := range n.slotOwners {
		if slices.ContainsFunc(crew.Ranks, func(r ranks.Rank) bool { return r.Rank == taken }) {
			n.slotOwners[slot] = -1
		}
	}
}
