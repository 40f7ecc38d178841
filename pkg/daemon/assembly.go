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

// patiencePart is the divisor of the join timeout that gives the head's patience: if no further
// node has become ready for that long, the head accepts the minimum number of nodes that the driver
// needs instead of waiting for the maximum.
const patiencePart = 8

// errTeamChanged is the cause of contexts that end because the team has changed.
var errTeamChanged = errors.New("there is another team")

// muster publishes a new team if the listing l of Nodes requires one. It ends the run if that
// fails.
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
	a.nodes.Nudge() // for tasks that wait for the team
}

// fit returns the state that a node must have reached to become a member of the team.
func (a *assembly) fit() string {
	if a.cfg.Checked() {
		return signal.Checked
	}
	return signal.Joined
}

// late drops the nodes that have not joined in time, and the nodes that have joined but neither
// passed their checks nor failed. Such a node has its own deadline and should report its failure;
// the head's longer timeout is for a node that does not.
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

// lateBy records f, the failure of nodes that are late according to a listing of the given time.
func (a *assembly) lateBy(f *health.Failure, at time.Time) {
	f.Header, f.Phase = a.header(), "join"
	a.deaths.observe(f.FailedRecord, at)
}

// whileTeam returns a context that also ends, with the cause errTeamChanged, when changed is
// closed. The caller must call the returned function when it needs the context no longer.
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

// assemble waits until there is a team and calls raise, which brings up the services of all its
// nodes. If the team changes meanwhile, it starts again. Afterwards the team is fixed.
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
		default: // a member is lost: wait for the team that replaces it
			if !pause.Await(ctx, changed) {
				return context.Cause(ctx)
			}
		}
	}
}

// awaitTeam waits until a team has been chosen. It returns the present members, and a channel that
// is closed when they change.
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

// teamHosts returns the hosts of the team, in the order of the places.
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

// listTeam adds the driver's nodes and the dropped nodes to the result, if there are spares.
func (a *assembly) listTeam(result *signal.Result) {
	if !a.roster.Spares() {
		return
	}
	a.deaths.hear() // a spare may have failed a moment ago, and its record is not known yet
	result.Team, result.Dropped = a.roster.Ranks(), a.dropped()
}

// dropped returns the nodes without which the job has run: those that failed, were lost, or have
// not joined.
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

// tellDropped logs, at the end of the run, the nodes without which the job has run, and why.
func (a *assembly) tellDropped() {
	for _, dropped := range a.dropped() {
		a.Log.Warn("the job did without " + a.name(dropped.Rank) + ": " + dropped.Why)
	}
}

// hosts returns the host of every node, by node index. It is the host that the launcher has
// provided, or the one in the record of the node. If neither is known, it is the node's index.
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

// hostOfJoined reads the host of a node that has joined. It returns an empty string if it cannot be
// read.
func (a *assembly) hostOfJoined(rank int) string {
	joined, err := a.canary.Joined(a.Work, rank)
	if err != nil {
		a.Log.Warn("cannot read which host a rank is on", zap.Int("of", rank), zap.Error(err))
	}
	return joined.Host
}

// areLost reports whether earlier attempts have lost all of the given nodes.
func (a *assembly) areLost(ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(rank int) bool {
		return !slices.ContainsFunc(a.cfg.Earlier.Lost, func(d signal.DroppedRank) bool { return d.Rank == rank })
	})
}

// givesUp reports whether the head should stop waiting for the missing nodes. That is the case if
// all of them were lost in earlier attempts, the time to come back is over, and the launcher is not
// known to restart daemons.
func (a *assembly) givesUp(missing []int) bool {
	return !a.roster.Spares() && len(missing) > 0 && a.areLost(missing) && time.Since(a.began) > a.cfg.Times.ComeBack() &&
		!a.id.Launcher.Traits().Relaunches
}

// notBack returns the failure that the missing nodes, which earlier attempts have lost, have not
// come back.
func (a *assembly) notBack(missing []int) *health.Failure {
	f := health.Failed(health.NotBack, "cannot go on without %s: lost in attempt %d, and not back within %s; give --nnodes=%d:%d to go on with fewer nodes",
		a.hostsOf(missing), a.id.Attempt, time.Since(a.began).Round(time.Second/10), max(1, a.id.Size-len(missing)), a.id.Size)
	f.Lost = missing
	return f
}

// unmet returns the failure that nodes have not joined in time, with a hint at the probable reason.
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

// assembly chooses the team from the nodes that have joined. It belongs to the head.
type assembly struct {
	*node
	nodes  *signal.Watch // watches Nodes
	roster *team.Roster
	deaths *deaths
	canary *run.Canary
	began  time.Time
}
