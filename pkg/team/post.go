package team

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Post is a node's place in the team, and what runs in it.
type Post struct {
	Owner

	// Seat is nil where this node has no place. Where there are no spares it is
	// that of the launch.
	Seat    atomic.Pointer[Seat]
	Aside   atomic.Bool // the job goes on without this node, which was in the team or has failed
	SawGate atomic.Bool // a spare or a member has seen the open gate

	mu     sync.Mutex
	tenure *tenure // what runs in it; owned by who follows the team
}

// Owner is what a post has of its node.
type Owner struct {
	Background func(task func(ctx context.Context))
	End        func(err error)      // the run, as far as the node takes part in it
	Stop       func(service string) // ends a service of the node's
}

// Seat is a place in the team, as what runs there is told.
type Seat struct {
	Rank, Size int
	Since      int // the generation from which on it is this one
}

// tenure is what runs on a node for a place in the team.
type tenure struct {
	seat    *Seat
	service string // the name of the worker's child; empty before
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when nothing is being started any more
}

// errMoved is the cause of a tenure's context when the node's place is another.
var errMoved = errors.New("this node's place in the team has changed")

// Take runs the node's worker in a place; one that runs in another is ended
// first. It is not safe for concurrent use.
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

// Taken tells whether a worker runs in a place, and in that since which generation.
// It is for who follows the team.
func (p *Post) Taken() (since int, is bool) {
	if p.tenure == nil {
		return 0, false
	}
	return p.tenure.seat.Since, true
}

// Occupy notes what runs in this node's place.
func (p *Post) Occupy(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenure != nil {
		p.tenure.service = service
	}
}

// Leave ends what runs in the node's place, if it has one.
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

// StandsBy tells whether this node has no part in a job that is under way.
func (p *Post) StandsBy() bool { return p.SawGate.Load() && p.Seat.Load() == nil }
