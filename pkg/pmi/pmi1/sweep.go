package pmi1

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
)

// sharedMemory is where shm_open keeps files.
var sharedMemory = "/dev/shm"

// Sweep removes what killed ranks of MPICH 5 leave in this node's shared memory: some MB, which nobody else would free before the node
// is started anew. All ranks of this node must have ended.
func (s *Space) Sweep() error {
	name := fnv.New32a()
	_, _ = name.Write([]byte(s.cfg.Job.Name))
	number := numbered(s.cfg.Job.Nodes)[s.cfg.Node]
	var errs []error
	for _, kind := range []string{"shm", "vci"} {
		path := filepath.Join(sharedMemory, fmt.Sprintf("mpich_%s_%x_%d", kind, name.Sum32(), number))
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove what a killed MPI rank has left: %v", err))
		}
	}
	return errors.Join(errs...)
}
