package world

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks"
)

// servers serve MPI to the ranks of this node, through PMI-1 and PMIx at the same time. The MPI
// library of a rank selects the protocol.
type servers struct {
	n    *Node
	pmix *pmix.Server // nil if PMIx is not served
	why  string       // reason why PMIx is not served
	lone *lone

	mu     sync.Mutex
	spaces map[string]*pmi1.Space // PMI-1 servers by job; guarded by mu
	jobs   map[string]*pmi.Job    // jobs by name; guarded by mu
}

func newServers(n *Node) *servers {
	return &servers{n: n, lone: newLone(n), spaces: make(map[string]*pmi1.Space), jobs: make(map[string]*pmi.Job)}
}

// given contains what a rank needs to find its servers.
type given struct {
	env    map[string]string
	files  []*os.File
	parted func() string // see ranks.Fit
}

// start waits for the PMIx server and connects it with this world. The server runs until stop,
// because it also removes files that ranks leave behind. Without libpmix, ranks have only PMI-1,
// which some MPI libraries do not support; this is an error only if PMIx was requested explicitly.
func (s *servers) start(ctx context.Context) error {
	cfg := &s.n.cfg
	server, err := cfg.PMIx.await(ctx)
	switch {
	case err != nil && cfg.World.PMIx != pmix.Auto:
		return health.Failed(health.Launch, "cannot serve MPI on %s: %v", cfg.Host, err)
	case err != nil:
		cfg.Log.Info("ranks are served PMI-1 and no PMIx, which Open MPI needs", zap.Error(err))
		s.why = err.Error()
		return nil
	case server == nil:
		s.why = cfg.PMIx.why
		return nil
	}
	s.pmix = server
	server.Serve(pmix.Clients{
		Node: cfg.Place, Peers: s.n.mpi, Jobs: peers{s.n.mpi, s.n}, Said: s.print,
		Linked: func(ctx context.Context, by pmi.Proc) error {
			return s.n.linked(ctx, s.n.mpi.Number(by))
		},
		Abort: func(by pmi.Proc, code int, words string) { s.n.meet.Abort(s.n.mpi.Number(by), code, words) },
	})
	// A failure of the server ends the run.
	cfg.Background(func(ctx context.Context) {
		if pause.Await(ctx, server.Done()) && server.Err() != nil {
			s.n.end(health.Failed(health.ServiceDied, "cannot serve MPI on %s any longer: %v", cfg.Host, server.Err()))
		}
	})
	return nil
}

// stop ends the PMIx server.
func (s *servers) stop() {
	if s.pmix != nil {
		s.pmix.Stop()
	}
}

// peers handles the servers' requests that involve other nodes. A failed spawn request ends the
// job, as with mpirun, because the ranks that wait for its result may hang, such as the other ranks
// under Open MPI 4 and the pools of mpi4py.
type peers struct {
	*pmi.Node
	n *Node
}

// Spawn starts ranks on behalf of a rank. See [pmi.Node.Spawn].
func (p peers) Spawn(ctx context.Context, s pmi.Spawn) (string, error) {
	name, err := p.Node.Spawn(ctx, s)
	if err != nil && ctx.Err() == nil {
		p.n.end(health.Failed(health.Launch, "rank %d on %s: %v", p.Number(s.By), p.n.cfg.Host, err))
	}
	return name, err
}

// print writes text that a rank prints through its PMIx server.
func (s *servers) print(by pmi.Proc, text string, isErr bool) {
	_, _ = s.n.chorus.Writer(s.n.mpi.Number(by), isErr).Write([]byte(text))
}

// add serves a job's ranks on this node.
func (s *servers) add(ctx context.Context, job *pmi.Job) error {
	own := pmi.Proc{Job: job.Name, Rank: pmi.All}
	space := pmi1.New(pmi1.Config{
		Job: job, Node: s.n.cfg.Place, Peers: peers{s.n.mpi, s.n}, Log: s.n.cfg.Log,
		Linked: func(ctx context.Context, rank int) error {
			return s.n.linked(ctx, job.First+rank)
		},
		Abort: func(rank, code int, words string) { s.n.meet.Abort(job.First+rank, code, words) },
		Entered: func(rank int) {
			s.n.mpi.Entered(pmi.Barrier, []pmi.Proc{own}, pmi.Proc{Job: job.Name, Rank: rank})
		},
	})
	s.mu.Lock()
	s.spaces[job.Name], s.jobs[job.Name] = space, job
	s.mu.Unlock()
	if s.pmix == nil {
		return nil
	}
	return s.pmix.Add(ctx, job)
}

// remove stops serving a job that has ended.
func (s *servers) remove(ctx context.Context, job string) error {
	s.mu.Lock()
	delete(s.spaces, job)
	delete(s.jobs, job)
	s.mu.Unlock()
	if s.pmix == nil {
		return nil
	}
	return s.pmix.Remove(ctx, job)
}

// sweep removes the shared memory that ranks of a job may have left on this node.
func (s *servers) sweep(job string) {
	s.mu.Lock()
	space := s.spaces[job]
	s.mu.Unlock()
	if space == nil {
		return
	}
	if err := space.Sweep(); err != nil {
		s.n.cfg.Log.Warn("cannot remove what MPI ranks have left in shared memory", zap.Error(err))
	}
}

// modex returns the data that a rank of this node has committed through PMIx.
func (s *servers) modex(ctx context.Context, of pmi.Proc) ([]byte, error) {
	if s.pmix == nil {
		return nil, fmt.Errorf("cannot tell what %v has committed: PMIx is not served on %s: %w", of, s.n.cfg.Host, pmi.NotSupported)
	}
	return s.pmix.Modex(ctx, of)
}

// tell notifies the ranks of this node of an event. PMI-1 has no events.
func (s *servers) tell(ctx context.Context, event pmi.Event) error {
	if s.pmix == nil {
		return nil
	}
	return s.pmix.Tell(ctx, event)
}

// tellOf returns a function that notifies the ranks of all nodes that a rank has died, in case they
// continue. It returns nil if PMIx is not served.
func (s *servers) tellOf(rank pmi.Proc) func(status int) {
	if s.pmix == nil {
		return nil
	}
	return func(status int) {
		s.n.cfg.Background(func(ctx context.Context) {
			if err := s.pmix.Died(ctx, rank, status); err != nil {
				s.n.cfg.Log.Debug("cannot tell ranks of the end of another", zap.Error(err))
			}
		})
	}
}

// partingTime is how long to wait until the PMI-1 server has detected the end of a rank.
const partingTime = time.Second

// give returns the environment and file descriptors with which a rank finds its servers, and starts
// to serve PMI-1 to it.
func (s *servers) give(ctx context.Context, rank pmi.Proc) (g given, err error) {
	s.mu.Lock()
	space, job := s.spaces[rank.Job], s.jobs[rank.Job]
	s.mu.Unlock()
	if space == nil { // only in a simulation
		return given{}, nil
	}
	const fd = 3 // the first of the rank's additional file descriptors
	g.env = pmi1.Environ(job, rank.Rank, fd)
	// PMIx is found through environment variables.
	if s.pmix != nil {
		list, err := s.pmix.Fork(ctx, rank)
		if err != nil {
			return given{}, fmt.Errorf("cannot serve PMIx to rank %d: %w", job.First+rank.Rank, err)
		}
		maps.Copy(g.env, ranks.Told(list))
		maps.Copy(g.env, s.hints(len(job.Local(s.n.cfg.Place))))
	}
	// PMI-1 uses a socket pair; one end is a file descriptor of the rank.
	ours, theirs, err := pmi1.Pair()
	if err != nil {
		return given{}, fmt.Errorf("cannot serve PMI-1 to rank %d: %w", job.First+rank.Rank, err)
	}
	g.files = []*os.File{theirs}
	var parting pmi1.Parting
	left := make(chan struct{})
	s.n.cfg.Background(func(ctx context.Context) {
		defer close(left)
		parting = space.Serve(ctx, rank.Rank, ours)
	})
	// After the rank's end, verify that it has finalized MPI.
	s.lone.given(rank, g.env)
	g.parted = func() string {
		s.lone.ended(rank)
		if pause.Until(left, partingTime) && parting.Spoke && !parting.Finalized || s.stays(rank) {
			return "and has not called MPI_Finalize"
		}
		return ""
	}
	return g, nil
}

// spoke reports whether a rank has contacted one of its servers.
func (s *servers) spoke(rank pmi.Proc) bool {
	s.mu.Lock()
	space := s.spaces[rank.Job]
	s.mu.Unlock()
	if space != nil && space.Spoke(rank.Rank) {
		return true
	}
	if s.pmix == nil {
		return false
	}
	spoke, _ := s.pmix.Spoke(rank)
	return spoke
}

// stays reports whether a rank has initialised PMIx and not finalized it.
func (s *servers) stays(rank pmi.Proc) bool {
	if s.pmix == nil {
		return false
	}
	spoke, finalized := s.pmix.Spoke(rank)
	return spoke && !finalized
}

// hints returns variables for Open MPI 4. Without a variable of a launcher that it knows, Open MPI
// 4 runs as a world of one rank; JSM's variable has no other effect. If several daemons share a
// host, Open MPI 4 regards the ranks of all of them as local, because it compares host names, and
// crashes in shared memory; so its shared-memory transport is disabled. If this node has more local
// ranks than cores, waiting ranks must yield the processor.
func (s *servers) hints(local int) map[string]string {
	hints := map[string]string{"JSM_JSRUN_PORT": "1"}
	if s.n.cfg.Identity.LocalSize > 1 {
		hints["OMPI_MCA_btl"] = "^vader"
	}
	if cores := s.n.cfg.Layout.Slots(binding.PerCore); cores > 0 && local > cores {
		hints["OMPI_MCA_mpi_yield_when_idle"] = "1"
	}
	return hints
}
