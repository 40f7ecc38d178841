package pmi

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// PMI1Config holds the parameters of a [PMI1Server].
type PMI1Config struct {
	Handlers
	// Job must have a name that no other job has ever had on these nodes: MPICH 5 derives the name of
	// its shared memory from it, and reuses shared memory that a killed job left behind.
	Job *Job
	Log *zap.Logger
}

// PMI1Server serves the PMI-1 protocol to the ranks of one job on one node. MPICH, Intel MPI and MPI
// libraries without support for PMIx use it. A value that a rank puts is visible on its own node at
// once, and on the other nodes after the next barrier. Its methods are safe for concurrent use.
type PMI1Server struct {
	cfg       PMI1Config
	nodeCount int // number of nodes with ranks of the job

	mu sync.Mutex
	// values of all nodes at the last barrier, and newer ones of this node
	values      map[string]string
	newValues   map[string]string // values put on this node since the last barrier
	putSize     int               // bytes put, not counting values that were replaced
	initialized map[int]bool      // ranks that have initialised PMI
}

// NewPMI1Server returns the server of a job on a node.
func NewPMI1Server(cfg PMI1Config) *PMI1Server {
	s := &PMI1Server{
		cfg: cfg, nodeCount: cfg.Job.NodeCount(),
		values: make(map[string]string), newValues: make(map[string]string), initialized: make(map[int]bool),
	}
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
func (s *PMI1Server) putValue(key, value string) bool {
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

func (s *PMI1Server) getValue(key string) (value string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found = s.values[key]
	return value, found
}

func (s *PMI1Server) enterBarrier(ctx context.Context, rank int) error {
	who := ProcID{Job: s.cfg.Job.Name, Rank: rank}
	exchange := rendezvous.Exchange{Send: s.takeNewValues, Receive: s.addValues}
	return s.cfg.Peers.EnterProcs(ctx, Barrier, s.cfg.Job.allRanks(), who, exchange)
}

// takeNewValues returns the values that ranks of this node have put since the last barrier.
func (s *PMI1Server) takeNewValues() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := encodeValues(s.newValues)
	clear(s.newValues)
	return data
}

func (s *PMI1Server) addValues(all []byte) error {
	values, err := decodeValues(all, s.nodeCount)
	if err != nil {
		s.cfg.Log.Debug("cannot complete a barrier of MPI ranks",
			zap.String("job", PublicName(s.cfg.Job.Name)), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.values, values)
	return err
}

func encodeValues(values map[string]string) []byte {
	var data bytes.Buffer
	_ = gob.NewEncoder(&data).Encode(values) // never fails: each string can be encoded
	return data.Bytes()
}

// decodeValues returns the values of all nodes, from their concatenated data. It returns an error
// unless it has the data of each node.
func decodeValues(data []byte, nodes int) (map[string]string, error) {
	values, in, found := make(map[string]string), bytes.NewReader(data), 0
	for ; in.Len() > 0; found++ {
		if err := gob.NewDecoder(in).Decode(&values); err != nil {
			return nil, fmt.Errorf("cannot decode the nodes' data at a barrier, before byte %d of %d: %v",
				len(data)-in.Len(), len(data), err)
		}
	}
	if found != nodes {
		return nil, fmt.Errorf("cannot complete a barrier: it has the data of %d nodes, and the job has %d",
			found, nodes)
	}
	return values, nil
}
