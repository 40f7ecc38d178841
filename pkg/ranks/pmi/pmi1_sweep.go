package pmi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
)

// sharedMemoryDir is the directory in which shm_open creates files.
var sharedMemoryDir = "/dev/shm"

// RemoveSharedMemory removes the shared memory that killed ranks of MPICH 5 left on this node.
// These are some MB, which would otherwise remain until the node is rebooted. All ranks of this
// node must have ended.
func (s *PMI1Server) RemoveSharedMemory() error {
	name := fnv.New32a()
	_, _ = name.Write([]byte(s.cfg.Job.Name))
	number := renumberNodes(s.cfg.Job.Nodes)[s.cfg.Node]
	var errs []error
	for _, kind := range []string{"shm", "vci"} {
		path := filepath.Join(sharedMemoryDir, fmt.Sprintf("mpich_%s_%x_%d", kind, name.Sum32(), number))
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove shared memory of a killed MPI rank: %v", err))
		}
	}
	return errors.Join(errs...)
}
