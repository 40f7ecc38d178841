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

// servers are who serve MPI to the ranks of this node, in each protocol at once: which of them a rank speaks is the affair of the MPI that it
// was linked with.
type servers struct {
	n    *Node
	pmix *pmix.Server // nil: there is none
	why  string       // why there is none
	lone *lone

	mu     sync.Mutex
	spaces map[string]*pmi1.Space // by job, guarded by mu
	jobs   map[string]*pmi.Job    // guarded by mu
}

func newServers(n *Node) *servers {
	return &servers{n: n, lone: newLone(n), spaces: make(map[string]*pmi1.Space), jobs: make(map[string]*pmi.Job)}
}

// given is what a rank gets of them.
type given struct {
	env    map[string]string
	files  []*os.File
	parted func() string // see ranks.Fit
}

// start has ranks served PMIx by the server that was begun before, where there is one. It goes on until stop: when ranks have ended, it removes
// what they leave. Without a libpmix ranks have PMI-1 alone, which not every MPI speaks: that is an error only where one was asked for.
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
	cfg.Background(func(ctx context.Context) {
		if pause.Await(ctx, server.Done()) && server.Err() != nil {
			s.n.end(health.Failed(health.ServiceDied, "cannot serve MPI on %s any longer: %v", cfg.Host, server.Err()))
		}
	})
	return nil
}

// stop ends the server of PMIx.
func (s *servers) stop() {
	if s.pmix != nil {
		s.pmix.Stop()
	}
}

// peers are the other nodes, as the ranks' servers ask them. When there can be no spawn, those that wait for it may hang, as Open MPI 4's other
// ranks and mpi4py's pools do, and mpirun ends the job: so do we.
type peers struct {
	*pmi.Node
	n *Node
}

func (p peers) Spawn(ctx context.Context, s pmi.Spawn) (string, error) {
	name, err := p.Node.Spawn(ctx, s)
	if err != nil && ctx.Err() == nil {
		p.n.end(health.Failed(health.Launch, "rank %d on %s: %v", p.Number(s.By), p.n.cfg.Host, err))
	}
	return name, err
}

// print passes on what a rank has its server print.
func (s *servers) print(by pmi.Proc, text string, isErr bool) {
	_, _ = s.n.chorus.Writer(s.n.mpi.Number(by), isErr).Write([]byte(text))
}

// add has a job served here.
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

// remove forgets a job that is over.
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

// sweep removes what ranks of a job may have left on this node.
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

func (s *servers) modex(ctx context.Context, of pmi.Proc) ([]byte, error) {
	if s.pmix == nil {
		return nil, fmt.Errorf("cannot tell what %v has committed: PMIx is not served on %s: %w", of, s.n.cfg.Host, pmi.NotSupported)
	}
	return s.pmix.Modex(ctx, of)
}

func (s *servers) tell(ctx context.Context, event pmi.Event) error {
	if s.pmix == nil {
		return nil
	}
	return s.pmix.Tell(ctx, event)
}

// tellOf returns what tells the other ranks, of all nodes, that one has died: those that go on may want to know.
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

// partingTime is how long who serves a rank may take to hear of its end.
const partingTime = time.Second

// give makes what a rank finds its servers by.
func (s *servers) give(ctx context.Context, rank pmi.Proc) (g given, err error) {
	s.mu.Lock()
	space, job := s.spaces[rank.Job], s.jobs[rank.Job]
	s.mu.Unlock()
	if space == nil { // a simulation
		return given{}, nil
	}
	const fd = 3 // the first of its files
	g.env = pmi1.Environ(job, rank.Rank, fd)
	if s.pmix != nil {
		list, err := s.pmix.Fork(ctx, rank)
		if err != nil {
			return given{}, fmt.Errorf("cannot serve PMIx to rank %d: %w", job.First+rank.Rank, err)
		}
		maps.Copy(g.env, ranks.Told(list))
		maps.Copy(g.env, s.hints(len(job.Local(s.n.cfg.Place))))
	}
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

// spoke tells whether a rank has come to either of its servers.
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

// stays tells whether a rank has come up by PMIx, and never taken its leave.
func (s *servers) stays(rank pmi.Proc) bool {
	if s.pmix == nil {
		return false
	}
	spoke, finalized := s.pmix.Spoke(rank)
	return spoke && !finalized
}

// hints tell Open MPI 4 that it was launched: without any of a launcher that it knows it takes itself for a world of one. JSM's is the one that
// makes nothing else of it. Where daemons share a machine, it takes the ranks of others for its own's, by the machine's name, and crashes in
// shared memory. Where this node has more local ranks than cores, those that wait must let others run.
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
