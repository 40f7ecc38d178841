package world

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Reasons for rejecting requests of ranks that exchange data.
const (
	NoDataExchange = "cannot exchange data between ranks (put, get, fence, MPI)"
	NoPeerLinks    = NoDataExchange + ": this run has no peer links; remove --lifeline=off, " +
		"or see the head's log for the reason"
)

// HeadConfig configures the head's side of a world.
type HeadConfig struct {
	LayoutRequest ranks.LayoutRequest
	Plan          ranks.Plan
	// MaxRanks is the number of ranks that the wish permits on each node.
	MaxRanks   []int
	Hosts      []string
	Master     ranks.Master
	JobName    string // see [ID]
	Environ    []string
	Trail      *eventlog.EventLog
	Log        *zap.Logger
	Background func(task func(ctx context.Context))
}

// Head is the head's side of a world: it serves the ranks' requests that involve several nodes.
type Head struct {
	Record     *record.Placement // plan of the world, for all nodes
	Rendezvous *rendezvous.Head  // head's side of the rendezvous
	mpi        *pmi.Head
}

// MakePlan sets Plan and the port of the master address, from the other fields. It logs a warning if
// nodes run different numbers of ranks; nodeNames names the nodes in these places. The port is
// reserved until end ends.
func (cfg *HeadConfig) MakePlan(end context.Context, nodeNames func(places []int) string) (err error) {
	if cfg.Plan, err = ranks.MakePlan(cfg.LayoutRequest, cfg.MaxRanks); err != nil {
		return health.NewFailure(health.Launch, "%v", err)
	}
	if uneven := cfg.Plan.DescribeUneven(nodeNames); uneven != "" &&
		cfg.LayoutRequest.Total == 0 { // a user who has requested a total expects that
		cfg.Log.Warn(uneven)
	}
	var release func()
	if cfg.Master.Port, release, err = ranks.HoldPort(); err != nil {
		return health.NewFailure(health.Launch, "%v", err)
	}
	cfg.Background(func(context.Context) {
		<-end.Done()
		release()
	})
	return nil
}

// Placement returns the record of the plan.
func (cfg *HeadConfig) Placement() *record.Placement {
	record := cfg.Plan.Record()
	record.Hosts, record.MasterAddress, record.MasterPort = cfg.Hosts, cfg.Master.Address, cfg.Master.Port
	record.RestartCount, record.MaxRestarts = cfg.Master.RestartCount, cfg.Master.MaxRestarts
	for place, room := range cfg.MaxRanks {
		if cfg.LayoutRequest.MaxPerNode > 0 {
			room = cfg.LayoutRequest.MaxPerNode
		}
		record.Slots = append(record.Slots, max(room, cfg.Plan.LocalCount(place)))
	}
	return record
}

// NewHead returns the head's side of a world. It logs a warning if a Slurm step does not
// use all nodes of its job.
func NewHead(cfg HeadConfig) *Head {
	record := cfg.Placement()
	if idle := launcher.IdleNodesHint(launcher.EnvironmentOf(cfg.Environ)); idle != "" {
		cfg.Log.Warn(idle)
	}
	h := &Head{Record: record, Rendezvous: rendezvous.NewHead(cfg.Plan.RendezvousLayout(cfg.Hosts), cfg.Log)}
	h.mpi = pmi.NewHead(pmi.HeadConfig{
		Nodes: h.Rendezvous, InitialJob: InitialJob(cfg.Plan, record, cfg.JobName), Slots: record.Slots,
		Oversubscribe: cfg.LayoutRequest.Oversubscribe,
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
// the cause.
func (h *Head) AwaitSpawned(ctx context.Context) error { return h.mpi.AwaitSpawnedJobs(ctx) }

// ExitCode returns the exit code of a world after its ranks on these nodes have ended, and the reason
// for it. goOn states that a rank may have failed: otherwise that would have ended the run.
func (h *Head) ExitCode(ctx context.Context, dir *signal.Dir, nodes []int,
	goOn bool) (code int, why string, err error) {
	var failed []record.RankExit
	for _, node := range nodes {
		if !goOn {
			break
		}
		var rec record.RanksEnded
		if err := dir.ReadRecord(ctx, signal.NodesDir, dir.NodeName(node, record.StateRanksEnded), &rec); err != nil {
			return 0, "", err
		}
		failed = append(failed, ranks.FailedExits(rec.Exits)...)
	}
	code, why = ranks.WorldExitCode(failed, ranks.PlanFromRecord(h.Record).RankCount())
	return code, why, nil
}
