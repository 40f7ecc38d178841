// Package pmi is what serving MPI to ranks is made of, whichever protocol they speak: which processes there are, and what they ask
// of those on other nodes. pmi1 and pmix below it are the servers.
package pmi

import "fmt"

// What a program may ask for at most. More is refused with NoSpace.
const (
	// MostRanks bounds the ranks of a spawn, and those of a run that are alive.
	MostRanks = 1 << 20
	// MostCommands bounds the commands of a spawn.
	MostCommands = 4096
	// LongestSpawn bounds a spawn, in bytes: the kernel lets a command have no more than 6 MiB of
	// arguments.
	LongestSpawn = 8 << 20
)

// All stands for every process of a job.
const All = -1

// Proc is a process of a job, or with All each of them.
type Proc struct {
	Job  string `json:"job"`
	Rank int    `json:"rank"` // in the job, from 0 on
}

// String returns the process as messages have it, without the secret in its job's name.
func (p Proc) String() string {
	if p.Rank == All {
		return Shown(p.Job)
	}
	return fmt.Sprintf("%s.%d", Shown(p.Job), p.Rank)
}

// Job is ranks that MPI knows by one name, its namespace: those that a run has begun with, or such as were spawned together.
type Job struct {
	Name     string            `json:"name"`
	First    int               `json:"first"`          // the number that its rank 0 has in the run, where others are counted on
	Hosts    []string          `json:"hosts"`          // of all nodes of the team, by their places, those without ranks of it too
	Nodes    []int             `json:"nodes"`          // of each rank the place of its node
	Apps     []int             `json:"apps,omitempty"` // of each rank which of the spawned commands it runs; nil: all the first
	Universe int               `json:"universe"`       // slots on all nodes, for all jobs; not below len(Nodes)
	Parent   *Proc             `json:"parent,omitempty"`
	Preput   map[string]string `json:"preput,omitempty"` // what the ranks find in their key-value space at first
}

// Local returns the ranks on a node, in their order.
func (j *Job) Local(node int) (ranks []int) {
	for rank, on := range j.Nodes {
		if on == node {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Spread returns on how many nodes the job has ranks.
func (j *Job) Spread() (nodes int) {
	seen := make(map[int]bool)
	for _, node := range j.Nodes {
		if !seen[node] {
			seen[node] = true
			nodes++
		}
	}
	return nodes
}

// Number is the number in the run of one of its ranks; -1 where it has none such, or is nil.
func (j *Job) Number(rank int) int {
	if j == nil || rank < 0 || rank >= len(j.Nodes) {
		return -1
	}
	return j.First + rank
}

// App returns which command a rank runs.
func (j *Job) App(rank int) int {
	if j.Apps == nil {
		return 0
	}
	return j.Apps[rank]
}

// Meet is which operation a Gather belongs to: those of different kinds never meet.
type Meet string

// The kinds.
const (
	Fence      Meet = "fence"   // what all bring may be asked for by Modex, where it is too much for all at once
	Barrier    Meet = "barrier" // what all bring is needed by all
	Connect    Meet = "connect"
	Disconnect Meet = "disconnect"
)

// Entry is what was published under a key.
type Entry struct {
	Key   string `json:"key"`
	By    Proc   `json:"by"`
	Value []byte `json:"value"`          // opaque: the protocol's own
	Once  bool   `json:"once,omitempty"` // it is gone when it was looked up
}

// Command is one that is to be started in some ranks.
type Command struct {
	Argv  []string          `json:"argv"`
	Env   []string          `json:"env,omitempty"` // NAME=VALUE, on top of a rank's
	Dir   string            `json:"dir,omitempty"`
	Ranks int               `json:"ranks"`
	Info  map[string]string `json:"info,omitempty"` // as MPI_Info has it: "host" are hosts, "wdir" a directory
}

// Spawn asks for a new job.
type Spawn struct {
	By       Proc              `json:"by"`
	Commands []Command         `json:"commands"`
	Preput   map[string]string `json:"preput,omitempty"`
}

// Event is told to processes, of this or other nodes.
type Event struct {
	Code   int    `json:"code"` // as PMIx numbers them
	Source Proc   `json:"source"`
	Range  int    `json:"range"` // PMIx's data range: to whom
	Count  int    `json:"count"` // how many items Info has
	Info   []byte `json:"info"`  // as libpmix packs them
}

// Status is why an operation failed, as PMIx numbers it.
type Status int

// What an operation may come to: PMIx's pmix_common.h.
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

// Error returns the status in words.
func (s Status) Error() string {
	words := map[Status]string{
		Failed: "it failed", TimedOut: "it took too long", Unreachable: "a peer can't be reached", BadParam: "a bad parameter",
		NotFound: "not found", NotSupported: "not supported", NoSpace: "out of resources", Duplicate: "there is one of that name already", Aborted: "a process was aborted", Ended: "the job has ended",
	}
	if w := words[s]; w != "" {
		return w
	}
	return fmt.Sprintf("PMIx status %d", int(s))
}
