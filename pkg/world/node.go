// Package world is a node's part of a world of ranks: which run here, what they are given, where they meet the others, who serves them
// MPI, and those that they spawn.
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

// Config is what a node's part needs.
type Config struct {
	*config.Config
	Record *signal.RanksRecord // the plan
	Place  int                 // of this node in the team
	Host   string
	Dir    string // the run's directory
	Job    string // the world's name for MPI: JobName
	// Base returns the environment that those of ranks are made on top of.
	Base   func() []string
	Layout binding.Node
	Kinds  binding.Kinds // to what ranks are bound

	PMIx     *PMIx
	Children *service.Children
	// Background runs a task that the daemon waits for.
	Background func(task func(ctx context.Context))
	Trail      *trail.Trail
	Log        *zap.Logger
	// Private returns a directory on this node that is this user's alone.
	Private func() (string, error)
	// Dial connects to where ranks meet.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Linked waits until it is known whether this node can reach where ranks meet, or ctx ends. Its
	// error is why it cannot.
	Linked func(ctx context.Context) error
}

// Node is a node's part.
type Node struct {
	cfg    Config
	plan   ranks.Plan
	meet   *meeting.Node
	socket string
	mpi    *pmi.Node
	served *servers
	chorus *output.Chorus
	over   context.Context // ends with the node's part, for a cause
	end    context.CancelCauseFunc

	mu    sync.Mutex
	crews []*ranks.Crew
	taken []int // the rank of each slot, or -1; guarded by mu
}

// Open makes the place where this node's ranks meet the others, as long as ctx goes on.
func Open(ctx context.Context, cfg Config) *Node {
	n := &Node{cfg: cfg, plan: ranks.PlanOf(cfg.Record)}
	n.over, n.end = context.WithCancelCause(ctx)
	hosts := cfg.Record.Hosts
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

// linked is Linked for a rank, or for another program where that is -1. A rank that is refused has
// been launched wrong: the job ends.
func (n *Node) linked(ctx context.Context, rank int) error {
	err := n.cfg.Linked(ctx)
	if err != nil && ctx.Err() == nil && rank >= 0 {
		n.end(err)
	}
	return err
}

// deathTime is how long it may take until a job ends of a rank's death.
const deathTime = 5 * time.Second

// Socket is where programs of this node reach the meeting; empty where there is none.
func (n *Node) Socket() string { return n.socket }

// Run runs the ranks of this node to their end, tells how they have ended, and then goes on for those that are spawned. Its error is the first
// rank's that has failed, or why the node's part ends. A start that has begun then goes on until starting ends, too.
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
	<-n.over.Done()
	return context.Cause(n.over)
}

// serve has this node's ranks served MPI. A simulation has none.
func (n *Node) serve(ctx context.Context) error {
	if n.cfg.Play.Ranks != nil {
		return nil
	}
	if err := n.served.start(ctx); err != nil {
		return err
	}
	return n.mpi.Add(ctx, JobOf(n.plan, n.cfg.Record, n.cfg.Job))
}

// Running are the ranks that run here.
func (n *Node) Running() (running []why.Rank) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, crew := range n.crews {
		running = append(running, crew.Running()...)
	}
	return running
}

// watchSruns warns of the first srun that a rank waits for without an end, as an mpirun of its does.
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

// doing says what the nodes of these ranks are doing; all nodes where these can't be named.
func (n *Node) doing(ctx context.Context, of []int) string {
	ctx, cancel := context.WithTimeout(ctx, sightTime)
	defer cancel()
	picture, err := why.Told(ctx, n.cfg.Dir, n.named(of)...)
	if err != nil {
		return "cannot tell what they are doing: " + err.Error()
	}
	return strings.TrimSpace(picture)
}

// mostNamed is how many nodes are looked at: the first are as good as all for whom a log is for, who can ask for the others.
const mostNamed = 16

// named are the flags that name the first nodes of these ranks: none where hosts have several nodes, or for ranks that were spawned.
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

// sightTime is how long it may take to see what ranks are doing.
const sightTime = 20 * time.Second

// Close ends what serves the ranks of this node, all of which have ended, and passes on what is left of what they have printed, until ctx ends.
func (n *Node) Close(ctx context.Context) error {
	n.served.stop()
	return n.chorus.Close(ctx)
}

// JobName returns the name of a run's world for MPI, which is a secret. It never comes again: MPICH
// names shared memory by it, and trusts what it finds there of a job that was killed.
func JobName(run, nonce string) string {
	sum := sha256.Sum256([]byte("the name of a job for MPI " + nonce))
	return pmi.NewName("bringupd-"+run, [24]byte(sum[:]))
}

// JobOf is the world that a run begins with, as MPI knows it by that name.
func JobOf(plan ranks.Plan, record *signal.RanksRecord, name string) *pmi.Job {
	job := &pmi.Job{Name: name, Hosts: distinct(record.Hosts), Nodes: plan.NodeOf()}
	for _, slots := range record.Slots {
		job.Universe += slots
	}
	job.Universe = max(job.Universe, len(job.Nodes))
	return job
}

// crew are those of a plan's ranks that run here. spawned is by whom they were; nil: the run begins with them.
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
			if cfg.World.GoOn { // else all ranks end by that
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

// places are where ranks are bound: those of the run share the node, those that come later have each a slot that no other has, while there
// are such.
func (n *Node) places(local []ranks.Rank, spawned bool) []binding.Place {
	n.mu.Lock()
	defer n.mu.Unlock()
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
		return n.cfg.Record.Slots[n.cfg.Place]
	}
	return n.plan.Local(n.cfg.Place)
}

// spawned is a job that ranks have spawned, and by what.
type spawned struct {
	job *pmi.Job
	pmi.Spawn
}

// proc is a rank as MPI knows it.
func (s *spawned) proc(rank ranks.Rank, world string) pmi.Proc {
	if s == nil {
		return pmi.Proc{Job: world, Rank: rank.Rank}
	}
	return pmi.Proc{Job: s.job.Name, Rank: rank.Rank - s.job.First}
}

// fit gives a rank what it was spawned with.
func (s *spawned) fit(fit *ranks.Fit, rank ranks.Rank) {
	if s == nil {
		return
	}
	command := s.Commands[s.job.App(rank.Rank-s.job.First)]
	fit.Argv, fit.Dir, fit.In = command.Argv, command.Dir, nil
	fit.Env = append(fit.Env, command.Env...)
}

// Start starts those of a spawned job's ranks that are to run here.
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

// free gives back what ranks have had that have ended.
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

// Add has a job served here.
func (n *Node) Add(ctx context.Context, job *pmi.Job) error { return n.served.add(ctx, job) }

// Modex returns what a rank of this node has committed.
func (n *Node) Modex(ctx context.Context, of pmi.Proc) ([]byte, error) {
	return n.served.modex(ctx, of)
}

// Tell tells the ranks here of an event on another node.
func (n *Node) Tell(ctx context.Context, event pmi.Event) error { return n.served.tell(ctx, event) }

// Remove forgets a job that is over.
func (n *Node) Remove(ctx context.Context, job string) error { return n.served.remove(ctx, job) }
