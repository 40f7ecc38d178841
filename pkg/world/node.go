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

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
	"github.com/bringupd/bringupd/pkg/why"
)

// Config configures a node's part of a world.
type Config struct {
	*config.Config
	Record *signal.RanksRecord // plan of the world
	Place  int                 // index of this node in the team
	Host   string
	Dir    string // run directory
	Job    string // name of the world for MPI; see JobName
	// Base returns the environment on which those of the ranks are based.
	Base   func() []string
	Layout binding.Node
	Kinds  binding.Kinds // resources to which ranks are bound

	PMIx     *PMIx
	Children *service.Children
	// Background runs a task in a goroutine. The daemon waits for its end before it exits.
	Background func(task func(ctx context.Context))
	Trail      *trail.Trail
	Log        *zap.Logger
	// Private returns a directory on this node that only this user can access.
	Private func() (string, error)
	// Dial connects to the head's side of the rendezvous.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Linked waits until it is known whether this node can reach the head's side of the rendezvous, or
	// ctx ends. It returns an error that describes why the node cannot.
	Linked func(ctx context.Context) error
}

// Node is one node's part of a world.
type Node struct {
	cfg    Config
	plan   ranks.Plan
	meet   *meeting.Node
	socket string
	mpi    *pmi.Node
	served *servers
	chorus *output.Chorus
	over   context.Context // ends with this part of the world; its cause is the reason
	end    context.CancelCauseFunc

	mu sync.Mutex
	// crews are the local ranks of the run's world and of each spawned job; guarded by mu.
	crews []*ranks.Crew
	taken []int // rank in each slot, -1 if free; guarded by mu
}

// Open opens the rendezvous of this node's ranks with the others, until ctx ends. Run starts the
// ranks.
func Open(ctx context.Context, cfg Config) *Node {
	n := &Node{cfg: cfg, plan: ranks.PlanOf(cfg.Record)}
	n.over, n.end = context.WithCancelCause(ctx)
	hosts := cfg.Record.Hosts
	// Join the rendezvous, then create the MPI servers and the output of the ranks on top of it.
	n.meet, n.socket = meeting.Join(meeting.Config{
		Place: n.plan.Place(cfg.Place, hosts), World: func() meeting.World { return n.plan.World(hosts) },
		Dial: cfg.Dial, Linked: n.linked, Log: cfg.Log,
		Abort: ranks.Asked(cfg.Host, n.end), Met: cfg.Trail.Met, Doing: n.doing,
		Do: func(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
			return n.mpi.Do(ctx, node, name, data)
		},
	}, cfg.Private, cfg.Background)
	n.mpi = pmi.NewNode(n.meet, cfg.Place, n)
	if !cfg.World.GoOn {
		n.mpi.Patience = deathTime
	}
	n.served = newServers(n)
	n.chorus = output.New(output.Config{
		Out: cfg.Files.Out, Err: cfg.Files.Err, Mode: cfg.World.Output, Tag: cfg.World.Tag, Host: cfg.Host, Ranks: n.plan.Ranks(), Merge: cfg.World.Merge,
	})
	return n
}

// linked calls [Config.Linked] for a request of a rank, or of another program if rank is -1. If a
// rank's request fails, the job was launched wrongly, and linked ends it.
func (n *Node) linked(ctx context.Context, rank int) error {
	err := n.cfg.Linked(ctx)
	if err != nil && ctx.Err() == nil && rank >= 0 {
		n.end(err)
	}
	return err
}

// deathTime is the delay before a failed collective operation of MPI returns. If another rank has
// died, the job ends in this time, with this death as the cause.
const deathTime = 5 * time.Second

// Socket returns the path of the Unix socket at which programs of this node reach the rendezvous.
// It is empty if there is none.
func (n *Node) Socket() string { return n.socket }

// Run runs the ranks of this node. When all have ended, it calls ended with their exits, and
// continues for the ranks of spawned jobs. It returns the failure of the first rank that failed, or
// the cause of the end of this part of the world. A start in progress at that time continues until
// starting ends.
func (n *Node) Run(starting context.Context, ended func(exits []signal.RankExit) error) error {
	defer n.end(nil)
	if err := n.serve(starting); err != nil {
		return err
	}
	crew := n.crew(n.plan, nil)
	crew.Play = n.cfg.Play.Ranks
	n.cfg.Background(func(ctx context.Context) { n.served.lone.watch(ctx) })
	n.cfg.Background(n.watchSruns)
	exits, err := crew.Run(n.over, starting)
	if err != nil {
		return err
	}
	n.served.sweep(n.cfg.Job)
	if err := ended(exits); err != nil {
		return err
	}
	// Continue for spawned ranks until this part of the world ends.
	<-n.over.Done()
	return context.Cause(n.over)
}

// serve starts the MPI servers for this node's ranks. A simulation has none.
func (n *Node) serve(ctx context.Context) error {
	if n.cfg.Play.Ranks != nil {
		return nil
	}
	if err := n.served.start(ctx); err != nil {
		return err
	}
	return n.mpi.Add(ctx, JobOf(n.plan, n.cfg.Record, n.cfg.Job))
}

// Running returns the ranks that are running on this node.
func (n *Node) Running() (running []why.Rank) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, crew := range n.crews {
		running = append(running, crew.Running()...)
	}
	return running
}

// watchSruns warns about the first srun for which a rank waits forever, such as one that the rank's
// mpirun has started.
func (n *Node) watchSruns(ctx context.Context) {
	if !n.cfg.Identity.Launcher.Traits().Steps || n.cfg.Play.Ranks != nil {
		return
	}
	ctx, told := context.WithCancel(ctx)
	defer told()
	remote.WatchWaits(ctx, func() []remote.Wait {
		owners := make(map[int]string)
		for _, rank := range n.Running() {
			owners[rank.PID] = fmt.Sprintf("rank %d on %s", rank.Rank, n.cfg.Host)
		}
		return remote.Sruns(process.Tree(os.Getpid()), owners, remote.MendOfRanks)
	}, func(words string) {
		n.cfg.Log.Warn(words)
		told()
	})
}

// doing describes the current activity of the nodes of these ranks, or of all nodes if these nodes
// cannot be selected by name.
func (n *Node) doing(ctx context.Context, of []int) string {
	ctx, cancel := context.WithTimeout(ctx, sightTime)
	defer cancel()
	picture, err := why.Told(ctx, n.cfg.Dir, n.named(of)...)
	if err != nil {
		return "cannot tell what they are doing: " + err.Error()
	}
	return strings.TrimSpace(picture)
}

// mostNamed is the maximum number of nodes that are described. The first nodes are sufficient in a
// log; users can request the others.
const mostNamed = 16

// named returns flags that select the first nodes of these ranks. It returns nil if several nodes
// share a host, or for spawned ranks.
func (n *Node) named(of []int) (flags []string) {
	hosts, nodes := n.cfg.Record.Hosts, n.plan.NodeOf()
	if !slices.Equal(distinct(hosts), hosts) {
		return nil
	}
	for _, rank := range of {
		if rank >= len(nodes) {
			return nil
		}
		if len(flags) == mostNamed {
			break
		}
		if flag := "--node=" + hosts[nodes[rank]]; !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return flags
}

// sightTime limits the time for describing the activity of ranks.
const sightTime = 20 * time.Second

// Close stops the MPI servers of this node. All its ranks must have ended. It then writes the
// remaining output of the ranks, until ctx ends.
func (n *Node) Close(ctx context.Context) error {
	n.served.stop()
	return n.chorus.Close(ctx)
}

// JobName returns the name of a run's world for MPI. The name is a secret, and unique: MPICH
// derives names of shared memory from it, and trusts the contents that it finds there, even those
// of a killed job.
func JobName(run, nonce string) string {
	sum := sha256.Sum256([]byte("the name of a job for MPI " + nonce))
	return pmi.NewName("bringupd-"+run, [24]byte(sum[:]))
}

// JobOf returns the world with which a run begins, as an MPI job with this name.
func JobOf(plan ranks.Plan, record *signal.RanksRecord, name string) *pmi.Job {
	job := &pmi.Job{Name: name, Hosts: distinct(record.Hosts), Nodes: plan.NodeOf()}
	for _, slots := range record.Slots {
		job.Universe += slots
	}
	job.Universe = max(job.Universe, len(job.Nodes))
	return job
}

// crew returns the part of a plan's ranks that run on this node, ready to start. spawned describes
// the spawn, and is nil for the world with which the run begins.
func (n *Node) crew(plan ranks.Plan, spawned *spawned) *ranks.Crew {
	cfg := &n.cfg
	local := plan.On(cfg.Place)
	kit := ranks.Kit{
		Argv: cfg.Driver, Base: cfg.Base(), Plan: plan, Places: n.places(local, spawned != nil), Own: cfg.World.Env,
		At: ranks.Meeting{Address: cfg.Record.Master, Port: cfg.Record.MasterPort, Run: filepath.Base(cfg.Dir)},
	}
	crew := &ranks.Crew{
		Ranks: local, Node: cfg.Host, GoOn: cfg.World.GoOn, Strict: cfg.World.BindStrict, Children: cfg.Children, Background: cfg.Background,
		Log: cfg.Log, Meet: n.meet,
		Fit: func(ctx context.Context, rank ranks.Rank) (ranks.Fit, error) {
			given, err := n.served.give(ctx, spawned.proc(rank, cfg.Job))
			if err != nil {
				return ranks.Fit{}, err
			}
			fit := kit.Fit(rank, given.env)
			fit.Files, fit.Parted = given.files, given.parted
			if cfg.World.GoOn { // otherwise the end of this rank ends all ranks
				fit.Died = n.served.tellOf(spawned.proc(rank, cfg.Job))
			}
			fit.Out, fit.Err = n.chorus.Writer(rank.Rank, false), n.chorus.Writer(rank.Rank, true)
			fit.Done = func() { n.chorus.End(rank.Rank) }
			if rank.Rank == cfg.World.Stdin {
				fit.In = cfg.Files.In
			}
			spawned.fit(&fit, rank)
			return fit, nil
		},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.crews = append(n.crews, crew)
	return crew
}

// places returns the bindings of ranks. The initial ranks of the run share the whole node. Spawned
// ranks get one free slot each; ranks for which no slot is free are not bound.
func (n *Node) places(local []ranks.Rank, spawned bool) []binding.Place {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Assign free slots, also to the initial ranks, so that spawned ranks get others.
	if n.taken == nil {
		n.taken = slices.Repeat([]int{-1}, max(n.slots(), len(local)))
	}
	slots := n.cfg.Layout.Assign(max(len(n.taken), 1), n.cfg.Kinds)
	places := make([]binding.Place, len(local))
	for i, rank := range local {
		if free := slices.Index(n.taken, -1); free >= 0 {
			n.taken[free], places[i] = rank.Rank, slots[free]
		}
	}
	if !spawned {
		return n.cfg.Layout.Assign(len(local), n.cfg.Kinds)
	}
	return places
}

func (n *Node) slots() int {
	if n.cfg.Place < len(n.cfg.Record.Slots) {
		// slots returns the maximum number of ranks of this node.
		return n.cfg.Record.Slots[n.cfg.Place]
	}
	return n.plan.Local(n.cfg.Place)
}

// spawned is a job that a rank has spawned, with the spawn request.
type spawned struct {
	job *pmi.Job
	pmi.Spawn
}

// proc returns the identity of a rank in MPI. world is the name of the run's world.
func (s *spawned) proc(rank ranks.Rank, world string) pmi.Proc {
	if s == nil {
		return pmi.Proc{Job: world, Rank: rank.Rank}
	}
	return pmi.Proc{Job: s.job.Name, Rank: rank.Rank - s.job.First}
}

// fit applies the command, directory and variables of the spawn request to fit.
func (s *spawned) fit(fit *ranks.Fit, rank ranks.Rank) {
	if s == nil {
		return
	}
	command := s.Commands[s.job.App(rank.Rank-s.job.First)]
	fit.Argv, fit.Dir, fit.In = command.Argv, command.Dir, nil
	fit.Env = append(fit.Env, command.Env...)
}

// Start starts the ranks of a spawned job that run on this node. It returns when they have been
// started or one could not be started.
func (n *Node) Start(_ context.Context, job *pmi.Job, s pmi.Spawn) error {
	crew := n.crew(ranks.Spread(job.Nodes, len(job.Hosts), job.First), &spawned{job, s})
	started := make(chan error, 1)
	crew.Started = func(err error) { started <- err }
	n.cfg.Background(func(ctx context.Context) {
		if _, err := crew.Run(n.over, n.over); err != nil {
			n.end(err)
			return
		}
		n.free(crew, job.Name)
		if err := n.mpi.Ended(ctx, job.Name); err != nil {
			n.cfg.Log.Warn("cannot tell that spawned ranks have ended", zap.Error(err))
		}
	})
	return <-started
}

// free releases the slots of a spawned job after its ranks on this node have ended.
func (n *Node) free(crew *ranks.Crew, job string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.served.sweep(job)
	n.crews = slices.DeleteFunc(n.crews, func(c *ranks.Crew) bool { return c == crew })
	for slot, taken := range n.taken {
		if slices.ContainsFunc(crew.Ranks, func(r ranks.Rank) bool { return r.Rank == taken }) {
			n.taken[slot] = -1
		}
	}
}

// Add serves MPI to the ranks of a job on this node.
func (n *Node) Add(ctx context.Context, job *pmi.Job) error { return n.served.add(ctx, job) }

// Modex returns the data that a rank of this node has committed.
func (n *Node) Modex(ctx context.Context, of pmi.Proc) ([]byte, error) {
	return n.served.modex(ctx, of)
}

// Tell notifies the ranks of this node of an event on another node.
func (n *Node) Tell(ctx context.Context, event pmi.Event) error { return n.served.tell(ctx, event) }

// Remove stops serving a job that has ended.
func (n *Node) Remove(ctx context.Context, job string) error { return n.served.remove(ctx, job) }
