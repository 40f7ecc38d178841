package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// muster makes the team that a look at Nodes asks for, and publishes it.
func (h *head) muster(l signal.Listing) {
	if !h.roster.spares || h.life.Err() != nil {
		return
	}
	h.late(l)
	record := h.roster.next(l.Ranks(h.fit()), l.At, h.cfg.Times.Join/patiencePart)
	if record == nil {
		return
	}
	if err := h.publish(signal.Control, signal.TeamName(record.Generation), record, false); err != nil {
		h.end(asFailure(err))
		return
	}
	h.roster.take(record)
	h.log.Info("chose the team", zap.Int("generation", record.Generation), zap.String("team", h.hostsOf(h.roster.ranks())))
	h.nodes.Nudge() // for those who wait for the team
}

// fit is the state of a node that can be in the team.
func (h *head) fit() string {
	if h.cfg.checked() {
		return signal.Checked
	}
	return signal.Joined
}

// patiencePart is which part of the join timeout passes, since the last node has
// become ready, until the head takes what the driver needs for all there will be.
const patiencePart = 8

// late drops the nodes that have not come in time. A node that has joined has
// a deadline of its own for its check, and reports what failed: this one is for
// a node that does neither.
func (h *head) late(l signal.Listing) {
	if waited := time.Since(h.began); waited > h.cfg.Times.Join {
		if missing := h.roster.unknown(l.Missing(signal.Joined, h.id.Size)); len(missing) > 0 {
			h.lateBy(h.unmet(missing), l.At)
		}
	}
	within := h.cfg.Times.Join + h.cfg.checkTime() + h.tempo.Silent
	if !h.cfg.checked() || time.Since(h.began) < within {
		return
	}
	if missing := h.roster.unknown(l.Missing(signal.Checked, h.id.Size)); len(missing) > 0 {
		f := failed(health.Deadline, "the head waited %s for %s to be checked, and they neither were nor failed", within, h.hostsOf(missing))
		f.Lost = missing
		h.lateBy(f, l.At)
	}
}

func (h *head) lateBy(f *failure, at time.Time) {
	f.Header, f.Phase = h.header(), "join"
	h.observe(f.FailedRecord, at)
}

// excused takes in a failure that the job goes on without.
func (h *head) excused(seen health.Observed) bool {
	goesOn, news := h.roster.excuse(seen, h.id.HostOf)
	if !goesOn || !news {
		return goesOn
	}
	h.trail.Event(trail.Dropped, trail.Fields{Of: &seen.Rank, Kind: seen.Kind, What: seen.What})
	h.log.Warn("a node is dropped, and the job goes on: "+seen.What, zap.String("kind", seen.Kind))
	h.nodes.Nudge()
	return true
}

// errTeamChanged is the cause of the contexts of whatever was done for a team
// when there is another.
var errTeamChanged = errors.New("there is another team")

// whileTeam returns a context that ends when there is another team, too.
func (h *head) whileTeam(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.background(func(context.Context) {
		select {
		case <-changed:
			cancel(errTeamChanged)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// assemble waits, once there is a team, until all of it is up and the framework
// counts it; where the team changes meanwhile, it begins anew. led is closed
// when the head's service is up.
func (h *head) assemble(ctx context.Context, led <-chan struct{}) error {
	for {
		_, changed, err := h.awaitTeam(ctx)
		if err != nil {
			return err
		}
		own, stop := h.whileTeam(ctx, changed)
		err = h.raise(own, ctx, led)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errTeamChanged):
		case err != nil:
			return err
		case h.roster.freeze(changed):
			return nil
		default: // a member has gone, and the look that showed it makes another team
			if !waitFor(ctx, changed) {
				return context.Cause(ctx)
			}
		}
	}
}

func waitFor(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitTeam waits for the first team, and returns the present one.
func (h *head) awaitTeam(ctx context.Context) ([]signal.Member, <-chan struct{}, error) {
	for {
		members, changed := h.roster.team()
		if members != nil {
			return members, changed, nil
		}
		if !waitFor(ctx, changed) {
			return nil, nil, context.Cause(ctx)
		}
	}
}

// teamHosts are the hosts of the team, by place.
func (h *head) teamHosts() []string {
	hosts := h.hosts()
	if !h.roster.spares {
		return hosts
	}
	var team []string
	for _, rank := range h.roster.ranks() {
		team = append(team, hosts[rank])
	}
	return team
}

// listTeam tells in the result who the driver got, and who was dropped.
func (h *head) listTeam(result *signal.Result) {
	if !h.roster.spares {
		return
	}
	h.hear() // who stands by may have failed a moment ago
	result.Team, result.Dropped = h.roster.ranks(), h.dropped()
}

// dropped are the nodes that the job did without: those that failed or were
// lost, and those that have not come.
func (h *head) dropped() []signal.DroppedRank {
	dropped := h.roster.dropped()
	if !h.roster.spares {
		return dropped
	}
	for _, rank := range h.nodes.Last().Missing(signal.Joined, h.id.Size) {
		if !slices.ContainsFunc(dropped, func(d signal.DroppedRank) bool { return d.Rank == rank }) {
			dropped = append(dropped, signal.DroppedRank{Rank: rank, Host: h.id.HostOf(rank), Why: "it did not join"})
		}
	}
	return dropped
}

// tellDropped names, in the last words, the nodes that the job did without.
func (h *head) tellDropped() {
	for _, dropped := range h.dropped() {
		h.log.Warn("the job did without " + h.name(dropped.Rank) + ": " + dropped.Why)
	}
}
