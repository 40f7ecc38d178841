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

// standBy is the last part of a worker's sequence if there are spares. It follows the changes of
// the team, and runs the service of this node's place in it. A node without a place starts nothing
// and stays until the end of the run. The error is the published *run.Ending, or the failure of
// this node.
func (w *worker) standBy(ctx context.Context) error {
	w.Trail.Enter("stand-by")
	w.Control.Quicken()
	for seen := -1; ; { // seen is the generation of the newest team that this node has applied
		// Wait for the next team, or for the gate.
		last, err := w.Control.Follow(ctx, func(l signal.Listing) bool {
			return l.Team() > seen || l.Has(signal.NameGo) && !w.post.SawGate.Load() && seen >= 0
		})
		if err != nil {
			return context.Cause(w.Life)
		}
		generation := last.Team()
		if generation <= seen { // the gate is open, and the team does not change any more
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
		// Apply the new team.
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

// follow applies the team in record to this node: it starts, moves or ends the node's service.
func (w *worker) follow(ctx context.Context, record *signal.TeamRecord) {
	place := record.Place(w.id.Rank)
	since, taken := w.post.Taken()
	switch {
	case place < 0 && !taken:
		w.Log.Info("this node stands by", zap.Int("generation", record.Generation))
	case place < 0:
		w.Log.Warn("this node is dropped from the team, and stands by until the end: " + whyDropped(record, w.id.Rank))
		w.retire()
	case w.post.Aside.Load(): // a node that was dropped does not come back
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

// serveSeat brings up this node's worker service in place, once the head's service is up.
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

// whyDropped returns the reason for which a node was dropped from the team.
func whyDropped(team *signal.TeamRecord, rank int) string {
	for _, dropped := range team.Dropped {
		if dropped.Rank == rank {
			return dropped.Why
		}
	}
	return "the head does not say why"
}

// retire ends all children of this node, because the job continues without it. The daemon stays.
func (w *worker) retire() {
	w.post.Aside.Store(true)
	w.post.Leave()
	w.children.Stop(config.AbortGrace, everything)
}

// dispensable reports whether the job may continue without this node after its failure f. If so,
// the head decides whether it does.
func (w *worker) dispensable(f *health.Failure) bool {
	if !w.cfg.Spares() {
		return false
	}
	if w.post.Seat.Load() == nil && w.Control.Last().Team() >= 0 {
		return true // a spare, whose failure never matters
	}
	if w.post.SawGate.Load() || w.Control.Last().Has(signal.NameGo) {
		return false
	}
	return !slices.Contains(f.Lost, 0) && !team.Mistaken(health.Kind(f.Kind))
}

// standAside ends all children of this node after its failure f, waits until the end of the run is
// published, and returns that. If it does not come, because the head is lost, the file system has
// been unresponsive for long, or only this node was asked to end, it returns an orderly end, so
// that the node exits with 0: other nodes report the result of the job.
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

// awaitHead waits until the head's service is up, and returns its endpoint.
func (w *worker) awaitHead(ctx context.Context) (framework.Endpoint, error) {
	var endpoint framework.Endpoint
	err := w.Phase("head", func() error {
		within := w.cfg.CheckTime() + w.cfg.Times.Service + w.tempo.Silent
		ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		w.Control.Nudge() // poll at once, because it may be up already
		_, err := w.Control.Wait(ctx, func(l signal.Listing) bool { return l.Has(signal.NameHead) })
		if errors.Is(err, errDeadline) {
			return health.Failed(health.Deadline, "%s waited %s for the service of the head, %s, which neither came up nor failed",
				w.name(w.id.Rank), within, w.name(0))
		}
		if err != nil {
			return err
		}
		// Read its address.
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
