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

// Meeting is how a node reaches the others: a *meeting.Node.
type Meeting interface {
	Call(ctx context.Context, name string, data []byte) ([]byte, error)
	Gather(ctx context.Context, name string, of meeting.Group, data []byte, need bool) ([]byte, error)
	Arrive(name string, of meeting.Group, rank int)
	Add(places []meeting.Place)
}

// Server is who serves the ranks of this node.
type Server interface {
	// Add has a job known, also one without ranks here.
	Add(ctx context.Context, job *Job) error
	// Start starts those of a spawned job's ranks that are to run here.
	Start(ctx context.Context, job *Job, s Spawn) error
	// Modex returns what a rank of this node has committed.
	Modex(ctx context.Context, of Proc) ([]byte, error)
	// Tell tells the ranks here of an event on another node.
	Tell(ctx context.Context, event Event) error
	// Remove forgets a job that is over.
	Remove(ctx context.Context, job string) error
}

// Node is a node's side: what those who serve its ranks ask of the others. Its methods may be called at the same time.
type Node struct {
	meet   Meeting
	place  int
	server Server
	// Patience is how long those who wait for a process that has died are not told: it ends the job, of which they would else be the first to
	// fail.
	Patience time.Duration

	mu   sync.Mutex
	jobs map[string]*Job
}

// NewNode returns the side of the node at that place. The server is asked nothing before Do is called.
func NewNode(meet Meeting, place int, server Server) *Node {
	return &Node{meet: meet, place: place, server: server, jobs: make(map[string]*Job)}
}

// Do does what the head orders: a meeting.Operation.
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

// Add has a job known here.
func (n *Node) Add(ctx context.Context, job *Job) error {
	n.mu.Lock()
	n.jobs[job.Name] = job
	n.mu.Unlock()
	return n.server.Add(ctx, job)
}

func (n *Node) remove(ctx context.Context, name string) error {
	n.mu.Lock()
	delete(n.jobs, name)
	n.mu.Unlock()
	return n.server.Remove(ctx, name)
}

// Number is the number in the run of a process; -1 where it is not known.
func (n *Node) Number(of Proc) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.jobs[of.Job].Number(of.Rank)
}

// group is these processes as they meet.
func (n *Node) group(of []Proc) (meeting.Group, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all, local []int
	whole := make(map[string]bool) // jobs of which all are in it: naming one again adds nothing
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

// fenceName is what people are told that ranks wait in.
func fenceName(kind Meet) string { return "MPI " + string(kind) }

// Gather meets the other nodes that have any of these processes, once all of this node have come; it returns what all nodes gave, one after
// the other, in any order.
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

// Entered tells that one of these processes has come to where Gather will bring all.
func (n *Node) Entered(kind Meet, of []Proc, who Proc) {
	if group, err := n.group(of); err == nil {
		n.meet.Arrive(fenceName(kind), group, n.Number(who))
	}
}

// Modex returns what a rank of another node has committed. Its error is NotFound where there is no such rank.
func (n *Node) Modex(ctx context.Context, of Proc) ([]byte, error) {
	a, err := n.call(ctx, opModex, question{Of: of})
	return a.Data, err
}

// Publish makes entries known to all jobs. Its error is Duplicate where one of a key is.
func (n *Node) Publish(ctx context.Context, entries []Entry) error {
	_, err := n.call(ctx, opPublish, question{Entries: entries})
	return err
}

// Lookup returns what was published under these keys: that of them which is, or, where it is to wait, all of it once it is. Its error is
// NotFound where nothing is.
func (n *Node) Lookup(ctx context.Context, keys []string, wait bool) ([]Entry, error) {
	a, err := n.call(ctx, opLookup, question{Keys: keys, Wait: wait})
	return a.Entries, err
}

// Unpublish takes back what was published under these keys, or all that by has where none is named.
func (n *Node) Unpublish(ctx context.Context, by Proc, keys []string) error {
	_, err := n.call(ctx, opUnpublish, question{Of: by, Keys: keys})
	return err
}

// Notify tells the other nodes of an event.
func (n *Node) Notify(ctx context.Context, event Event) error {
	_, err := n.call(ctx, opNotify, question{Event: &event})
	return err
}

// Spawn starts a new job, and returns its name once its ranks run.
func (n *Node) Spawn(ctx context.Context, s Spawn) (string, error) {
	if len(s.Commands) == 0 {
		return "", fmt.Errorf("cannot spawn nothing: %w", BadParam)
	}
	a, err := n.call(ctx, opSpawn, question{Spawn: &s})
	return a.Job, err
}

// Ended tells that all ranks that a spawned job had here have ended.
func (n *Node) Ended(ctx context.Context, job string) error {
	_, err := n.call(ctx, opEnded, question{Of: Proc{job, All}})
	return err
}

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
