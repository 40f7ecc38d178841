// Package pmi1 serves the PMI-1 protocol to the ranks of one node. MPICH, Intel MPI and MPI
// libraries without support for PMIx use it. A value that a rank puts is visible on its own node at
// once, and on the other nodes after the next barrier.
package pmi1

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// Peers provides the operations of a job's ranks that involve other nodes.
type Peers interface {
	// Gather exchanges data with the other nodes that have ranks of the job. It is called when all
	// ranks of this node have entered. It returns the data of all nodes, including this one,
	// concatenated in any order.
	Gather(ctx context.Context, kind pmi.Meet, of []pmi.Proc, data []byte) ([]byte, error)
	// Publish makes entries available to all jobs.
	Publish(ctx context.Context, entries []pmi.Entry) error
	// Lookup returns the entries published under the given keys. If wait is set, it waits until all of
	// them are published.
	Lookup(ctx context.Context, keys []string, wait bool) ([]pmi.Entry, error)
	// Unpublish removes published entries.
	Unpublish(ctx context.Context, by pmi.Proc, keys []string) error
	// Spawn starts a new job and returns its name once its processes have been started.
	Spawn(ctx context.Context, s pmi.Spawn) (job string, err error)
}

// Config holds the parameters of a [Space].
type Config struct {
	// Job must have a name that no other job has ever had on these nodes: MPICH 5 derives the name of
	// its shared memory from it, and reuses shared memory that a killed job left behind.
	Job   *pmi.Job
	Node  int // node index in the team
	Peers Peers
	// Abort is called when a rank requests the end of the job, with an exit code and a message. It
	// must not block.
	Abort func(rank, code int, words string)
	// Linked waits until it is known whether this node can reach the others, or until ctx ends. It
	// returns the reason if rank cannot be served. A nil function means that the others are always
	// reachable.
	Linked func(ctx context.Context, rank int) error
	// Entered is called for each rank that enters a barrier. It must not block. It may be nil.
	Entered func(rank int)
	Log     *zap.Logger
}

// Space is the key-value space of one job on one node. Its methods are safe for concurrent use.
type Space struct {
	cfg   Config
	local int // number of the job's ranks on this node
	nodes int // number of nodes with ranks of the job

	mu      sync.Mutex
	values  map[string]string // values of all nodes at the last barrier, and newer ones of this node
	fresh   map[string]string // values put on this node since the last barrier
	size    int               // bytes put, not counting values that were replaced
	barrier *barrier          // the current or next barrier
	served  int               // number of connected ranks
	spoken  map[int]bool      // ranks that have initialised PMI
}

// New returns the key-value space of a job on a node.
func New(cfg Config) *Space {
	s := &Space{
		cfg: cfg, local: len(cfg.Job.Local(cfg.Node)), nodes: len(numbered(cfg.Job.Nodes)),
		values: make(map[string]string), fresh: make(map[string]string), barrier: newBarrier(), spoken: make(map[int]bool),
	}
	maps.Copy(s.values, cfg.Job.Preput)
	if mapping := Mapping(cfg.Job.Nodes); mapping != "" {
		s.values["PMI_process_mapping"] = mapping
	}
	return s
}

// mostPut limits what the ranks of a node may put, in bytes. Each key counts pairCost bytes in
// addition to its length.
const (
	mostPut  = 64 << 20
	pairCost = 128
)

// put stores a value for all ranks of the job. It returns false if that would exceed [mostPut].
func (s *Space) put(key, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.size + len(value)
	if was, known := s.values[key]; known {
		size -= len(was)
	} else {
		size += len(key) + pairCost
	}
	if size > mostPut {
		return false
	}
	s.values[key], s.fresh[key], s.size = value, value, size
	return true
}

// get returns a value that was put.
func (s *Space) get(key string) (value string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found = s.values[key]
	return value, found
}

// barrier is a barrier of all ranks of the job.
type barrier struct {
	in     map[int]bool       // ranks of this node that have entered
	cancel context.CancelFunc // stops the exchange between nodes; nil before it begins
	done   chan struct{}      // closed when the exchange between nodes has ended
	err    error              // error of the exchange; set before done is closed
}

func newBarrier() *barrier { return &barrier{in: make(map[int]bool), done: make(chan struct{})} }

// enter waits until all ranks of the job have entered the barrier, or until ctx ends.
func (s *Space) enter(ctx context.Context, rank int) error {
	if s.cfg.Entered != nil {
		s.cfg.Entered(rank)
	}
	b, err := s.come(ctx, rank)
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// come records that a rank has entered the barrier. The last rank of the node starts the exchange
// with the other nodes, on a goroutine that continues as long as any rank is connected: a rank that
// dies in a barrier must not break it for the others, or they would fail first and obscure the
// cause.
func (s *Space) come(ctx context.Context, rank int) (*barrier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.barrier
	if b.in[rank] {
		return nil, fmt.Errorf("cannot enter a barrier of %s: rank %d is in it, by another connection", pmi.Shown(s.cfg.Job.Name), rank)
	}
	b.in[rank] = true
	if len(b.in) == s.local {
		ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
		delta := encode(s.fresh)
		clear(s.fresh)
		go s.meet(ctx, b, delta)
	}
	return b, nil
}

// meet exchanges the new values with the other nodes and completes the barrier.
func (s *Space) meet(ctx context.Context, b *barrier, delta []byte) {
	defer close(b.done)
	defer b.cancel()
	all, err := s.cfg.Peers.Gather(ctx, pmi.Barrier, []pmi.Proc{{Job: s.cfg.Job.Name, Rank: pmi.All}}, delta)
	var values map[string]string
	if err == nil {
		values, err = decode(all, s.nodes)
	}
	if b.err = err; err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("cannot complete a barrier of MPI ranks", zap.String("job", pmi.Shown(s.cfg.Job.Name)), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.values, values)
	s.barrier = newBarrier()
}

// arrive counts a rank that has connected.
func (s *Space) arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served++
}

// leave counts a rank that has disconnected. When no rank is left, it stops a pending exchange,
// because no rank waits for the result.
func (s *Space) leave() {
	s.mu.Lock()
	s.served--
	b := s.barrier
	inVain := s.served == 0 && b.cancel != nil
	s.mu.Unlock()
	if inVain {
		b.cancel()
		<-b.done
	}
}
