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

// HeadConfig is what the head's side needs.
type HeadConfig struct {
	Wish ranks.Wish
	Plan ranks.Plan
	// Room is how many ranks the wish lets each node have.
	Room       []int
	Hosts      []string
	Master     ranks.Meeting
	Job        string // the world's name for MPI: JobName
	Environ    []string
	Trail      *trail.Trail
	Log        *zap.Logger
	Background func(task func(ctx context.Context))
}

// Head is the head's side of a world.
type Head struct {
	Record *signal.RanksRecord // the plan, for all
	Meet   *meeting.Head       // where ranks meet
	mpi    *pmi.Head
}

// NewHead returns the head's side.
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
		Spawned: func(job *pmi.Job) {
			plan := ranks.Spread(job.Nodes, len(job.Hosts), job.First)
			cfg.Log.Info(cfg.Trail.Spawned(h.mpi.Number(*job.Parent), job.First, len(job.Nodes), plan.Used(cfg.Hosts)))
		},
	})
	h.Meet.Offer(h.mpi.Do, cfg.Background)
	return h
}

// Await waits until the ranks of all spawned jobs have ended, or ctx ends, whose cause it returns.
func (h *Head) Await(ctx context.Context) error { return h.mpi.Await(ctx) }
