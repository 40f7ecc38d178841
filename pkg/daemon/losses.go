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

// deaths is the head's failure detector: it collects the failures and losses of all nodes, from
// their first signs to the verdict.
type deaths struct {
	*node
	nodes  *signal.Watch   // watches Nodes
	lines  *lifeline.Lines // nil if there are no peer links
	roster *team.Roster
	muster func(l signal.Listing) // [assembly.muster]

	hall     meeting.Hall // the rendezvous of ranks
	exchange *remote.Exchange
	hearing  atomic.Bool // the verdict waits until it is known which peers are lost
	recorded atomic.Bool // the result is final, and later losses are ignored

	mu       sync.Mutex
	failures []health.Observed // failures so far, guarded by mu
}

// areAll reports whether the silent nodes are exactly the peers that should be alive.
func (d *deaths) areAll(silent []int) bool {
	alive := d.roster.Living(d.roster.Expected(d.nodes.Last()), false)
	for _, rank := range silent {
		if _, needed := alive[rank]; !needed {
			return false
		}
	}
	return len(silent) == len(alive)
}

// lose records failure f, the loss of nodes, which was detected at the given time. It ends what
// their ranks and remote commands wait for.
func (d *deaths) lose(f *health.Failure, ranks []int, at time.Time) {
	record := f.FailedRecord
	record.Header, record.Phase, record.Lost = d.header(), d.Trail.Phase(), ranks
	for _, rank := range ranks {
		d.exchange.Lose(rank)
		d.hall.Lose(slices.Index(d.roster.Ranks(), rank), record.What)
	}
	d.observe(record, at)
}

// missed returns the set of nodes that are lost according to the recorded failures.
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

// listen reports the heartbeats that have arrived on the peer links to daemons, which otherwise
// knows only those in listings. alive are the nodes that should be alive.
func (d *deaths) listen(daemons *health.Liveness, alive map[int]int64, now time.Time) {
	if d.lines == nil {
		return
	}
	for rank := range alive {
		if at, heard := d.lines.Last(rank, now); heard {
			daemons.Hear(rank, at)
		}
		// A peer with an unresponsive file system cannot write heartbeat files. If this node could not
		// poll either, the whole file system has failed, and this node's mount may recover a moment
		// before the peer's: then the peer is not lost.
		if known, _ := d.lines.Of(rank); known.Sick {
			daemons.Excuse(rank)
		}
	}
}

// listenAlone declares peers lost by their heartbeats on the peer links alone, while the job runs
// and no poll of the file system succeeds. If all peers are silent, this node itself may be
// unreachable, which watchShare handles.
func (d *deaths) listenAlone(now time.Time) {
	if d.Silence() <= d.cfg.Times.Peer || !d.lines.Runs() || d.Life.Err() != nil {
		return
	}
	// silent are the nodes whose heartbeats have stopped for the peer timeout. unheard also has those
	// that will be silent in less than a heartbeat interval, and those that never had a link.
	var silent, unheard []int
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

// hearsAll reports whether every peer that should be alive has sent a heartbeat on its link within
// the peer timeout plus one interval. The interval leaves listenAlone time to declare a peer lost
// before this node stops tolerating the unresponsive file system.
func (d *deaths) hearsAll(now time.Time) bool {
	for rank := range d.roster.Living(d.roster.Expected(d.nodes.Last()), false) {
		if quiet, ever := d.lines.Quiet(rank, now); !ever || quiet >= d.tempo.Silent+d.cfg.Times.LineBeat() {
			return false
		}
	}
	return true
}

// lossOf classifies the loss of a silent worker according to its peer link.
func (d *deaths) lossOf(rank int) health.Kind {
	if d.lines == nil {
		return health.PeerLost
	}
	known, ever := d.lines.Of(rank)
	switch {
	case !ever:
		return health.PeerLost
	case !known.Connected && known.Parting == lifeline.Left: // it could not publish that it has ended
		return health.HostHangs
	case known.Connected && (known.Sick || d.lines.Head.Evidence(rank).Answers):
		return health.HostHangs
	case !known.Connected && known.Parting == lifeline.Broken:
		return health.DaemonDied // the kernel of its host is alive, because it has sent the reset
	default:
		return health.HostLost
	}
}

// losses returns one failure for each kind of loss among the silent nodes. quiet is how long they
// have been silent. If it is the head that is unreachable, it returns that as the only failure.
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

// unreached returns the failure that the head itself is cut off from the lost nodes: its network
// interface is down, or there are several other nodes and none of them answers. It returns nil if
// there is no evidence of that.
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

// outages logs, on the head, the nodes for which the shared file system is unresponsive. The zero
// value is ready for use.
type outages struct {
	since time.Time // when the present outage was detected; zero if there is none
	told  bool
}

// tell logs an outage that lasts longer than the peer timeout, and its end. It must be called
// regularly.
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
