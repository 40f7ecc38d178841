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
	"strings"

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

// maxMappingLength is the maximum length of a mapping in bytes. MPICH 4.0 reads lines of 1,024
// bytes, which also contain a name and a key of the maximum length.
const maxMappingLength = 600

// ProcessMapping describes which ranks share a node, as the value of PMI_process_mapping: a list of
// blocks (first node, number of nodes, ranks per node). Nodes are renumbered in the order of their
// first ranks, because Intel MPI aborts if no node has number 0. It returns an empty string if the
// mapping is too long; MPICH then exchanges host names instead.
func ProcessMapping(nodes []int) string {
	type run struct{ first, nodes, ranks int }
	var runs []run
	number := renumberNodes(nodes)
	// Collect blocks of consecutive nodes with equal numbers of ranks.
	for begin, end := 0, 0; begin < len(nodes); begin = end {
		for end = begin; end < len(nodes) && nodes[end] == nodes[begin]; end++ {
		}
		here, ranks := number[nodes[begin]], end-begin
		if last := len(runs) - 1; last >= 0 && runs[last].ranks == ranks && runs[last].first+runs[last].nodes == here {
			runs[last].nodes++
		} else {
			runs = append(runs, run{here, 1, ranks})
		}
	}
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, ",(%d,%d,%d)", r.first, r.nodes, r.ranks)
	}
	if b.Len() == 0 || b.Len() > maxMappingLength {
		return ""
	}
	return "(vector" + b.String() + ")"
}

// renumberNodes numbers the nodes that have ranks, in the order of their first ranks.
func renumberNodes(nodes []int) map[int]int {
	number := make(map[int]int)
	for _, node := range nodes {
		if _, known := number[node]; !known {
			number[node] = len(number)
		}
	}
	return number
}

// ranksToHosts returns the response to get_ranks2hosts, with which Intel MPI requests the nodes of
// all ranks. It lists for each node the length of its name, the name and its ranks. The first line
// contains the length of the second and the number of nodes; the second has no line end.
func ranksToHosts(job *Job) string {
	ranks := make(map[int][]string)
	var order []int
	for rank, node := range job.Nodes {
		if ranks[node] == nil {
			order = append(order, node)
		}
		ranks[node] = append(ranks[node], strconv.Itoa(rank))
	}
	var b strings.Builder
	for _, node := range order {
		host := job.Hosts[node]
		fmt.Fprintf(&b, "%d %s %s, ", len(host), host, strings.Join(ranks[node], ","))
	}
	return fmt.Sprintf("cmd=put_ranks2hosts %d %d\n%s", b.Len(), len(order), b.String())
}
