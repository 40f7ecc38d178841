// Package pmi contains the servers with which the ranks of a node find each other: PMI-1 and the
// protocol of rapidsmpf, the jobs and their processes, and the operations that involve other nodes. The
// server of PMIx is in its subpackage pmix.
package pmi

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// Peers provides the operations of the ranks of one node that involve other nodes. [Node] implements
// it, and documents the methods.
type Peers interface {
	GatherProcs(ctx context.Context, kind CollectiveKind, of []ProcID, data []byte) ([]byte, error)
	EnterProcs(ctx context.Context, kind CollectiveKind, of []ProcID, who ProcID, data rendezvous.Exchange) error
	FetchModex(ctx context.Context, of ProcID) ([]byte, error)
	PublishEntries(ctx context.Context, entries []Entry) error
	LookupEntries(ctx context.Context, keys []string, wait bool) ([]Entry, error)
	UnpublishEntries(ctx context.Context, by ProcID, keys []string) error
	SpawnJob(ctx context.Context, s SpawnRequest) (job string, err error)
	NotifyNodes(ctx context.Context, event Event) error
}

// Handlers are what the servers of a node share.
type Handlers struct {
	Node  int // node index in the team
	Peers Peers
	// AwaitLink waits until it is known whether this node can reach the others, or until ctx ends. It
	// returns the reason if a rank cannot be served. A nil function means that the others are always
	// reachable.
	AwaitLink func(ctx context.Context, by ProcID) error
	// AbortJob is called when a rank requests the end of the job. It must not block.
	AbortJob func(by ProcID, code int, words string)
}

// Limits of requests. Requests that exceed them fail with NoSpace.
const (
	// MaxRanks is the maximum number of ranks of a spawn, and of running ranks of a run.
	MaxRanks = 1 << 20
	// MaxCommands is the maximum number of commands of a spawn.
	MaxCommands = 4096
	// MaxSpawnSize is the maximum size of a spawn request in bytes. The kernel limits the arguments of
	// one command to 6 MiB.
	MaxSpawnSize = 8 << 20
)

// AllRanks denotes all processes of a job.
const AllRanks = -1

// ProcID identifies a process of a job, or all of its processes.
type ProcID struct {
	Job  string `json:"job"`
	Rank int    `json:"rank"` // rank in the job, from 0; or [AllRanks]
}

// String returns the process for messages, without the secret part of its job's name.
func (p ProcID) String() string {
	if p.Rank == AllRanks {
		return PublicName(p.Job)
	}
	return fmt.Sprintf("%s.%d", PublicName(p.Job), p.Rank)
}

// Job is a set of ranks with a common name, which is their PMIx namespace: the ranks that the run
// began with, or the ranks that one spawn started.
type Job struct {
	Name string `json:"name"`
	// run-wide number of its rank 0; its other ranks follow
	FirstNumber int `json:"first_number"`
	// hosts of all nodes of the team, by node index
	Hosts []string `json:"hosts"`
	Nodes []int    `json:"nodes"` // node index of each rank
	// index of the spawned command of each rank; nil: all 0
	Apps []int `json:"apps,omitempty"`
	// slots on all nodes for all jobs; at least the number of its ranks
	UniverseSize int     `json:"universe_size"`
	Parent       *ProcID `json:"parent,omitempty"`
	// initial content of the ranks' key-value space
	Preput map[string]string `json:"preput,omitempty"`
}

// LocalRanks returns the job's ranks on a node in ascending order.
func (j *Job) LocalRanks(node int) (ranks []int) {
	for rank, on := range j.Nodes {
		if on == node {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func (j *Job) allRanks() []ProcID { return []ProcID{{Job: j.Name, Rank: AllRanks}} }

// NodeCount returns the number of nodes that have ranks of the job.
func (j *Job) NodeCount() int { return len(renumberNodes(j.Nodes)) }

// RunNumber returns the run-wide number of a rank; -1 if there is no such rank or j is nil.
func (j *Job) RunNumber(rank int) int {
	if j == nil || rank < 0 || rank >= len(j.Nodes) {
		return -1
	}
	return j.FirstNumber + rank
}

// CommandIndex returns the index of the command that a rank runs.
func (j *Job) CommandIndex(rank int) int {
	if j.Apps == nil {
		return 0
	}
	return j.Apps[rank]
}

// CollectiveKind is the kind of a collective operation, as warnings show it to users. Operations of
// different kinds are independent.
type CollectiveKind string

// Kinds of collective operations.
const (
	// large data may be omitted; it is available by [Node.FetchModex]
	Fence      CollectiveKind = "MPI fence"
	Barrier    CollectiveKind = "MPI barrier"
	Connect    CollectiveKind = "MPI connect"
	Disconnect CollectiveKind = "MPI disconnect"
)

// Entry is a published key with its value.
type Entry struct {
	Key            string `json:"key"`
	Publisher      ProcID `json:"publisher"`
	Value          []byte `json:"value"`                      // opaque; the format depends on the protocol
	RemoveOnLookup bool   `json:"remove_on_lookup,omitempty"` // removed by the first lookup
}

// Command is a command that a spawn starts in some ranks.
type Command struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // NAME=VALUE, added to the rank's environment
	Dir   string   `json:"dir,omitempty"`
	Ranks int      `json:"ranks"`
	// MPI_Info keys: "host" lists hosts, "wdir" is a directory
	Info map[string]string `json:"info,omitempty"`
}

// SpawnRequest is a request to start a new job.
type SpawnRequest struct {
	Requester ProcID            `json:"requester"`
	Commands  []Command         `json:"commands"`
	Preput    map[string]string `json:"preput,omitempty"`
}

// Event is an event that processes on this or other nodes are notified of.
type Event struct {
	Code   int    `json:"code"` // numbered as in PMIx
	Source ProcID `json:"source"`
	Range  int    `json:"range"` // PMIx data range: the processes to notify
	Count  int    `json:"count"` // number of items in Info
	Info   []byte `json:"info"`  // packed by libpmix
}

// Status is the error code of an operation, numbered as in PMIx.
type Status int

// Status values, from PMIx's pmix_common.h.
const (
	Failed       Status = -1
	TimedOut     Status = -24
	Unreachable  Status = -25
	BadParam     Status = -27
	NotFound     Status = -46
	NotSupported Status = -47
	NoSpace      Status = -29
	Duplicate    Status = -53
	Aborted      Status = -7   // PMIX_ERR_PROC_ABORTED
	Ended        Status = -145 // PMIX_ERR_JOB_TERMINATED
)

// Error returns a description of the status.
func (s Status) Error() string {
	words := map[Status]string{
		Failed: "failed", TimedOut: "timed out", Unreachable: "a peer is unreachable", BadParam: "invalid parameter",
		NotFound: "not found", NotSupported: "not supported", NoSpace: "out of resources",
		Duplicate: "the name already exists", Aborted: "a process was aborted", Ended: "the job has ended",
	}
	if w := words[s]; w != "" {
		return w
	}
	return fmt.Sprintf("PMIx status %d", int(s))
}

// secretSeparator separates the public part of a job's name from the secret part.
const secretSeparator = "."

// maxPublicLength is the maximum length of the public part of a job's name in bytes. PMIx accepts
// 255 bytes for the whole name.
const maxPublicLength = 128

// NewJobName returns the name of a job for MPI: a public part and a secret. A process that knows
// the name could impersonate one of the job's ranks, so the full name must not appear in logs,
// arguments or public files. MPI libraries publish hashes of the name, of 31 and 32 bits, in
// /dev/shm; the secret is long enough to remain unknown in spite of them.
func NewJobName(shown string, secret [24]byte) string {
	return shown[:min(len(shown), maxPublicLength)] + secretSeparator + hex.EncodeToString(secret[:])
}

func spawnedJobName(world string, number int) string {
	shown := PublicName(world)
	return fmt.Sprintf("%s-%d%s", shown, number, strings.TrimPrefix(world, shown))
}

// PublicName returns the public part of a job's name.
func PublicName(name string) string {
	if at := strings.LastIndex(name, secretSeparator); at >= 0 {
		return name[:at]
	}
	return name
}

// serveRequests passes the requests of a rank to answer, one after the other, until answer returns an
// error, the connection ends or ctx ends. It closes the connection. read passes each request to accept,
// until that returns false: it runs on a goroutine of its own, so that the end of the connection is
// noticed while a request waits.
func serveRequests[R any](
	ctx context.Context, conn io.Closer, read func(accept func(R) bool), answer func(ctx context.Context, r R) error,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	requests := make(chan R)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the rank is gone; end the request that waits
		defer close(requests)
		read(func(r R) bool {
			select {
			case requests <- r:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for r := range requests {
		if answer(ctx, r) != nil {
			break
		}
	}
	cancel()
	_ = conn.Close()
	reading.Wait()
}
