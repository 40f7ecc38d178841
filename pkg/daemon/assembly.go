package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// patiencePart is which part of the join timeout passes, since the last node has
// become ready, until the head takes what the driver needs for all there will be.
const patiencePart = 8

// errTeamChanged is the cause of the contexts of whatever was done for a team
// when there is another.
var errTeamChanged = errors.New("there is another team")

// muster makes the team that a look at Nodes asks for, and publishes it.
func (a *assembly) muster(l signal.Listing) {
	if !a.roster.Spares() || a.Life.Err() != nil {
		return
	}
	a.late(l)
	record := a.roster.Next(l.Ranks(a.fit()), l.At, a.cfg.Times.Join/patiencePart)
	if record == nil {
		return
	}
	if err := a.Publish(signal.Control, signal.TeamName(record.Generation), record, false); err != nil {
		a.End(health.AsFailure(err))
		return
	}
	a.roster.Take(record)
	a.Log.Info("chose the team", zap.Int("generation", record.Generation), zap.String("team", a.hostsOf(a.roster.Ranks())))
	a.nodes.Nudge() // for those who wait for the team
}

// fit is the state of a node that can be in the team.
func (a *assembly) fit() string {
	if a.cfg.Checked() {
		return signal.Checked
	}
	return signal.Joined
}

// late drops the nodes that have not come in time. A node that has joined has
// a deadline of its own for its check, and reports what failed: this one is for
// a node that does neither.
func (a *assembly) late(l signal.Listing) {
	if waited := time.Since(a.began); waited > a.cfg.Times.Join {
		if missing := a.roster.Unknown(l.Missing(signal.Joined, a.id.Size)); len(missing) > 0 {
			a.lateBy(a.unmet(missing), l.At)
		}
	}
	within := a.cfg.Times.Join + a.cfg.CheckTime() + a.tempo.Silent
	if !a.cfg.Checked() || time.Since(a.began) < within {
		return
	}
	if missing := a.roster.Unknown(l.Missing(signal.Checked, a.id.Size)); len(missing) > 0 {
		f := health.Failed(health.Deadline, "the head waited %s for %s to be checked, and they neither were nor failed", within, a.hostsOf(missing))
		f.Lost = missing
		a.lateBy(f, l.At)
	}
}

func (a *assembly) lateBy(f *health.Failure, at time.Time) {
	f.Header, f.Phase = a.header(), "join"
	a.deaths.observe(f.FailedRecord, at)
}

// whileTeam returns a context that ends when there is another team, too.
func (a *assembly) whileTeam(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.Background(func(context.Context) {
		select {
		case <-changed:
			cancel(errTeamChanged)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// assemble waits, once there is a team, until all of it is up and the framework
// counts it; where the team changes meanwhile, it begins anew. raise brings it up.
func (a *assembly) assemble(ctx context.Context, raise func(ctx context.Context) error) error {
	for {
		_, changed, err := a.awaitTeam(ctx)
		if err != nil {
			return err
		}
		own, stop := a.whileTeam(ctx, changed)
		err = raise(own)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errTeamChanged):
		case err != nil:
			return err
		case a.roster.Freeze(changed):
			return nil
		default: // a member has gone, and the look that showed it makes another team
			if !pause.Await(ctx, changed) {
				return context.Cause(ctx)
			}
		}
	}
}

// awaitTeam waits for the first team, and returns the present one.
func (a *assembly) awaitTeam(ctx context.Context) ([]signal.Member, <-chan struct{}, error) {
	for {
		members, changed := a.roster.Team()
		if members != nil {
			return members, changed, nil
		}
		if !pause.Await(ctx, changed) {
			return nil, nil, context.Cause(ctx)
		}
	}
}

// teamHosts are the hosts of the team, by place.
func (a *assembly) teamHosts() []string {
	hosts := a.hosts()
	if !a.roster.Spares() {
		return hosts
	}
	var team []string
	for _, rank := range a.roster.Ranks() {
		team = append(team, hosts[rank])
	}
	return team
}

// listTeam tells in the result who the driver got, and who was dropped.
func (a *assembly) listTeam(result *signal.Result) {
	if !a.roster.Spares() {
		return
	}
	a.deaths.hear() // who stands by may have failed a moment ago
	result.Team, result.Dropped = a.roster.Ranks(), a.dropped()
}

// dropped are the nodes that the job did without: those that failed or were
// lost, and those that have not come.
func (a *assembly) dropped() []signal.DroppedRank {
	dropped := a.roster.Dropped()
	if !a.roster.Spares() {
		return dropped
	}
	for _, rank := range a.nodes.Last().Missing(signal.Joined, a.id.Size) {
		if !slices.ContainsFunc(dropped, func(d signal.DroppedRank) bool { return d.Rank == rank }) {
			dropped = append(dropped, signal.DroppedRank{Rank: rank, Host: a.id.HostOf(rank), Why: "it did not join"})
		}
	}
	return dropped
}

// tellDropped names, in the last words, the nodes that the job did without.
func (a *assembly) tellDropped() {
	for _, dropped := range a.dropped() {
		a.Log.Warn("the job did without " + a.name(dropped.Rank) + ": " + dropped.Why)
	}
}

// hosts is every rank's host: as the launcher tells, or the node itself; the
// rank's number where neither has.
func (a *assembly) hosts() []string {
	joined := a.nodes.Last().Ranks(signal.Joined)
	hosts := make([]string, a.id.Size)
	for rank := range hosts {
		hosts[rank] = a.id.HostOf(rank)
		if _, there := slices.BinarySearch(joined, rank); hosts[rank] == "" && there {
			hosts[rank] = a.hostOfJoined(rank)
		}
		if hosts[rank] == "" {
			hosts[rank] = strconv.Itoa(rank)
		}
	}
	return hosts
}

// hostOfJoined reads the host of a rank that has joined; empty where it can't.
func (a *assembly) hostOfJoined(rank int) string {
	joined, err := a.canary.Joined(a.Work, rank)
	if err != nil {
		a.Log.Warn("cannot read which host a rank is on", zap.Int("of", rank), zap.Error(err))
	}
	return joined.Host
}

// areLost tells whether earlier attempts have lost all of the nodes.
func (a *assembly) areLost(ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(rank int) bool {
		return !slices.ContainsFunc(a.cfg.Earlier.Lost, func(d signal.DroppedRank) bool { return d.Rank == rank })
	})
}

// givesUp tells whether those that are missing are waited for no longer: none but nodes
// that an earlier attempt has lost, and nothing is known to start their daemons anew.
func (a *assembly) givesUp(missing []int) bool {
	return !a.roster.Spares() && len(missing) > 0 && a.areLost(missing) && time.Since(a.began) > a.cfg.Times.ComeBack() &&
		!a.id.Launcher.Traits().Relaunches
}

// notBack is the failure that nodes are missing which an earlier attempt has lost.
func (a *assembly) notBack(missing []int) *health.Failure {
	f := health.Failed(health.NotBack, "cannot go on without %s: lost in attempt %d, and not back within %s; give --nnodes=%d:%d to go on with fewer nodes",
		a.hostsOf(missing), a.id.Attempt, time.Since(a.began).Round(time.Second/10), max(1, a.id.Size-len(missing)), a.id.Size)
	f.Lost = missing
	return f
}

func (a *assembly) unmet(missing []int) *health.Failure {
	if a.areLost(missing) && !a.roster.Spares() {
		return a.notBack(missing)
	}
	mend := "see whether their tasks have started, and whether it is the same file system there"
	if a.Dir.FileSystem().Local && a.id.Launcher != roles.Local {
		mend = fmt.Sprintf("it is on %s, which lives on one machine alone: give a --log-dir that all nodes share", a.Dir.FileSystem().Name)
	}
	f := health.Failed(health.Share, "cannot meet %d of %d nodes: %s did not answer through %s within %s: %s",
		len(missing), a.id.Size, a.hostsOf(missing), a.cfg.LogDir, time.Since(a.began).Round(time.Second/10), mend)
	f.Lost = missing
	return f
}

// assembly makes the team of those who have come.
type assembly struct {
	*node
	nodes  *signal.Watch // over Nodes
	roster *team.Roster
	deaths *deaths
	canary *run.Canary
	began  time.Time
}
