// Package pmi1 serves PMI-1 to the ranks of one node: MPICH and Intel MPI come up by it, and others that know no better. What a rank puts
// is here at once, and on the other nodes after the next barrier.
package pmi1

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// Peers is what a job's ranks on one node ask of the other nodes.
type Peers interface {
	// Gather meets the other nodes that have ranks of the job, once all ranks of this node have come. It returns what all
	// nodes gave, one after the other, this node's included, in any order.
	Gather(ctx context.Context, kind pmi.Meet, of []pmi.Proc, data []byte) ([]byte, error)
	// Publish lets all jobs find entries by their keys.
	Publish(ctx context.Context, entries []pmi.Entry) error
	// Lookup returns what was published under keys. With wait it waits for all of them.
	Lookup(ctx context.Context, keys []string, wait bool) ([]pmi.Entry, error)
	// Unpublish takes back what was published.
	Unpublish(ctx context.Context, by pmi.Proc, keys []string) error
	// Spawn starts a new job, and returns its name once its processes have begun.
	Spawn(ctx context.Context, s pmi.Spawn) (job string, err error)
}

// Config is what a Space is made of.
type Config struct {
	// Job has a name that no other job has ever had on these nodes: MPICH 5 names its shared memory by it, and takes for its own what a
	// job left behind that was killed.
	Job   *pmi.Job
	Node  int // this node's place in the team
	Peers Peers
	// Abort is told that a rank wants the job to end, with which code and why. It must not wait.
	Abort func(rank, code int, words string)
	// Linked waits until it is known whether this node can reach the others, or ctx ends. Its error
	// is why a rank cannot be served; nil: it always can.
	Linked func(ctx context.Context, rank int) error
	// Entered is told of each rank that comes to a barrier; it may be nil. It must not wait.
	Entered func(rank int)
	Log     *zap.Logger
}

// Space is the key-value space of one job, as its ranks on one node see it. Its methods may be called side by side.
type Space struct {
	cfg   Config
	local int // how many ranks this node has
	nodes int // on how many nodes the job has ranks

	mu      sync.Mutex
	values  map[string]string // of all nodes, as of the last barrier, and of this node
	fresh   map[string]string // what this node's ranks have put since the last barrier
	size    int               // bytes that they have put, less those that were replaced
	barrier *barrier          // the one that ranks come to, or wait in
	served  int               // how many ranks are being served
	spoken  map[int]bool      // the ranks that have said that they are there
}

// New returns the space of a job on a node.
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

// mostPut bounds what the ranks of a node may put, in bytes, with pairCost for each key.
const (
	mostPut  = 64 << 20
	pairCost = 128
)

// put keeps a value for all ranks of the job. It reports whether there was room for it.
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

func (s *Space) get(key string) (value string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found = s.values[key]
	return value, found
}

// barrier is one that all ranks of the job come to.
type barrier struct {
	in     map[int]bool       // this node's ranks that have come
	cancel context.CancelFunc // ends the meeting of the nodes; nil before it
	done   chan struct{}      // closed by meet, once the nodes have met
	err    error              // set before: why it is not known what they gave
}

func newBarrier() *barrier { return &barrier{in: make(map[int]bool), done: make(chan struct{})} }

// enter waits in a barrier until all ranks of the job have come, or ctx ends.
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

// come notes that a rank is in the barrier. The last one has the nodes meet, by a goroutine that goes on for as long as any rank is
// served: one that dies in a barrier must not break it for the others, or they would be the first to fail.
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

// meet is the part of a barrier that is between nodes.
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

// arrive counts a rank that is served from now on.
func (s *Space) arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served++
}

// leave counts a rank as served no more. With the last of them nobody waits for a meeting.
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
