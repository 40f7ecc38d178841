package daemon

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

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
	n.mu.Lock()
	n.tenure = t
	n.mu.Unlock()
	n.seat.Store(place)
	n.background(func(context.Context) {
		defer close(t.done)
		if err := run(ctx); err != nil && n.seat.Load() == place {
			n.end(err)
		}
	})
}

// occupy notes what runs in this node's place.
func (n *node) occupy(service string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tenure != nil {
		n.tenure.service = service
	}
}

// leaveSeat ends what runs in the node's place, if it has one.
func (n *node) leaveSeat() {
	t := n.tenure
	if t == nil {
		return
	}
	n.seat.Store(nil)
	t.cancel(errMoved)
	<-t.done
	n.stopEach(n.cfg.Times.StopGrace, func(child *process.Child) bool { return child.Name() == t.service })
	n.mu.Lock()
	n.tenure = nil
	n.mu.Unlock()
}

// takeOwnSeat runs the head's own worker in the place that the team gives it,
// which is always the first.
func (h *head) takeOwnSeat(ctx context.Context) {
	members, _ := h.roster.team()
	if h.tenure != nil && h.tenure.seat.since == members[0].Since {
		return
	}
	place := &seat{size: len(members), since: members[0].Since}
	h.takeSeat(ctx, place, func(ctx context.Context) error { return h.serveWorker(ctx, h.endpoint, place) })
}

// standBy is a worker's part of the sequence where there are spares: it waits
// for a place in the team, and runs what belongs there. A node that gets none
// starts nothing and stays until the end. Its error is the *ending that was
// published, or what failed here.
func (n *node) standBy(ctx context.Context) error {
	n.trail.Enter("stand-by")
	n.control.Quicken()
	for seen := -1; ; {
		last, err := n.control.Follow(ctx, func(l signal.Listing) bool {
			return l.Team() > seen || l.Has(signal.NameGo) && !n.sawGate.Load() && seen >= 0
		})
		if err != nil {
			return context.Cause(n.life)
		}
		generation := last.Team()
		if generation <= seen { // the gate: no more teams are to be expected
			n.sawGate.Store(true)
			n.relax()
			if n.seat.Load() != nil {
				n.trail.Enter("driver")
				n.isUp("up")
			} else {
				n.isUp("stands by")
			}
			continue
		}
		var record signal.TeamRecord
		err = n.dir.Read(ctx, signal.Control, signal.TeamName(generation), &record)
		if ctx.Err() != nil {
			return context.Cause(n.life)
		}
		if err != nil {
			return asFailure(err)
		}
		n.heed(ctx, &record)
		seen = generation
	}
}

// heed does what a team asks of this node.
func (n *node) heed(ctx context.Context, team *signal.TeamRecord) {
	place := team.Place(n.id.Rank)
	switch {
	case place < 0 && n.tenure == nil:
		n.log.Info("this node stands by", zap.Int("generation", team.Generation))
	case place < 0:
		n.log.Warn("this node is dropped from the team, and stands by until the end: " + whyDropped(team, n.id.Rank))
		n.retire()
	case n.aside.Load(): // what was dropped is not taken in again
	case n.tenure == nil || n.tenure.seat.since != team.Members[place].Since:
		if n.tenure == nil {
			n.log.Info("this node is in the team", zap.Int("place", place), zap.Int("of", len(team.Members)))
			n.background(func(context.Context) {
				if err := n.serveSandbox(ctx); err != nil && !n.aside.Load() {
					n.end(err)
				}
			})
		}
		next := &seat{rank: place, size: len(team.Members), since: team.Members[place].Since}
		n.takeSeat(ctx, next, func(ctx context.Context) error { return n.serveSeat(ctx, next) })
	}
}

// serveSeat brings this node's worker up once the head's service is.
func (n *node) serveSeat(ctx context.Context, place *seat) error {
	if !n.cfg.Framework.Serves() {
		return nil
	}
	endpoint, err := n.awaitHead(ctx)
	if err != nil {
		return err
	}
	return n.phase("workers", func() error { return n.serveWorker(ctx, endpoint, place) })
}

func whyDropped(team *signal.TeamRecord, rank int) string {
	for _, dropped := range team.Dropped {
		if dropped.Rank == rank {
			return dropped.Why
		}
	}
	return "the head does not say why"
}

// retire ends all that runs on this node: the job goes on without it.
func (n *node) retire() {
	n.aside.Store(true)
	n.leaveSeat()
	n.stopEach(abortGrace, func(*process.Child) bool { return true })
}

// standsBy tells whether this node has no part in a job that is under way.
func (n *node) standsBy() bool { return n.sawGate.Load() && n.seat.Load() == nil }

// standbyPart is how many beats of a node are one of a node that stands by.
const standbyPart = 8

// standbyTempo is that of those who stand by, for the head: their death is worth
// knowing, and not worth much of the share.
func standbyTempo(tempo health.Tempo) health.Tempo {
	tempo.Beat, tempo.Silent = standbyPart*tempo.Beat, standbyPart*tempo.Silent
	return tempo
}

// dispensable tells whether the job may go on without this node, in which
// something failed: the head decides.
func (n *node) dispensable(f *failure) bool {
	if !n.cfg.spares() {
		return false
	}
	if n.seat.Load() == nil && n.control.Last().Team() >= 0 {
		return true // whatever it is
	}
	if n.sawGate.Load() || n.control.Last().Has(signal.NameGo) {
		return false
	}
	return !slices.Contains(f.Lost, 0) && !mistaken(health.Kind(f.Kind))
}

// standAside ends what runs on this node, and stays until the end is published,
// which it returns. Where it can't be heard of, because the head is lost, or the
// share has not answered for long, or somebody wants this node alone to end,
// the node leaves with 0: what became of the job, others tell.
func (n *node) standAside(f *failure) *ending {
	n.retire()
	n.keepEvidence(&ending{cause: &f.FailedRecord})
	ctx, cancel := context.WithCancelCause(n.led)
	defer cancel(nil)
	defer context.AfterFunc(n.ended, func() { cancel(context.Cause(n.ended)) })()
	ctx, stop := n.whileAnswered(ctx, n.cfg.Times.Join)
	defer stop()
	if gentle(health.Kind(f.Kind)) || slices.Contains(f.Lost, 0) {
		var enough context.CancelFunc
		ctx, enough = context.WithTimeoutCause(ctx, n.tempo.Silent+n.cfg.Times.DriverGrace, errDeadline)
		defer enough()
	}
	n.log.Warn("this node stands aside, and the job may go on without it: " + f.What)
	n.relax()
	<-ctx.Done()
	if end, ok := errors.AsType[*ending](context.Cause(n.ended)); ok {
		return end
	}
	return &ending{orderly: true, word: "dropped", why: f.What}
}
