package pmi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Meeting is a node's connection to the other nodes. *meeting.Node implements it.
type Meeting interface {
	Call(ctx context.Context, name string, data []byte) ([]byte, error)
	Gather(ctx context.Context, name string, of meeting.Group, data []byte, need bool) ([]byte, error)
	Arrive(name string, of meeting.Group, rank int)
	Add(places []meeting.Place)
}

// Server serves the ranks of this node.
type Server interface {
	// Add registers a job, including jobs without ranks on this node.
	Add(ctx context.Context, job *Job) error
	// Start starts this node's ranks of a spawned job.
	Start(ctx context.Context, job *Job, s Spawn) error
	// Modex returns the data that a rank of this node has committed.
	Modex(ctx context.Context, of Proc) ([]byte, error)
	// Tell notifies the ranks of this node of an event on another node.
	Tell(ctx context.Context, event Event) error
	// Remove removes a job that has ended.
	Remove(ctx context.Context, job string) error
}

// Node is the node's side: servers use it for the operations that involve other nodes. Its methods
// are safe for concurrent use.
type Node struct {
	meet   Meeting
	place  int // node index
	server Server
	// Patience is the delay before a failed [Node.Gather] returns. The death of a process ends the
	// job; without the delay, the processes that wait for it could fail first and obscure the cause.
	Patience time.Duration

	mu   sync.Mutex
	jobs map[string]*Job
}

// NewNode returns the side of the node with the given index. It calls the server only from
// [Node.Do] and [Node.Add].
func NewNode(meet Meeting, place int, server Server) *Node {
	return &Node{meet: meet, place: place, server: server, jobs: make(map[string]*Job)}
}

// Do executes an order of the head. It is a meeting.Operation.
func (n *Node) Do(ctx context.Context, _ int, name string, data []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("cannot read what the head orders: %w", err)
	}
	var a answer
	var err error
	switch name {
	case opAdd:
		n.meet.Add(q.Job.Places())
		err = n.Add(ctx, q.Job)
	case opStart:
		err = n.server.Start(ctx, q.Job, *q.Spawn)
	case opModex:
		a.Data, err = n.server.Modex(ctx, q.Of)
	case opNotify:
		err = n.server.Tell(ctx, *q.Event)
	case opRemove:
		err = n.remove(ctx, q.Of.Job)
	default:
		err = fmt.Errorf("cannot do %q: %w", name, NotSupported)
	}
	if err != nil {
		a = answer{Status: StatusOf(err), Words: err.Error()}
	}
	return json.Marshal(a)
}

// Add registers a job on this node.
func (n *Node) Add(ctx context.Context, job *Job) error {
	n.mu.Lock()
	n.jobs[job.Name] = job
	n.mu.Unlock()
	return n.server.Add(ctx, job)
}

// remove removes a job that has ended from this node.
func (n *Node) remove(ctx context.Context, name string) error {
	n.mu.Lock()
	delete(n.jobs, name)
	n.mu.Unlock()
	return n.server.Remove(ctx, name)
}

// Number returns the run-wide number of a process; -1 if it is unknown.
func (n *Node) Number(of Proc) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.jobs[of.Job].Number(of.Rank)
}

// group returns the rendezvous group of the given processes. The error is NotFound if one of them
// is unknown.
func (n *Node) group(of []Proc) (meeting.Group, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all, local []int
	whole := make(map[string]bool) // jobs included as a whole; naming their ranks again adds nothing
	for _, p := range of {
		job := n.jobs[p.Job]
		if job == nil || p.Rank < All || p.Rank >= len(job.Nodes) {
			return meeting.Group{}, fmt.Errorf("cannot meet %v: it is not known: %w", p, NotFound)
		}
		first, last := p.Rank, p.Rank
		if p.Rank == All {
			first, last = 0, len(job.Nodes)-1
		}
		if whole[p.Job] {
			continue
		}
		whole[p.Job] = p.Rank == All
		for rank := first; rank <= last; rank++ {
			all = append(all, job.First+rank)
			if job.Nodes[rank] == n.place {
				local = append(local, job.First+rank)
			}
		}
	}
	slices.Sort(all)
	return meeting.Group{Ranks: prose.Ranges(slices.Compact(all)), Local: local}, nil
}

// fenceName returns the name of a collective operation that warnings show to users.
func fenceName(kind Meet) string { return "MPI " + string(kind) }

// Gather exchanges data with the other nodes that have any of the given processes. It is called
// when all of them on this node have entered. It returns the data of all nodes, concatenated in any
// order.
func (n *Node) Gather(ctx context.Context, kind Meet, of []Proc, data []byte) ([]byte, error) {
	group, err := n.group(of)
	if err != nil {
		return nil, err
	}
	all, err := n.meet.Gather(ctx, fenceName(kind), group, data, kind == Barrier)
	if err != nil {
		pause.For(ctx, n.Patience)
	}
	return all, err
}

// Entered records that a process has entered a collective operation for which [Node.Gather] will be
// called when all local processes have entered.
func (n *Node) Entered(kind Meet, of []Proc, who Proc) {
	if group, err := n.group(of); err == nil {
		n.meet.Arrive(fenceName(kind), group, n.Number(who))
	}
}

// Modex returns the data that a rank of another node has committed. The error is NotFound if there
// is no such rank.
func (n *Node) Modex(ctx context.Context, of Proc) ([]byte, error) {
	a, err := n.call(ctx, opModex, question{Of: of})
	return a.Data, err
}

// Publish publishes entries for all jobs. The error is Duplicate if one of the keys is already
// published.
func (n *Node) Publish(ctx context.Context, entries []Entry) error {
	_, err := n.call(ctx, opPublish, question{Entries: entries})
	return err
}

// Lookup returns the entries that are published under the given keys: those that exist now, or, if
// wait is set, all of them once they exist. The error is NotFound if none exists and wait is not
// set.
func (n *Node) Lookup(ctx context.Context, keys []string, wait bool) ([]Entry, error) {
	a, err := n.call(ctx, opLookup, question{Keys: keys, Wait: wait})
	return a.Entries, err
}

// Unpublish removes the entries with the given keys; without keys, all entries that by has
// published.
func (n *Node) Unpublish(ctx context.Context, by Proc, keys []string) error {
	_, err := n.call(ctx, opUnpublish, question{Of: by, Keys: keys})
	return err
}

// Notify sends an event to the other nodes.
func (n *Node) Notify(ctx context.Context, event Event) error {
	_, err := n.call(ctx, opNotify, question{Event: &event})
	return err
}

// Spawn starts a new job and returns its name once its ranks have been started.
func (n *Node) Spawn(ctx context.Context, s Spawn) (string, error) {
	if len(s.Commands) == 0 {
		return "", fmt.Errorf("cannot spawn nothing: %w", BadParam)
	}
	a, err := n.call(ctx, opSpawn, question{Spawn: &s})
	return a.Job, err
}

// Ended reports to the head that all ranks of a spawned job on this node have ended.
func (n *Node) Ended(ctx context.Context, job string) error {
	_, err := n.call(ctx, opEnded, question{Of: Proc{job, All}})
	return err
}

// call requests an operation from the head and waits for the result.
func (n *Node) call(ctx context.Context, name string, q question) (answer, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	a, err := answered(n.meet.Call(ctx, name, data))
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return a, err
}
