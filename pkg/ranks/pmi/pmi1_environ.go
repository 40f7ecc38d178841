package pmi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// PMI1Environ returns the environment variables with which a rank uses PMI-1 through a file
// descriptor, with any MPI library.
func PMI1Environ(job *Job, rank, fd int) map[string]string {
	node := job.Nodes[rank]
	local := job.LocalRanks(node)
	spawned := "0"
	if job.Parent != nil {
		spawned = "1"
	}
	return map[string]string{
		"PMI_FD": strconv.Itoa(fd), "PMI_RANK": strconv.Itoa(rank), "PMI_SIZE": strconv.Itoa(len(job.Nodes)),
		"PMI_SPAWNED":  spawned,
		"PMI_HOSTNAME": job.Hosts[node], "MPI_LOCALNRANKS": strconv.Itoa(len(local)),
		"MPI_LOCALRANKID":       strconv.Itoa(slices.Index(local, rank)),
		"MPIR_CVAR_PMI_VERSION": "1", // MPICH cannot choose if PMIx is available as well
		"I_MPI_PMI":             "pmi1",
		"I_MPI_SPAWN":           "on",
	}
}

// NewConnPair returns the two ends of a connection: server for [PMI1Server.ServeRank], client for the
// rank's file descriptor. Both are closed on exec. The caller must close client once the rank has
// been started; otherwise the end of the rank's connection is never detected.
func NewConnPair() (server net.Conn, client *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot connect a rank to its PMI server: %v", err)
	}
	near := os.NewFile(uintptr(fds[0]), "pmi")
	defer near.Close()
	client = os.NewFile(uintptr(fds[1]), "pmi")
	if server, err = net.FileConn(near); err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("cannot connect a rank to its PMI server: %v", err)
	}
	return server, client, nil
}

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
