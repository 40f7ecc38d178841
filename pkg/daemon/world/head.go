package world

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// Reasons for rejecting requests of ranks that exchange data.
const (
	NoDataExchange = "cannot exchange data between ranks (put, get, fence, MPI)"
	NoPeerLinks    = NoDataExchange + ": this run has no peer links; remove --lifeline=off, " +
		"or see the head's log for the reason"
)

// Placement says how many ranks of a world run on each node, and where they meet. The ranks are
// numbered node by node.
type Placement struct {
	PerNode []int // number of ranks of each node
	// Slots is the number of ranks that each node can have, including spawned ones.
	Slots []int
	Hosts []string // the hosts of the nodes
	// MasterAddress is the address of rank 0's node, and MasterPort a port there that is reserved for
	// it.
	MasterAddress string
	MasterPort    int
	// RestartCount is the number of restarts before, and MaxRestarts the maximum.
	RestartCount, MaxRestarts int
}

// HeadConfig configures the head's side of a world.
type HeadConfig struct {
	*Placement
	JobName string // see [ID]
	// Oversubscribe lets ranks spawn more than the nodes have slots for.
	Oversubscribe bool
	Trail         *eventlog.EventLog
	Log           *zap.Logger
	Background    func(task func(ctx context.Context))
}

// Head is the head's side of a world: it serves the ranks' requests that involve several nodes.
type Head struct {
	Rendezvous *rendezvous.Head // head's side of the rendezvous
	RankCount  int              // number of ranks with which the run begins
	mpi        *pmi.Head
}

// NewHead returns the head's side of a world.
func NewHead(cfg HeadConfig) *Head {
	plan := ranks.NewPlan(cfg.PerNode)
	h := &Head{Rendezvous: rendezvous.NewHead(plan.RendezvousLayout(cfg.Hosts), cfg.Log), RankCount: plan.RankCount()}
	h.mpi = pmi.NewHead(pmi.HeadConfig{
		Nodes: h.Rendezvous, InitialJob: InitialJob(plan, cfg.Placement, cfg.JobName), Slots: cfg.Slots,
		Oversubscribe: cfg.Oversubscribe,
		// Log the nodes of each spawned job.
		OnSpawn: func(job *pmi.Job) {
			plan := ranks.PlanSpawned(job.Nodes, len(job.Hosts), job.FirstNumber)
			cfg.Log.Info(cfg.Trail.LogSpawn(h.mpi.RunNumber(*job.Parent), job.FirstNumber, len(job.Nodes),
				plan.UsedHosts(cfg.Hosts)))
		},
	})
	h.Rendezvous.SetCallHandler(h.mpi.HandleCall, cfg.Background)
	return h
}

// AwaitSpawned waits until the ranks of all spawned jobs have ended. If ctx ends first, it returns
// the cause. h may be nil: there are no ranks of flags.
func (h *Head) AwaitSpawned(ctx context.Context) error {
	if h == nil {
		return nil
	}
	return h.mpi.AwaitSpawnedJobs(ctx)
}
