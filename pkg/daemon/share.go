package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// begin starts what runs from the moment there is a run directory. The pace is
// that of the looks at Control.
func (n *node) begin(dir *signal.Dir, log string, pace signal.Pace) {
	n.Dir = dir
	pace.Steady = min(pace.Steady, n.tempo.Look)
	pace.Fast = min(pace.Fast, pace.Steady)
	n.Control = dir.Watch(signal.Control, pace)
	n.Trail.Open(dir, n.id, log)
	n.children.Open(dir, n.id.Rank, n.id.Size, n.name(n.id.Rank))
	n.commands = runsRequests(n)
	n.remote = remote.NewNode(remote.Daemon{Private: n.private.Dir, Start: n.starts(n.children.Start), Background: n.Background, Environ: n.cfg.Environ, Log: n.Log})
	n.Background(n.Control.Run)
	n.Background(n.watchShare)
}

// watchShare notices that the share has not answered for so long that nothing
// can be said of the peers any more, or that it is outwaited no longer.
func (n *node) watchShare(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Times.Peer / 20)
	defer tick.Stop()
	var outwaited time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		silence, most := n.Silence(), n.cfg.Times.Peer
		if n.outwaits(time.Now()) {
			most = n.cfg.Times.Share
		}
		switch {
		case silence > most:
			n.End(n.unanswered(silence))
			return
		case silence > n.cfg.Times.Peer:
			if outwaited == 0 {
				n.Trail.Event(trail.Share, trail.Fields{Answers: new(false)})
				n.Log.Info("the share does not answer: the job goes on, as every lifeline is well")
			}
			outwaited = silence
		case outwaited > 0:
			n.Trail.Event(trail.Share, trail.Fields{Answers: new(true)})
			n.Log.Info("the share answers again", zap.Duration("after", outwaited.Round(time.Second/10)))
			outwaited = 0
		}
	}
}

// outwaits tells whether a share that is silent is waited for until the time for
// that is over. Once the job runs nobody needs the share: as long as everybody is
// heard by a lifeline, what it withholds are records.
func (n *node) outwaits(now time.Time) bool {
	return n.cfg.Times.Outwaits() && n.ties.bear(now)
}

func (n *node) unanswered(silence time.Duration) *health.Failure {
	if n.ties != nil {
		if unheard, ever := n.ties.Silence(time.Now()); ever && unheard > n.tempo.Silent {
			return n.cutOff(fmt.Sprintf("neither another node nor the share has answered for %s", min(unheard, silence).Round(time.Second/10)))
		}
	}
	return health.Failed(health.Share, "cannot go on: the share has not answered %s for %s: see whether %s hangs on that node",
		n.name(n.id.Rank), silence.Round(time.Second/10), n.Dir.Path())
}

// pulse beats as state in sub until the work is over. A share that refuses all beats would
// have the peers think that this node is lost: better say what is wrong. One that does not
// answer is watchShare's affair. While all lifelines are well, a beat now and then
// is enough.
func (n *node) pulse(sub, state string) func(ctx context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(n.tempo.Beat)
		defer tick.Stop()
		last, rests := time.Now(), 0
		refused := refusals(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			if n.ties.areCalm(now) && refused == 0 && now.Sub(last) < n.cfg.Times.Rest() {
				continue
			}
			if rests++; n.post.StandsBy() && rests%standbyPart != 0 {
				last = now
				continue
			}
			err := n.beat(ctx, sub, state)
			switch {
			case err == nil:
				last, refused = time.Now(), 0
			case ctx.Err() == nil && !signal.Stalled(err):
				refused++
				if refused == refusedTwice {
					n.Logged(err) // who is told that the node is lost may read why
				}
				most := n.tempo.Silent
				if n.outwaits(now) {
					most = n.cfg.Times.Share
				}
				if refused.last(n.tempo.Beat) > most {
					n.End(health.AsFailure(err))
					return
				}
			}
		}
	}
}

// refusals is how many beats in a row the share has refused.
type refusals int

const refusedTwice refusals = 2

// last is for how long there has been no beat, where one comes after the other.
func (r refusals) last(beat time.Duration) time.Duration { return time.Duration(r) * beat }

func (n *node) beat(ctx context.Context, sub, state string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.tempo.Silent, errors.New("the peers would miss the beat"))
	defer cancel()
	return n.Dir.Beat(ctx, sub, state)
}

// watchLink ends a node that hears nobody and has no link any more: its looks
// at the share, which might tell, may hang for the same reason.
func (n *node) watchLink(now time.Time) {
	silence, ever := n.ties.Silence(now)
	if !ever || silence < n.tempo.Silent || n.Life.Err() != nil {
		return
	}
	if f := n.linkDown(); f != nil {
		n.End(f)
	}
}

// linkDown is the failure of this node that its network interface is down; nil
// where it is not.
func (n *node) linkDown() *health.Failure {
	address, _ := n.cfg.Address()
	addr, err := netip.ParseAddr(address)
	if n.ties != nil && n.ties.address != nil {
		addr, err = n.ties.address(), nil
	}
	if err != nil {
		return nil
	}
	link, down := lifeline.LinkDown(addr)
	if !down {
		return nil
	}
	return n.cutOff("its network interface " + link + " is down")
}

// cutOff is the failure of a node that can't be reached by the others.
func (n *node) cutOff(why string) *health.Failure {
	f := health.Failed(health.CutOff, "%s is cut off from the others: %s", n.name(n.id.Rank), why)
	f.Lost = []int{n.id.Rank}
	return f
}
