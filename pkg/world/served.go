package world

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1"
)

// servers are who serve MPI to the ranks of this node, in each protocol at once: which of them a rank speaks is the affair of the MPI that it
// was linked with.
type servers struct {
	n     *Node
	world string // the job that the run has begun with

	mu     sync.Mutex
	spaces map[string]*pmi1.Space // by job, guarded by mu
	jobs   map[string]*pmi.Job    // guarded by mu
}

func newServers(n *Node) *servers {
	return &servers{n: n, spaces: make(map[string]*pmi1.Space), jobs: make(map[string]*pmi.Job)}
}

// given is what a rank gets of them.
type given struct {
	env    map[string]string
	files  []*os.File
	parted func() string // see ranks.Fit
}

// add has a job served here.
func (s *servers) add(_ context.Context, job *pmi.Job) error {
	own := pmi.Proc{Job: job.Name, Rank: pmi.All}
	space := pmi1.New(pmi1.Config{
		Job: job, Node: s.n.cfg.Place, Peers: s.n.mpi, Log: s.n.cfg.Log,
		Abort: func(rank, code int, words string) { s.n.meet.Abort(job.First+rank, code, words) },
		Entered: func(rank int) {
			s.n.mpi.Entered(pmi.Fence, []pmi.Proc{own}, pmi.Proc{Job: job.Name, Rank: rank})
		},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.world == "" {
		s.world = job.Name
	}
	s.spaces[job.Name], s.jobs[job.Name] = space, job
	return nil
}

// remove forgets a job that is over.
func (s *servers) remove(_ context.Context, job string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spaces, job)
	delete(s.jobs, job)
	return nil
}

// partingTime is how long who serves a rank may take to hear of its end.
const partingTime = time.Second

// give makes what a rank finds its servers by.
func (s *servers) give(_ context.Context, rank pmi.Proc) (given, error) {
	s.mu.Lock()
	space, job := s.spaces[rank.Job], s.jobs[rank.Job]
	s.mu.Unlock()
	ours, theirs, err := pmi1.Pair()
	if err != nil {
		return given{}, fmt.Errorf("cannot serve MPI to rank %d: %w", job.First+rank.Rank, err)
	}
	const fd = 3 // the first of its files
	var parting pmi1.Parting
	left := make(chan struct{})
	s.n.cfg.Background(func(ctx context.Context) {
		defer close(left)
		parting = space.Serve(ctx, rank.Rank, ours)
	})
	return given{
		env: pmi1.Environ(job, rank.Rank, fd), files: []*os.File{theirs},
		parted: func() string {
			if pause.Until(left, partingTime) && parting.Spoke && !parting.Finalized {
				return "and has not called MPI_Finalize"
			}
			return ""
		},
	}, nil
}
