package pmi

import (
	"fmt"
	"net"
	"os"
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
