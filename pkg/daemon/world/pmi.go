package world

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

// mpiServers serve MPI to the ranks of this node, through PMI-1 and PMIx at the same time. The MPI
// library of a rank selects the protocol. They also serve rapidsmpf.
type mpiServers struct {
	node         *Node
	pmix         *pmix.Server    // nil if PMIx is not served
	noPMIxReason string          // reason why PMIx is not served
	rrun         *pmi.RrunServer // nil if rapidsmpf is not served
	singletons   *singletonDetector
	handlers     pmi.Handlers

	mu     sync.Mutex
	spaces map[string]*pmi.PMI1Server // PMI-1 servers by job; guarded by mu
	jobs   map[string]*pmi.Job        // jobs by name; guarded by mu
}

func newMPIServers(n *Node) *mpiServers {
	s := &mpiServers{
		node: n, singletons: newSingletonDetector(n),
		spaces: make(map[string]*pmi.PMI1Server), jobs: make(map[string]*pmi.Job),
	}
	s.handlers = pmi.Handlers{
		Node: n.cfg.NodeIndex, Peers: peerNodes{n.mpi, n},
		AwaitLink: func(ctx context.Context, by pmi.ProcID) error { return n.requireLink(ctx, n.mpi.RunNumber(by)) },
		AbortJob: func(by pmi.ProcID, code int, words string) {
			n.rendezvous.AbortJob(n.mpi.RunNumber(by), code, words)
		},
	}
	return s
}

type rankResources struct {
	env                 map[string]string
	files               []*os.File
	describeUnfinalized func() string // see ranks.RankSpec
}

// startPMIx waits for the PMIx server and connects it with this world. The server runs until stop,
// because it also removes files that ranks leave behind. Without libpmix, ranks have only PMI-1,
// which some MPI libraries do not support; this is an error only if PMIx was requested explicitly.
func (s *mpiServers) startPMIx(ctx context.Context) error {
	cfg := &s.node.cfg
	server, err := cfg.PMIx.awaitServer(ctx)
	switch {
	case err != nil && cfg.World.PMIx != pmix.Auto:
		return health.NewFailure(health.Launch, "cannot serve MPI on %s: %v", cfg.Identity.Host, err)
	case err != nil:
		s.noPMIxReason = err.Error()
		return nil
	case server == nil:
		s.noPMIxReason = cfg.PMIx.reason
		return nil
	}
	s.pmix = server
	server.SetHandlers(pmix.Handlers{Handlers: s.handlers, PrintOutput: s.writeOutput})
	// A failure of the server ends the run.
	cfg.Background(func(ctx context.Context) {
		if ctxutil.AwaitDone(ctx, server.Done()) && server.Err() != nil {
			s.node.end(health.NewFailure(health.ServiceDied, "cannot serve MPI on %s any more: %v",
				cfg.Identity.Host, server.Err()))
		}
	})
	return nil
}

// startRrun starts the server for rapidsmpf, which is one listener until a rank uses it. Ranks that
// do not use it can run without it. There is none if the network is simulated, because a process
// could not connect.
func (s *mpiServers) startRrun() {
	cfg := &s.node.cfg
	if cfg.Network != (peerlink.TCP{}) {
		return
	}
	server, err := pmi.ListenRrun(s.handlers)
	if err != nil {
		cfg.Log.Warn("ranks of this node can't use rapidsmpf", zap.Error(err))
		return
	}
	s.rrun = server
	cfg.Background(server.Run)
}

func (s *mpiServers) stopPMIx() {
	if s.pmix != nil {
		s.pmix.Stop()
	}
}

// peerNodes handles the servers' requests that involve other nodes. A failed spawn request ends the
// job, as with mpirun, because the ranks that wait for its result may hang, such as the other ranks
// under Open MPI 4 and the pools of mpi4py.
type peerNodes struct {
	*pmi.Node
	node *Node
}

// SpawnJob starts ranks on behalf of a rank. See [pmi.Node.Spawn].
func (p peerNodes) SpawnJob(ctx context.Context, s pmi.SpawnRequest) (string, error) {
	name, err := p.Node.SpawnJob(ctx, s)
	if err != nil && ctx.Err() == nil {
		p.node.end(health.NewFailure(health.Launch, "%s: %v", p.node.rankName(p.RunNumber(s.Requester)), err))
	}
	return name, err
}

// writeOutput writes text that a rank prints through its PMIx server.
func (s *mpiServers) writeOutput(by pmi.ProcID, text string, isErr bool) {
	if out := s.node.output(s.node.mpi.RunNumber(by), isErr); out != nil {
		_, _ = out.Write([]byte(text))
	}
}

// AddJob serves MPI to the ranks of a job on this node.
func (s *mpiServers) AddJob(ctx context.Context, job *pmi.Job) error {
	space := pmi.NewPMI1Server(pmi.PMI1Config{Handlers: s.handlers, Job: job, Log: s.node.cfg.Log})
	s.mu.Lock()
	s.spaces[job.Name], s.jobs[job.Name] = space, job
	s.mu.Unlock()
	if s.rrun != nil {
		s.rrun.AddJob(job)
	}
	if s.pmix == nil {
		return nil
	}
	return s.pmix.AddJob(ctx, job)
}

// RemoveJob stops serving a job that has ended.
func (s *mpiServers) RemoveJob(ctx context.Context, job string) error {
	s.mu.Lock()
	delete(s.spaces, job)
	delete(s.jobs, job)
	s.mu.Unlock()
	if s.rrun != nil {
		s.rrun.RemoveJob(job)
	}
	if s.pmix == nil {
		return nil
	}
	return s.pmix.RemoveJob(ctx, job)
}

func (s *mpiServers) removeSharedMemory(job string) {
	s.mu.Lock()
	space := s.spaces[job]
	s.mu.Unlock()
	if space == nil {
		return
	}
	if err := space.RemoveSharedMemory(); err != nil {
		s.node.cfg.Log.Warn("cannot remove shared memory files of MPI ranks", zap.Error(err))
	}
}

// FetchModex returns the data that a rank of this node has committed through PMIx.
func (s *mpiServers) FetchModex(ctx context.Context, of pmi.ProcID) ([]byte, error) {
	if s.pmix == nil {
		return nil, fmt.Errorf("cannot get the committed data of %v: PMIx is not served on %s: %w", of,
			s.node.cfg.Identity.Host, pmi.NotSupported)
	}
	return s.pmix.FetchModex(ctx, of)
}

// NotifyRanks notifies the ranks of this node of an event on another node. PMI-1 has no events.
func (s *mpiServers) NotifyRanks(ctx context.Context, event pmi.Event) error {
	if s.pmix == nil {
		return nil
	}
	return s.pmix.NotifyRanks(ctx, event)
}

// deathNotifier returns a function that notifies the ranks of all nodes that a rank has died, in
// case they continue. It returns nil if PMIx is not served.
func (s *mpiServers) deathNotifier(rank pmi.ProcID) func(status int) {
	if s.pmix == nil {
		return nil
	}
	return func(status int) {
		s.node.cfg.Background(func(ctx context.Context) {
			if err := s.pmix.ReportDeath(ctx, rank, status); err != nil {
				s.node.cfg.Log.Debug("cannot notify ranks of the end of another", zap.Error(err))
			}
		})
	}
}

// endDetectionTimeout is how long to wait until the PMI-1 server has detected the end of a rank.
const endDetectionTimeout = time.Second

// prepareRank returns the environment and file descriptors with which a rank finds its servers, and
// starts to serve PMI-1 to it.
func (s *mpiServers) prepareRank(ctx context.Context, rank pmi.ProcID) (g rankResources, err error) {
	s.mu.Lock()
	space, job := s.spaces[rank.Job], s.jobs[rank.Job]
	s.mu.Unlock()
	if space == nil { // only in a simulation
		return rankResources{}, nil
	}
	const fd = 3 // the first of the rank's additional file descriptors
	g.env = pmi.PMI1Environ(job, rank.Rank, fd)
	// PMIx and rapidsmpf are found through environment variables.
	if s.rrun != nil {
		maps.Copy(g.env, s.rrun.RankEnviron(rank))
	}
	if s.pmix != nil {
		list, err := s.pmix.RankEnviron(ctx, rank)
		if err != nil {
			return rankResources{}, fmt.Errorf("cannot serve PMIx to rank %d: %w", job.FirstNumber+rank.Rank, err)
		}
		maps.Copy(g.env, ranks.ParseVariables(list))
		maps.Copy(g.env, s.openMPIHints(len(job.LocalRanks(s.node.cfg.NodeIndex))))
	}
	// PMI-1 uses a socket pair; one end is a file descriptor of the rank.
	server, client, err := pmi.NewConnPair()
	if err != nil {
		return rankResources{}, fmt.Errorf("cannot serve PMI-1 to rank %d: %w", job.FirstNumber+rank.Rank, err)
	}
	g.files = []*os.File{client}
	var parting pmi.SessionState
	left := make(chan struct{})
	s.node.cfg.Background(func(ctx context.Context) {
		defer close(left)
		parting = space.ServeRank(ctx, rank.Rank, server)
	})
	// After the rank's end, verify that it has finalized MPI.
	s.singletons.recordEnv(rank, g.env)
	g.describeUnfinalized = func() string {
		s.singletons.checkEndedRank(rank)
		if ctxutil.AwaitDoneFor(left, endDetectionTimeout) && parting.Initialized && !parting.Finalized ||
			s.isUnfinalized(rank) {
			return "and has not called MPI_Finalize"
		}
		return ""
	}
	return g, nil
}

func (s *mpiServers) hasContacted(rank pmi.ProcID) bool {
	s.mu.Lock()
	space := s.spaces[rank.Job]
	s.mu.Unlock()
	if space != nil && space.HasInitialized(rank.Rank) {
		return true
	}
	if s.pmix == nil {
		return false
	}
	spoke, _ := s.pmix.ClientState(rank)
	return spoke
}

// isUnfinalized reports whether a rank has initialised PMIx and not finalized it.
func (s *mpiServers) isUnfinalized(rank pmi.ProcID) bool {
	if s.pmix == nil {
		return false
	}
	spoke, finalized := s.pmix.ClientState(rank)
	return spoke && !finalized
}

// openMPIHints returns variables for Open MPI 4. Without a variable of a launcher that it knows,
// Open MPI 4 runs as a world of one rank; JSM's variable has no other effect. If several daemons
// share a host, Open MPI 4 regards the ranks of all of them as local, because it compares host
// names, and crashes in shared memory; so its shared-memory transport is disabled. If this node has
// more local ranks than cores, waiting ranks must yield the processor.
func (s *mpiServers) openMPIHints(local int) map[string]string {
	hints := map[string]string{"JSM_JSRUN_PORT": "1"}
	if s.node.cfg.Identity.LocalSize > 1 {
		hints["OMPI_MCA_btl"] = "^vader"
	}
	if cores := s.node.cfg.Layout.CountSlots(affinity.PerCore); cores > 0 && local > cores {
		hints["OMPI_MCA_mpi_yield_when_idle"] = "1"
	}
	return hints
}
