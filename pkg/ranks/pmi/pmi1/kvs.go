// Package pmi1 serves the PMI-1 protocol to the ranks of one node. MPICH, Intel MPI and MPI
// libraries without support for PMIx use it. A value that a rank puts is visible on its own node at
// once, and on the other nodes after the next barrier.
package pmi1

import (
	"context"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// Peers provides the operations of a job's ranks that involve other nodes.
type Peers interface {
	// GatherProcs exchanges data with the other nodes that have ranks of the job. It is called when
	// all ranks of this node have entered. It returns the data of all nodes, including this one,
	// concatenated in any order.
	GatherProcs(ctx context.Context, kind pmi.CollectiveKind, of []pmi.ProcID, data []byte) ([]byte, error)
	// PublishEntries makes entries available to all jobs.
	PublishEntries(ctx context.Context, entries []pmi.Entry) error
	// LookupEntries returns the entries published under the given keys. If wait is set, it waits until
	// all of them are published.
	LookupEntries(ctx context.Context, keys []string, wait bool) ([]pmi.Entry, error)
	// UnpublishEntries removes published entries.
	UnpublishEntries(ctx context.Context, by pmi.ProcID, keys []string) error
	// SpawnJob starts a new job and returns its name once its processes have been started.
	SpawnJob(ctx context.Context, s pmi.SpawnRequest) (job string, err error)
}

// Config holds the parameters of a [Server].
type Config struct {
	// Job must have a name that no other job has ever had on these nodes: MPICH 5 derives the name of
	// its shared memory from it, and reuses shared memory that a killed job left behind.
	Job   *pmi.Job
	Node  int // node index in the team
	Peers Peers
	// AbortJob is called when a rank requests the end of the job, with an exit code and a message. It
	// must not block.
	AbortJob func(rank, code int, words string)
	// AwaitLink waits until it is known whether this node can reach the others, or until ctx ends. It
	// returns the reason if rank cannot be served. A nil function means that the others are always
	// reachable.
	AwaitLink func(ctx context.Context, rank int) error
	// OnBarrierEntry is called for each rank that enters a barrier. It must not block. It may be nil.
	OnBarrierEntry func(rank int)
	Log            *zap.Logger
}

// Server is the key-value space of one job on one node. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	nodeCount int // number of nodes with ranks of the job
	barrier   *pmi.LocalBarrier

	mu sync.Mutex
	// values of all nodes at the last barrier, and newer ones of this node
	values      map[string]string
	newValues   map[string]string // values put on this node since the last barrier
	putSize     int               // bytes put, not counting values that were replaced
	initialized map[int]bool      // ranks that have initialised PMI
}

// New returns the key-value space of a job on a node.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, nodeCount: len(renumberNodes(cfg.Job.Nodes)),
		values: make(map[string]string), newValues: make(map[string]string), initialized: make(map[int]bool),
	}
	s.barrier = pmi.NewLocalBarrier(len(cfg.Job.LocalRanks(cfg.Node)), s.exchangeValues)
	maps.Copy(s.values, cfg.Job.Preput)
	if mapping := ProcessMapping(cfg.Job.Nodes); mapping != "" {
		s.values["PMI_process_mapping"] = mapping
	}
	return s
}

// maxPutSize limits what the ranks of a node may put, in bytes. Each key counts pairOverhead bytes
// in addition to its length.
const (
	maxPutSize   = 64 << 20
	pairOverhead = 128
)

// putValue stores a value for all ranks of the job. It returns false if that would exceed
// [maxPutSize].
func (s *Server) putValue(key, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.putSize + len(value)
	if was, known := s.values[key]; known {
		size -= len(was)
	} else {
		size += len(key) + pairOverhead
	}
	if size > maxPutSize {
		return false
	}
	s.values[key], s.newValues[key], s.putSize = value, value, size
	return true
}

// getValue returns a value that was put.
func (s *Server) getValue(key string) (value string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found = s.values[key]
	return value, found
}

// enterBarrier waits until all ranks of the job have entered the barrier, or until ctx ends.
func (s *Server) enterBarrier(ctx context.Context, rank int) error {
	if s.cfg.OnBarrierEntry != nil {
		s.cfg.OnBarrierEntry(rank)
	}
	return s.barrier.Enter(ctx, rank)
}

// exchangeValues exchanges the new values with the other nodes in a barrier.
func (s *Server) exchangeValues(ctx context.Context) error {
	s.mu.Lock()
	delta := encodeValues(s.newValues)
	clear(s.newValues)
	s.mu.Unlock()
	all, err := s.cfg.Peers.GatherProcs(ctx, pmi.Barrier, []pmi.ProcID{{Job: s.cfg.Job.Name, Rank: pmi.AllRanks}}, delta)
	var values map[string]string
	if err == nil {
		values, err = decodeValues(all, s.nodeCount)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("cannot complete a barrier of MPI ranks", zap.String("job", pmi.PublicName(s.cfg.Job.Name)), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.values, values)
	return err
}
