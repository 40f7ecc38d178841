package daemon

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// deaths are what the head knows of failures and losses, from the first sign of one
// to the verdict.
type deaths struct {
	*node
	nodes  *signal.Watch   // over Nodes
	lines  *lifeline.Lines // nil where there are no lifelines
	roster *team.Roster
	muster func(l signal.Listing) // makes the team that a look asks for

	hall     meeting.Hall // where ranks meet
	exchange *remote.Exchange
	hearing  atomic.Bool // the verdict waits for who may be lost, too
	recorded atomic.Bool // who is lost now is in no result any more

	mu       sync.Mutex
	failures []health.Observed // what has failed so far, guarded by mu
}

// areAll tells whether no other peer is left that the job needs.
func (d *deaths) areAll(silent []int) bool {
	alive := d.roster.Living(d.roster.Expected(d.nodes.Last()), false)
	for _, rank := range silent {
		if _, needed := alive[rank]; !needed {
			return false
		}
	}
	return len(silent) == len(alive)
}

// lose observes the loss of ranks.
func (d *deaths) lose(f *health.Failure, ranks []int, at time.Time) {
	record := f.FailedRecord
	record.Header, record.Phase, record.Lost = d.header(), d.Trail.Phase(), ranks
	for _, rank := range ranks {
		d.exchange.Lose(rank)
		d.hall.Lose(slices.Index(d.roster.Ranks(), rank), record.What)
	}
	d.observe(record, at)
}

// missed are the ranks whose loss is known.
func (d *deaths) missed() map[int]bool {
	missed := make(map[int]bool)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, failure := range d.failures {
		for _, rank := range failure.Lost {
			missed[rank] = true
		}
	}
	return missed
}

// listen adds to the looks what the lifelines have told.
func (d *deaths) listen(daemons *health.Liveness, alive map[int]int64, now time.Time) {
	if d.lines == nil {
		return
	}
	for rank := range alive {
		if at, heard := d.lines.Last(rank, now); heard {
			daemons.Hear(rank, at)
		}
		// What has hung for all of us when we could not look, either, is the
		// share: our own mount may be back a moment before the others'.
		if known, _ := d.lines.Of(rank); known.Sick {
			daemons.Excuse(rank)
		}
	}
}

// listenAlone takes peers for lost by the lifelines alone, while no look at the
// share succeeds. Where all are silent it is this node that can't be reached, which
// is watchShare's affair.
func (d *deaths) listenAlone(now time.Time) {
	if d.Silence() <= d.cfg.Times.Peer || !d.lines.Runs() || d.Life.Err() != nil {
		return
	}
	var silent, unheard []int // the latter to within a beat, or for want of a lifeline
	longest := time.Duration(0)
	missed := d.missed()
	for rank := range d.roster.Living(d.roster.Expected(d.nodes.Last()), false) {
		quiet, ever := d.lines.Quiet(rank, now)
		if !ever || quiet >= d.tempo.Silent-d.cfg.Times.LineBeat() {
			unheard = append(unheard, rank)
		}
		if ever && quiet >= d.tempo.Silent && !missed[rank] {
			silent, longest = append(silent, rank), max(longest, quiet)
		}
	}
	if len(silent) == 0 || d.areAll(unheard) {
		return
	}
	slices.Sort(silent)
	for _, f := range d.losses(silent, longest) {
		f.Age = max(0, longest-d.tempo.Beat)
		d.lose(f, f.Lost, now)
	}
}

// hearsAll tells whether every peer that should live was heard by its lifeline
// within the time that makes it lost, and a beat more: see listenAlone.
func (d *deaths) hearsAll(now time.Time) bool {
	for rank := range d.roster.Living(d.roster.Expected(d.nodes.Last()), false) {
		if quiet, ever := d.lines.Quiet(rank, now); !ever || quiet >= d.tempo.Silent+d.cfg.Times.LineBeat() {
			return false
		}
	}
	return true
}

// lossOf returns the kind of loss that the silence of a worker is, by its lifeline.
func (d *deaths) lossOf(rank int) health.Kind {
	if d.lines == nil {
		return health.PeerLost
	}
	known, ever := d.lines.Of(rank)
	switch {
	case !ever:
		return health.PeerLost
	case !known.Connected && known.Parting == lifeline.Left: // its daemon could not write why
		return health.HostHangs
	case known.Connected && (known.Sick || d.lines.Head.Evidence(rank).Answers):
		return health.HostHangs
	case !known.Connected && known.Parting == lifeline.Broken:
		return health.DaemonDied // its kernel was there to say so
	default:
		return health.HostLost
	}
}

// losses tells what the silent ranks are lost by: one failure for each kind.
func (d *deaths) losses(silent []int, quiet time.Duration) []*health.Failure {
	since := quiet.Round(time.Second / 10)
	kinds := make(map[health.Kind][]int)
	for _, rank := range silent {
		kind := d.lossOf(rank)
		kinds[kind] = append(kinds[kind], rank)
	}
	if f := d.unreached(kinds[health.HostLost], since); f != nil {
		return []*health.Failure{f}
	}
	return health.Losses(kinds, since, d.name, d.hostsOf)
}

// unreached tells whether it is the head that the others can't reach: its own
// link is down, or of several others none answers.
func (d *deaths) unreached(lost []int, since time.Duration) *health.Failure {
	if len(lost) == 0 {
		return nil
	}
	if f := d.linkDown(); f != nil {
		return f
	}
	if len(lost) > 1 && d.areAll(lost) {
		return d.cutOff(fmt.Sprintf("none of the %d others has answered for %s", len(lost), since))
	}
	return nil
}

// outages tells people of the nodes that the share does not answer.
type outages struct {
	since time.Time // when the first of those was heard of that there are
	told  bool
}

// tell is to be called now and then.
func (o *outages) tell(d *deaths, now time.Time) {
	sick := d.lines.Sick()
	if d.Silence() > run.SickShare {
		sick = append([]int{0}, sick...)
	}
	switch {
	case len(sick) == 0 && o.told:
		d.Log.Warn("the share answers all nodes again", zap.Duration("after", now.Sub(o.since).Round(time.Second/10)))
		fallthrough
	case len(sick) == 0:
		*o = outages{}
	case o.since.IsZero():
		o.since = now
	case !o.told && now.Sub(o.since) > d.cfg.Times.Peer && d.lines.Runs() && d.Life.Err() == nil:
		o.told = true
		d.Log.Warn("the share does not answer "+d.hostsOf(sick)+": the job goes on while every lifeline is well, for no longer than --share-timeout",
			zap.Duration("timeout", d.cfg.Times.Share))
	}
}
