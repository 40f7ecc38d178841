package world

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// HeadConfig configures the head's side of a world.
type HeadConfig struct {
	Wish ranks.Wish
	Plan ranks.Plan
	// Room is the number of ranks that the wish permits on each node.
	Room       []int
	Hosts      []string
	Master     ranks.Meeting
	Job        string // name of the world for MPI; see JobName
	Environ    []string
	Trail      *trail.Trail
	Log        *zap.Logger
	Background func(task func(ctx context.Context))
}

// Head is the head's side of a world: it serves the ranks' requests that involve several nodes.
type Head struct {
	Record *signal.RanksRecord // plan of the world, for all nodes
	Meet   *meeting.Head       // head's side of the rendezvous
	mpi    *pmi.Head
}

// NewHead returns the head's side of a world. It logs a warning if a Slurm step does not
// use all nodes of its job.
func NewHead(cfg HeadConfig) *Head {
	record := cfg.Plan.Record()
	record.Hosts, record.Master, record.MasterPort = cfg.Hosts, cfg.Master.Address, cfg.Master.Port
	for place, room := range cfg.Room {
		if cfg.Wish.Slots > 0 {
			room = cfg.Wish.Slots
		}
		record.Slots = append(record.Slots, max(room, cfg.Plan.Local(place)))
	}
	if idle := roles.Idle(roles.EnvironmentOf(cfg.Environ)); idle != "" {
		cfg.Log.Warn(idle)
	}
	h := &Head{Record: record, Meet: meeting.NewHead(cfg.Plan.World(cfg.Hosts), cfg.Log)}
	h.mpi = pmi.NewHead(pmi.HeadConfig{
		Nodes: h.Meet, World: JobOf(cfg.Plan, record, cfg.Job), Slots: record.Slots, Oversubscribe: cfg.Wish.Oversubscribe,
		// Log the nodes of each spawned job.
		Spawned: func(job *pmi.Job) {
			plan := ranks.Spread(job.Nodes, len(job.Hosts), job.First)
			cfg.Log.Info(cfg.Trail.Spawned(h.mpi.Number(*job.Parent), job.First, len(job.Nodes), plan.Used(cfg.Hosts)))
		},
	})
	h.Meet.Offer(h.mpi.Do, cfg.Background)
	return h
}

// Await waits until the ranks of all spawned jobs have ended. If ctx ends first, it returns the
// cause.
func (h *Head) Await(ctx context.Context) error { return h.mpi.Await(ctx) }
