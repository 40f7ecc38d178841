// Package world runs one node's part of a world of ranks: it starts the ranks of this node, serves
// MPI to them, connects them with the ranks of other nodes, and starts the ranks that they spawn.
// It also contains the head's side.
package world

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/console/outputmux"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Config configures a node's part of a world.
type Config struct {
	*deps.Config
	Record    *record.Placement // plan of the world
	NodeIndex int               // index of this node in the team
	RunDir    string            // run directory
	JobName   string            // name of the world for MPI; see JobName
	// BaseEnv returns the environment on which those of the ranks are based.
	BaseEnv   func() []string
	Layout    affinity.Node
	BindKinds affinity.ResourceKinds // resources to which ranks are bound

	PMIx     *PMIxStartup
	Children *service.Children
	// Background runs a task in a goroutine. The daemon waits for its end before it exits.
	Background func(task func(ctx context.Context))
	Trail      *eventlog.EventLog
	Log        *zap.Logger
	// SocketDir returns a directory for sockets on this node that only this user can access.
	SocketDir      func() (string, error)
	RendezvousLink RendezvousLink
}

// RendezvousLink is the way to the head's side of the rendezvous.
type RendezvousLink struct {
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Await waits until it is known whether this node can reach the head's side, or ctx ends. It
	// returns an error that describes why the node cannot.
	Await func(ctx context.Context) error
}

// Node is one node's part of a world.
type Node struct {
	cfg        Config
	plan       ranks.Plan
	rendezvous *rendezvous.Node
	socket     string
	mpi        *pmi.Node
	servers    *mpiServers
	mux        *outputmux.Mux
	lifetime   context.Context // ends with this part of the world; its cause is the reason
	end        context.CancelCauseFunc

	mu sync.Mutex
	// localRanks are the local ranks of the run's world and of each spawned job; guarded by mu.
	localRanks []*ranks.LocalRanks
	slotOwners []int // rank in each slot, -1 if free; guarded by mu
}

// OpenNode opens the rendezvous of this node's ranks with the others, until ctx ends. Run starts
// the ranks.
func OpenNode(ctx context.Context, cfg Config) *Node {
	n := &Node{cfg: cfg, plan: ranks.PlanFromRecord(cfg.Record)}
	n.lifetime, n.end = context.WithCancelCause(ctx)
	hosts := cfg.Record.Hosts
	// Join the rendezvous, then create the MPI servers and the output of the ranks on top of it.
	n.rendezvous, n.socket = rendezvous.StartNode(rendezvous.Config{
		Self: n.plan.NodeRanks(cfg.NodeIndex, hosts), Layout: func() rendezvous.Layout { return n.plan.RendezvousLayout(hosts) },
		Dial: cfg.RendezvousLink.Dial, AwaitLink: n.requireLink, Log: cfg.Log,
		AbortJob: ranks.AbortHandler(cfg.Identity.Host, n.end), OnRoundEnd: cfg.Trail.LogFence, ReportStep: cfg.Children.ReportStep, DescribeRanks: n.describeActivity,
		HandleOrder: func(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
			return n.mpi.HandleOrder(ctx, node, name, data)
		},
	}, cfg.SocketDir, cfg.Background)
	n.mpi = pmi.NewNode(n.rendezvous, cfg.NodeIndex, n)
	if !cfg.World.GoOn {
		n.mpi.FailureDelay = failureDelay
	}
	n.servers = newMPIServers(n)
	n.mux = outputmux.New(outputmux.Config{
		Out: cfg.Streams.Out, Err: cfg.Streams.Err, Mode: cfg.World.Output, TagLines: cfg.World.Tag, Host: cfg.Identity.Host, Ranks: n.plan.RankCount(), MergeLines: cfg.World.Merge,
	})
	return n
}

// requireLink calls [RendezvousLink.Await] for a request of a rank, or of another program if rank is
// -1. If a rank's request fails, the job was launched wrongly, and linked ends it.
func (n *Node) requireLink(ctx context.Context, rank int) error {
	err := n.cfg.RendezvousLink.Await(ctx)
	if err != nil && ctx.Err() == nil && rank >= 0 {
		n.end(err)
	}
	return err
}

// failureDelay is the delay before a failed collective operation of MPI returns. If another rank
// has died, the job ends in this time, with this death as the cause.
const failureDelay = 5 * time.Second

// SocketPath returns the path of the Unix socket at which programs of this node reach the
// rendezvous. It is empty if there is none.
func (n *Node) SocketPath() string { return n.socket }

// Run runs the ranks of this node. When all have ended, it calls ended with their exits, and
// continues for the ranks of spawned jobs. It returns the failure of the first rank that failed, or
// the cause of the end of this part of the world. A start in progress at that time continues until
// starting ends.
func (n *Node) Run(starting context.Context, ended func(exits []record.RankExit) error) error {
	defer n.end(nil)
	if err := n.startServers(starting); err != nil {
		return err
	}
	crew := n.newLocalRanks(n.plan, nil)
	crew.Simulate = n.cfg.Simulation.RunRanks
	n.cfg.Background(func(ctx context.Context) { n.servers.singletons.watchRanks(ctx) })
	n.cfg.Background(n.watchSruns)
	exits, err := crew.Run(n.lifetime, starting)
	if err != nil {
		return err
	}
	n.servers.removeSharedMemory(n.cfg.JobName)
	if err := ended(exits); err != nil {
		return err
	}
	// Continue for spawned ranks until this part of the world ends.
	<-n.lifetime.Done()
	return context.Cause(n.lifetime)
}

// startServers starts the MPI servers for this node's ranks. A simulation has none.
func (n *Node) startServers(ctx context.Context) error {
	if n.cfg.Simulation.RunRanks != nil {
		return nil
	}
	if err := n.servers.startPMIx(ctx); err != nil {
		return err
	}
	n.servers.startRrun()
	return n.mpi.AddJob(ctx, InitialJob(n.plan, n.cfg.Record, n.cfg.JobName))
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

// watchSruns warns about the first srun for which a rank waits forever, such as one that the rank's
// mpirun has started.
func (n *Node) watchSruns(ctx context.Context) {
	if !n.cfg.Identity.Launcher.Traits().HasSteps || n.cfg.Simulation.RunRanks != nil {
		return
	}
	ctx, told := context.WithCancel(ctx)
	defer told()
	mpidetect.ReportWaits(ctx, func() []mpidetect.EndlessWait {
		owners := make(map[int]string)
		for _, rank := range n.RunningRanks() {
			owners[rank.PID] = fmt.Sprintf("rank %d on %s", rank.Rank, n.cfg.Identity.Host)
		}
		return mpidetect.SrunWaits(process.ProcessTree(os.Getpid()), owners, mpidetect.RankAdvice)
	}, func(words string) {
		n.cfg.Log.Warn(words)
		told()
	})
}

// describeActivity describes the current activity of the nodes of these ranks, or of all nodes if
// these nodes cannot be selected by name.
func (n *Node) describeActivity(ctx context.Context, of []int) string {
	ctx, cancel := context.WithTimeout(ctx, activityTimeout)
	defer cancel()
	picture, err := stackdump.RunCommand(ctx, n.cfg.RunDir, n.nodeFlags(of)...)
	if err != nil {
		return "cannot determine what they are doing: " + err.Error()
	}
	return strings.TrimSpace(picture)
}

// maxNodesDescribed is the maximum number of nodes that are described. The first nodes are
// sufficient in a log; users can request the others.
const maxNodesDescribed = 16

// nodeFlags returns flags that select the first nodes of these ranks. It returns nil if several
// nodes share a host, or for spawned ranks.
func (n *Node) nodeFlags(of []int) (flags []string) {
	hosts, nodes := n.cfg.Record.Hosts, n.plan.NodesByRank()
	if !slices.Equal(distinctNames(hosts), hosts) {
		return nil
	}
	for _, rank := range of {
		if rank >= len(nodes) {
			return nil
		}
		if len(flags) == maxNodesDescribed {
			break
		}
		if flag := "--node=" + hosts[nodes[rank]]; !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return flags
}

// activityTimeout limits the time for describing the activity of ranks.
const activityTimeout = 20 * time.Second

// Close stops the MPI servers of this node. All its ranks must have ended. It then writes the
// remaining output of the ranks, until ctx ends.
func (n *Node) Close(ctx context.Context) error {
	n.servers.stopPMIx()
	return n.mux.Close(ctx)
}

// JobName returns the name of a run's world for MPI. The name is a secret, and unique: MPICH
// derives names of shared memory from it, and trusts the contents that it finds there, even those
// of a killed job.
func JobName(run, nonce string) string {
	sum := sha256.Sum256([]byte("the name of a job for MPI " + nonce))
	return pmi.NewJobName("bringupd-"+run, [24]byte(sum[:]))
}

// InitialJob returns the world with which a run begins, as an MPI job with this name.
func InitialJob(plan ranks.Plan, rec *record.Placement, name string) *pmi.Job {
	job := &pmi.Job{Name: name, Hosts: distinctNames(rec.Hosts), Nodes: plan.NodesByRank()}
	for _, slots := range rec.Slots {
		job.UniverseSize += slots
	}
	job.UniverseSize = max(job.UniverseSize, len(job.Nodes))
	return job
}

// newLocalRanks returns the part of a plan's ranks that run on this node, ready to start. spawned
// describes the spawn, and is nil for the world with which the run begins.
func (n *Node) newLocalRanks(plan ranks.Plan, spawned *spawnedJob) *ranks.LocalRanks {
	cfg := &n.cfg
	local := plan.RanksOn(cfg.NodeIndex)
	kit := ranks.RankSpecBuilder{
		Argv: cfg.Driver, BaseEnv: cfg.BaseEnv(), Plan: plan, Affinities: n.assignSlots(local, spawned != nil), UserEnv: cfg.World.Env,
		Master: ranks.Master{
			Address: cfg.Record.MasterAddress, Port: cfg.Record.MasterPort, RunName: filepath.Base(cfg.RunDir),
			RestartCount: cfg.Record.RestartCount, MaxRestarts: cfg.Record.MaxRestarts,
		},
	}
	crew := &ranks.LocalRanks{
		Ranks: local, Node: cfg.Identity.Host, ContinueOnFailure: cfg.World.GoOn, StrictBinding: cfg.World.BindStrict, Children: cfg.Children, Background: cfg.Background,
		Log: cfg.Log, Rendezvous: n.rendezvous,
		NewSpec: func(ctx context.Context, rank ranks.Rank) (ranks.RankSpec, error) {
			given, err := n.servers.prepareRank(ctx, spawned.procOf(rank, cfg.JobName))
			if err != nil {
				return ranks.RankSpec{}, err
			}
			fit := kit.BuildSpec(rank, given.env)
			fit.Files, fit.DescribeUnfinalized = given.files, given.describeUnfinalized
			if cfg.World.GoOn { // otherwise the end of this rank ends all ranks
				fit.OnFailed = n.servers.deathNotifier(spawned.procOf(rank, cfg.JobName))
			}
			fit.Stdout, fit.Stderr = n.mux.RankWriter(rank.Rank, false), n.mux.RankWriter(rank.Rank, true)
			fit.OnOutputDone = func() { n.mux.EndRank(rank.Rank) }
			if rank.Rank == cfg.World.Stdin {
				fit.Stdin = cfg.Streams.In
			}
			spawned.applyCommand(&fit, rank)
			return fit, nil
		},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.localRanks = append(n.localRanks, crew)
	return crew
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
	if n.cfg.NodeIndex < len(n.cfg.Record.Slots) {
		// slots returns the maximum number of ranks of this node.
		return n.cfg.Record.Slots[n.cfg.NodeIndex]
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
	n.servers.removeSharedMemory(job)
	n.localRanks = slices.DeleteFunc(n.localRanks, func(c *ranks.LocalRanks) bool { return c == crew })
	for slot, taken := range n.slotOwners {
		if slices.ContainsFunc(crew.Ranks, func(r ranks.Rank) bool { return r.Rank == taken }) {
			n.slotOwners[slot] = -1
		}
	}
}

// AddJob serves MPI to the ranks of a job on this node.
func (n *Node) AddJob(ctx context.Context, job *pmi.Job) error { return n.servers.addJob(ctx, job) }

// FetchModex returns the data that a rank of this node has committed.
func (n *Node) FetchModex(ctx context.Context, of pmi.ProcID) ([]byte, error) {
	return n.servers.fetchModex(ctx, of)
}

// NotifyRanks notifies the ranks of this node of an event on another node.
func (n *Node) NotifyRanks(ctx context.Context, event pmi.Event) error {
	return n.servers.notifyRanks(ctx, event)
}

// RemoveJob stops serving a job that has ended.
func (n *Node) RemoveJob(ctx context.Context, job string) error { return n.servers.removeJob(ctx, job) }
