package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/bringupd/bringupd/pkg/health"
)

// post is this node's place in the team, and what runs in it.
type post struct {
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

// launchSeat is the place of a node that the launch gives it; nil where there
// are spares.
func (n *node) launchSeat() *seat {
	if n.cfg.spares() {
		return nil
	}
	return &seat{rank: n.id.Rank, size: n.id.Size}
}

// spares tells whether the job can do without some of its nodes.
func (c *Config) spares() bool { return c.Team.Of(c.Identity.Size).Min < c.Identity.Size }

// tenure is what runs on a node for a place in the team.
type tenure struct {
	seat    *seat
	service string // the name of the worker's child; empty before
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when nothing is being started any more
}

// errMoved is the cause of a tenure's context when the node's place is another.
var errMoved = errors.New("this node's place in the team has changed")

// takeSeat runs the node's worker in a place; one that runs in another is ended
// first. It is not safe for concurrent use.
func (n *node) takeSeat(ctx context.Context, place *seat, run func(ctx context.Context) error) {
	n.leaveSeat()
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tenure{seat: place, cancel: cancel, done: make(chan struct{})}
	n.post.mu.Lock()
	n.post.tenure = t
	n.post.mu.Unlock()
	n.post.seat.Store(place)
	n.background(func(context.Context) {
		defer close(t.done)
		if err := run(ctx); err != nil && n.post.seat.Load() == place {
			n.end(err)
		}
	})
}

// occupy notes what runs in this node's place.
func (n *node) occupy(service string) {
	n.post.mu.Lock()
	defer n.post.mu.Unlock()
	if n.post.tenure != nil {
		n.post.tenure.service = service
	}
}

// leaveSeat ends what runs in the node's place, if it has one.
func (n *node) leaveSeat() {
	t := n.post.tenure
	if t == nil {
		return
	}
	n.post.seat.Store(nil)
	t.cancel(errMoved)
	<-t.done
	n.children.Stop(n.cfg.Times.StopGrace, func(child string) bool { return child == t.service })
	n.post.mu.Lock()
	n.post.tenure = nil
	n.post.mu.Unlock()
}

// standsBy tells whether this node has no part in a job that is under way.
func (n *node) standsBy() bool { return n.post.sawGate.Load() && n.post.seat.Load() == nil }

// standbyPart is how many beats of a node are one of a node that stands by.
const standbyPart = 8

// standbyTempo is that of those who stand by, for the head: their death is worth
// knowing, and not worth much of the share.
func standbyTempo(tempo health.Tempo) health.Tempo {
	tempo.Beat, tempo.Silent = standbyPart*tempo.Beat, standbyPart*tempo.Silent
	return tempo
}
