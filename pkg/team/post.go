package team

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Post is a node's place in the membership, and its service in that place.
type Post struct {
	Owner

	// Seat is nil if this node has no place. Without spares it is the place that the launch gives.
	Seat    atomic.Pointer[Seat]
	Aside   atomic.Bool // the job continues without this node, which was a member or has failed
	SawGate atomic.Bool // a spare or a member has seen the open gate

	mu     sync.Mutex
	tenure *tenure // the running service; used only by the task that follows the membership
}

// Owner has the functions of a post's node.
type Owner struct {
	Background func(task func(ctx context.Context))
	End        func(err error)      // ends the node's part in the run
	Stop       func(service string) // ends a service of the node
}

// Seat is a place in the membership, as in the environment of the service there.
type Seat struct {
	Rank, Size int
	Since      int // first generation with this place for the node
}

// tenure is the assignment of a node to a place, with its service.
type tenure struct {
	seat    *Seat
	service string // name of the worker's child process; empty before it starts
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the function that starts the service has returned
}

// errMoved is the cause of a tenure's context when the node gets another place.
var errMoved = errors.New("this node's place in the team has changed")

// Take runs the node's worker in a place, after ending the one in its present place, if any. It is
// not safe for concurrent use.
func (p *Post) Take(ctx context.Context, place *Seat, run func(ctx context.Context) error) {
	p.Leave()
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tenure{seat: place, cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
	p.tenure = t
	p.mu.Unlock()
	p.Seat.Store(place)
	p.Background(func(context.Context) {
		defer close(t.done)
		if err := run(ctx); err != nil && p.Seat.Load() == place {
			p.End(err)
		}
	})
}

// Taken reports whether a worker runs in a place, and since which generation. Only the task that
// follows the membership may call it.
func (p *Post) Taken() (since int, is bool) {
	if p.tenure == nil {
		return 0, false
	}
	return p.tenure.seat.Since, true
}

// Occupy records the service in this node's place.
func (p *Post) Occupy(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenure != nil {
		p.tenure.service = service
	}
}

// Leave ends the service in the node's place, if it has one.
func (p *Post) Leave() {
	t := p.tenure
	if t == nil {
		return
	}
	p.Seat.Store(nil)
	t.cancel(errMoved)
	<-t.done
	p.Stop(t.service)
	p.mu.Lock()
	p.tenure = nil
	p.mu.Unlock()
}

// StandsBy reports whether this node has no part in a running job.
func (p *Post) StandsBy() bool { return p.SawGate.Load() && p.Seat.Load() == nil }
