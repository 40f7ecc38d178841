package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// Transport is a node's connection to the other nodes. *rendezvous.Node implements it.
type Transport interface {
	CallHead(ctx context.Context, name string, data []byte) ([]byte, error)
	GatherGroup(ctx context.Context, name string, of rendezvous.Group, data []byte) ([]byte, error)
	EnterGroup(ctx context.Context, name string, of rendezvous.Group, rank int, data rendezvous.Exchange) error
	AddRanks(places []rendezvous.NodeRanks)
}

// NodeServer serves the ranks of this node.
type NodeServer interface {
	// AddJob registers a job, including jobs without ranks on this node.
	AddJob(ctx context.Context, job *Job) error
	// StartRanks starts this node's ranks of a spawned job.
	StartRanks(ctx context.Context, job *Job, s SpawnRequest) error
	// FetchModex returns the data that a rank of this node has committed.
	FetchModex(ctx context.Context, of ProcID) ([]byte, error)
	// NotifyRanks notifies the ranks of this node of an event on another node.
	NotifyRanks(ctx context.Context, event Event) error
	// RemoveJob removes a job that has ended.
	RemoveJob(ctx context.Context, job string) error
}

// Node is the node's side: servers use it for the operations that involve other nodes. Its methods
// are safe for concurrent use.
type Node struct {
	transport Transport
	nodeIndex int // node index
	server    NodeServer
	// FailureDelay is the delay before a failed collective operation returns. The death of a process
	// ends the job; without the delay, the processes that wait for it could fail first and obscure the
	// cause.
	FailureDelay time.Duration

	mu   sync.Mutex
	jobs map[string]*Job
}

// NewNode returns the side of the node with the given index. It calls the server only from
// [Node.HandleOrder] and [Node.AddJob].
func NewNode(meet Transport, place int, server NodeServer) *Node {
	return &Node{transport: meet, nodeIndex: place, server: server, jobs: make(map[string]*Job)}
}

// HandleOrder executes an order of the head. It is a rendezvous.Handler.
func (n *Node) HandleOrder(ctx context.Context, _ int, name string, data []byte) ([]byte, error) {
	return answerOperation(data, func(q operation) (response, error) { return n.executeOrder(ctx, name, q) })
}

func (n *Node) executeOrder(ctx context.Context, name string, q operation) (a response, err error) {
	switch name {
	case opAdd:
		n.transport.AddRanks(q.Job.NodeRanks())
		err = n.AddJob(ctx, q.Job)
	case opStart:
		err = n.server.StartRanks(ctx, q.Job, *q.Spawn)
	case opModex:
		a.Data, err = n.server.FetchModex(ctx, q.Proc)
	case opNotify:
		err = n.server.NotifyRanks(ctx, *q.Event)
	case opRemove:
		err = n.removeJob(ctx, q.Proc.Job)
	default:
		err = fmt.Errorf("cannot execute %q: %w", name, NotSupported)
	}
	return a, err
}

// AddJob registers a job on this node.
func (n *Node) AddJob(ctx context.Context, job *Job) error {
	n.mu.Lock()
	n.jobs[job.Name] = job
	n.mu.Unlock()
	return n.server.AddJob(ctx, job)
}

func (n *Node) removeJob(ctx context.Context, name string) error {
	n.mu.Lock()
	delete(n.jobs, name)
	n.mu.Unlock()
	return n.server.RemoveJob(ctx, name)
}

// RunNumber returns the run-wide number of a process; -1 if it is unknown.
func (n *Node) RunNumber(of ProcID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.jobs[of.Job].RunNumber(of.Rank)
}

func (n *Node) resolveGroup(of []ProcID) (rendezvous.Group, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all, local []int
	whole := make(map[string]bool) // jobs included as a whole; naming their ranks again adds nothing
	for _, p := range of {
		job := n.jobs[p.Job]
		if job == nil || p.Rank < AllRanks || p.Rank >= len(job.Nodes) {
			return rendezvous.Group{}, fmt.Errorf("cannot find %v for a collective operation: %w", p, NotFound)
		}
		first, last := p.Rank, p.Rank
		if p.Rank == AllRanks {
			first, last = 0, len(job.Nodes)-1
		}
		if whole[p.Job] {
			continue
		}
		whole[p.Job] = p.Rank == AllRanks
		for rank := first; rank <= last; rank++ {
			all = append(all, job.FirstNumber+rank)
			if job.Nodes[rank] == n.nodeIndex {
				local = append(local, job.FirstNumber+rank)
			}
		}
	}
	slices.Sort(all)
	return rendezvous.Group{Ranks: textutil.FormatRanges(slices.Compact(all)), Local: local}, nil
}

// GatherProcs exchanges data with the other nodes that have any of the given processes. It is
// called when all of them on this node have entered. It returns the data of all nodes, concatenated
// in any order.
func (n *Node) GatherProcs(ctx context.Context, kind CollectiveKind, of []ProcID, data []byte) ([]byte, error) {
	group, err := n.resolveGroup(of)
	if err != nil {
		return nil, err
	}
	all, err := n.transport.GatherGroup(ctx, string(kind), group, data)
	if err != nil {
		ctxutil.SleepContext(ctx, n.FailureDelay)
	}
	return all, err
}

// EnterProcs enters a process of this node into a collective operation of the given processes, and
// waits until all of them have entered, or until ctx ends.
func (n *Node) EnterProcs(
	ctx context.Context, kind CollectiveKind, of []ProcID, who ProcID, data rendezvous.Exchange,
) error {
	group, err := n.resolveGroup(of)
	if err != nil {
		return err
	}
	if err = n.transport.EnterGroup(ctx, string(kind), group, n.RunNumber(who), data); err != nil {
		ctxutil.SleepContext(ctx, n.FailureDelay)
	}
	return err
}

// FetchModex returns the data that a rank of another node has committed. The error is NotFound if
// there is no such rank.
func (n *Node) FetchModex(ctx context.Context, of ProcID) ([]byte, error) {
	a, err := n.callHead(ctx, opModex, operation{Proc: of})
	return a.Data, err
}

// PublishEntries publishes entries for all jobs. The error is Duplicate if one of the keys is
// already published.
func (n *Node) PublishEntries(ctx context.Context, entries []Entry) error {
	_, err := n.callHead(ctx, opPublish, operation{Entries: entries})
	return err
}

// LookupEntries returns the entries that are published under the given keys: those that exist now,
// or, if wait is set, all of them once they exist. The error is NotFound if none exists and wait is
// not set.
func (n *Node) LookupEntries(ctx context.Context, keys []string, wait bool) ([]Entry, error) {
	q := operation{Keys: keys, Wait: wait}
	if deadline, set := ctx.Deadline(); set { // the head must not wait any longer
		q.Timeout = max(time.Until(deadline), time.Nanosecond)
	}
	a, err := n.callHead(ctx, opLookup, q)
	return a.Entries, err
}

// UnpublishEntries removes the entries with the given keys; without keys, all entries that by has
// published.
func (n *Node) UnpublishEntries(ctx context.Context, by ProcID, keys []string) error {
	_, err := n.callHead(ctx, opUnpublish, operation{Proc: by, Keys: keys})
	return err
}

// NotifyNodes sends an event to the other nodes.
func (n *Node) NotifyNodes(ctx context.Context, event Event) error {
	_, err := n.callHead(ctx, opNotify, operation{Event: &event})
	return err
}

// SpawnJob starts a new job and returns its name once its ranks have been started.
func (n *Node) SpawnJob(ctx context.Context, s SpawnRequest) (string, error) {
	if len(s.Commands) == 0 {
		return "", fmt.Errorf("cannot spawn: no commands were given: %w", BadParam)
	}
	a, err := n.callHead(ctx, opSpawn, operation{Spawn: &s})
	return a.Job, err
}

// ReportJobEnd reports to the head that all ranks of a spawned job on this node have ended.
func (n *Node) ReportJobEnd(ctx context.Context, job string) error {
	_, err := n.callHead(ctx, opEnded, operation{Proc: ProcID{job, AllRanks}})
	return err
}

// callHead requests an operation from the head and waits for the result.
func (n *Node) callHead(ctx context.Context, name string, q operation) (response, error) {
	a, err := q.request(func(data []byte) ([]byte, error) { return n.transport.CallHead(ctx, name, data) })
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return a, err
}
