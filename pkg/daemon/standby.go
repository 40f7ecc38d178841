package daemon

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// standBy is a worker's part of the sequence where there are spares: it waits
// for a place in the team, and runs what belongs there. A node that gets none
// starts nothing and stays until the end. Its error is the *run.Ending that was
// published, or what failed here.
func (w *worker) standBy(ctx context.Context) error {
	w.Trail.Enter("stand-by")
	w.Control.Quicken()
	for seen := -1; ; {
		last, err := w.Control.Follow(ctx, func(l signal.Listing) bool {
			return l.Team() > seen || l.Has(signal.NameGo) && !w.post.SawGate.Load() && seen >= 0
		})
		if err != nil {
			return context.Cause(w.Life)
		}
		generation := last.Team()
		if generation <= seen { // the gate: no more teams are to be expected
			w.post.SawGate.Store(true)
			w.relax()
			if w.post.Seat.Load() != nil {
				w.Trail.Enter("driver")
				w.isUp("up")
				w.Background(func(context.Context) {
					if err := w.joinWorld(w.Life); err != nil {
						w.End(err)
					}
				})
			} else {
				w.isUp("stands by")
			}
			continue
		}
		var record signal.TeamRecord
		err = w.Dir.Read(ctx, signal.Control, signal.TeamName(generation), &record)
		if ctx.Err() != nil {
			return context.Cause(w.Life)
		}
		if err != nil {
			return health.AsFailure(err)
		}
		w.follow(ctx, &record)
		seen = generation
	}
}

// follow does what a team asks of this node.
func (w *worker) follow(ctx context.Context, record *signal.TeamRecord) {
	place := record.Place(w.id.Rank)
	since, taken := w.post.Taken()
	switch {
	case place < 0 && !taken:
		w.Log.Info("this node stands by", zap.Int("generation", record.Generation))
	case place < 0:
		w.Log.Warn("this node is dropped from the team, and stands by until the end: " + whyDropped(record, w.id.Rank))
		w.retire()
	case w.post.Aside.Load(): // what was dropped is not taken in again
	case !taken || since != record.Members[place].Since:
		if !taken {
			w.Log.Info("this node is in the team", zap.Int("place", place), zap.Int("of", len(record.Members)))
			w.Background(func(context.Context) {
				if err := w.serveSandbox(ctx); err != nil && !w.post.Aside.Load() {
					w.End(err)
				}
			})
		}
		next := &team.Seat{Rank: place, Size: len(record.Members), Since: record.Members[place].Since}
		w.post.Take(ctx, next, func(ctx context.Context) error { return w.serveSeat(ctx, next) })
	}
}

// serveSeat brings this node's worker up once the head's service is.
func (w *worker) serveSeat(ctx context.Context, place *team.Seat) error {
	if !w.cfg.Framework.Serves() {
		return nil
	}
	endpoint, err := w.awaitHead(ctx)
	if err != nil {
		return err
	}
	return w.Phase("workers", func() error { return w.serveWorker(ctx, endpoint, place) })
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
func (w *worker) retire() {
	w.post.Aside.Store(true)
	w.post.Leave()
	w.children.Stop(config.AbortGrace, everything)
}

// dispensable tells whether the job may go on without this node, in which
// something failed: the head decides.
func (w *worker) dispensable(f *health.Failure) bool {
	if !w.cfg.Spares() {
		return false
	}
	if w.post.Seat.Load() == nil && w.Control.Last().Team() >= 0 {
		return true // whatever it is
	}
	if w.post.SawGate.Load() || w.Control.Last().Has(signal.NameGo) {
		return false
	}
	return !slices.Contains(f.Lost, 0) && !team.Mistaken(health.Kind(f.Kind))
}

// standAside ends what runs on this node, and stays until the end is published,
// which it returns. Where it can't be heard of, because the head is lost, or the
// share has not answered for long, or somebody wants this node alone to end,
// the node leaves with 0: what became of the job, others tell.
func (w *worker) standAside(f *health.Failure) *run.Ending {
	w.retire()
	w.keepEvidence(&run.Ending{Cause: &f.FailedRecord})
	ctx, cancel := context.WithCancelCause(w.Led)
	defer cancel(nil)
	defer context.AfterFunc(w.Ended, func() { cancel(context.Cause(w.Ended)) })()
	ctx, stop := w.WhileAnswered(ctx, w.cfg.Times.Join)
	defer stop()
	if health.Gentle(health.Kind(f.Kind)) || slices.Contains(f.Lost, 0) {
		var enough context.CancelFunc
		ctx, enough = context.WithTimeoutCause(ctx, w.tempo.Silent+w.cfg.Times.DriverGrace, errDeadline)
		defer enough()
	}
	w.Log.Warn("this node stands aside, and the job may go on without it: " + f.What)
	w.relax()
	<-ctx.Done()
	if end, ok := errors.AsType[*run.Ending](context.Cause(w.Ended)); ok {
		return end
	}
	return &run.Ending{Orderly: true, Word: "dropped", Why: f.What}
}

// awaitHead waits until the head's service is up.
func (w *worker) awaitHead(ctx context.Context) (framework.Endpoint, error) {
	var endpoint framework.Endpoint
	err := w.Phase("head", func() error {
		within := w.cfg.CheckTime() + w.cfg.Times.Service + w.tempo.Silent
		ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		w.Control.Nudge() // it may have been there before us
		_, err := w.Control.Wait(ctx, func(l signal.Listing) bool { return l.Has(signal.NameHead) })
		if errors.Is(err, errDeadline) {
			return health.Failed(health.Deadline, "%s waited %s for the service of the head, %s, which neither came up nor failed",
				w.name(w.id.Rank), within, w.name(0))
		}
		if err != nil {
			return err
		}
		var record signal.HeadRecord
		err = w.Dir.Read(ctx, signal.Control, signal.NameHead, &record)
		if errors.Is(err, errDeadline) {
			return health.Failed(health.Share, "%v", err)
		}
		if err != nil {
			return err
		}
		endpoint = framework.Endpoint{Address: record.Address, Env: record.Env}
		w.surroundings.Store(&surroundings{endpoint: endpoint})
		return nil
	})
	return endpoint, err
}
