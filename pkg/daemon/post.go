package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/run"
)

// post is this node's place in the team, and what runs in it.
type post struct {
	*run.Lifetime
	stop func(service string) // ends a service of this node's

	// seat is nil where this node has no place. Where there are no spares it is
	// that of the launch.
	seat    atomic.Pointer[seat]
	aside   atomic.Bool // the job goes on without this node, which was in the team or has failed
	sawGate atomic.Bool // a spare or a member has seen the open gate

	sandboxTold sync.Once // the failure of this node's sandbox is recorded

	mu     sync.Mutex
	tenure *tenure // what runs in it; owned by who follows the team
}

// seat is a place in the team, as what runs there is told.
type seat struct {
	rank, size int
	since      int // the generation from which on it is this one
}

// tenure is what runs on a node for a place in the team.
type tenure struct {
	seat    *seat
	service string // the name of the worker's child; empty before
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when nothing is being started any more
}

// errMoved is the cause of a tenure's context when the node's place is another.
var errMoved = errors.New("this node's place in the team has changed")

// take runs the node's worker in a place; one that runs in another is ended
// first. It is not safe for concurrent use.
func (p *post) take(ctx context.Context, place *seat, run func(ctx context.Context) error) {
	p.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tenure{seat: place, cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
	p.tenure = t
	p.mu.Unlock()
	p.seat.Store(place)
	p.Background(func(context.Context) {
		defer close(t.done)
		if err := run(ctx); err != nil && p.seat.Load() == place {
			p.End(err)
		}
	})
}

// occupy notes what runs in this node's place.
func (p *post) occupy(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenure != nil {
		p.tenure.service = service
	}
}

// leave ends what runs in the node's place, if it has one.
func (p *post) leave() {
	t := p.tenure
	if t == nil {
		return
	}
	p.seat.Store(nil)
	t.cancel(errMoved)
	<-t.done
	p.stop(t.service)
	p.mu.Lock()
	p.tenure = nil
	p.mu.Unlock()
}

// standsBy tells whether this node has no part in a job that is under way.
func (p *post) standsBy() bool { return p.sawGate.Load() && p.seat.Load() == nil }

// surroundings are what commands from outside are told of the run, once it is
// known.
type surroundings struct {
	endpoint framework.Endpoint
	hosts    []string // of the team; on the head alone
}
