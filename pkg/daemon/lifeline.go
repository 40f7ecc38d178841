package daemon

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// LifelineMode says whether workers hold a connection to the head.
type LifelineMode string

// The modes of --lifeline; without one, auto is meant.
const (
	LifelineAuto LifelineMode = "auto" // where one can be made; beat files replace it elsewhere
	LifelineOn   LifelineMode = "on"   // a worker that can't make one fails
	LifelineOff  LifelineMode = "off"  // beat files alone
)

// LifelineModes are what a user may ask for.
var LifelineModes = []string{string(LifelineAuto), string(LifelineOn), string(LifelineOff)}

const (
	// restful is how many peer timeouts lie between two looks of a worker, and
	// between two beats by files, while a lifeline tells of all that happens.
	restful = 4
	// lookCost is what one node's look takes of a share that answers some ten
	// thousand calls a second: a look is three.
	lookCost = 300 * time.Microsecond
	// fewAtOnce is how many nodes may look in the same moment.
	fewAtOnce = 64
)

// line is a worker's lifeline.
type line struct {
	*signs // of the head, as rank 0
	worker *lifeline.Worker
	over   atomic.Int32  // the code by which the run ends and 1, where the head has said so
	tried  []string      // where the head is
	once   sync.Once     // closes up
	up     chan struct{} // closed at the first connection
}

// calm tells whether the head is heard by the lifeline, which has not just ended,
// and its kernel has what we say: after an outage the one way may be back seconds
// before the other.
func (l *line) calm(now time.Time) bool {
	return l.well(1, now) && l.worker.Evidence().Answers
}

// expectLine makes ready what a lifeline tells into, where the head offers one.
// It comes before begin, whose tasks read it.
func (n *node) expectLine(job signal.Job) {
	if n.cfg.Lifeline != LifelineOff && len(job.Lifeline) > 0 {
		n.signs = newSigns(n.lineBeat())
	}
}

// tie begins to hold the lifeline that is expected.
func (n *node) tie(job signal.Job) {
	if n.signs == nil {
		return
	}
	n.line = &line{signs: n.signs, tried: job.Lifeline, up: make(chan struct{})}
	cfg := lifeline.Config{Key: n.dir.Nonce(), Size: n.id.Size, Beat: n.lineBeat(), Jitter: n.cfg.Access.Jitter}
	sick := func() bool { return n.silence() > sickShare }
	n.line.worker = lifeline.NewWorker(cfg, n.id.Rank, n.network(), job.Lifeline, &headLine{n}, sick)
	n.nudge = n.line.worker.Nudge
	n.calm = n.line.calm
	n.hears = func(now time.Time) bool {
		quiet, ever := n.line.quiet(0, now)
		return ever && quiet < n.tempo.Silent
	}
	n.background(n.line.worker.Run)
	n.background(n.watchLine)
}

func (n *node) network() lifeline.Network {
	if n.cfg.Network != nil {
		return n.cfg.Network
	}
	return lifeline.TCP{}
}

// lineBeat is the pace of beats over a lifeline, however many nodes there are.
func (n *node) lineBeat() time.Duration { return health.HeadTempo(n.cfg.Times.Peer, 1).Beat }

// headLine takes in what a worker's lifeline tells of the head.
type headLine struct{ *node }

// Connected notes that the head can be heard. What it said while it could not
// is in Control.
func (p *headLine) Connected() {
	p.line.connect(0)
	p.control.Nudge()
	p.trail.Event(trail.Line, trail.Fields{Up: new(true)})
	p.line.once.Do(func() { close(p.line.up) })
}

// Heard notes a sign of life, and has the node look at Control where it is nudged.
// Where there are many nodes, not all of them do in the same moment.
func (p *headLine) Heard(nudge bool) {
	p.line.hear(0, false)
	if !nudge {
		return
	}
	if p.id.Size <= fewAtOnce {
		p.control.Nudge()
		return
	}
	p.control.NudgeWithin(time.Duration(p.id.Size) * lookCost)
}

// Gone has the node see why: the end may have been published. A head whose
// kernel has closed the connection, and that is not back, has died.
//
// One that never held the connection has not proven to be the head, and what is
// in between may end a connection and refuse the next: its beats must have
// stopped, too.
func (p *headLine) Gone(how lifeline.Parting) {
	_, ever := p.line.of(0)
	if ever {
		p.line.part(0, how)
	}
	if how == lifeline.Left && p.ended.Err() != nil {
		p.orphan(errFarewell) // as this node is about to
		return
	}
	p.trail.Event(trail.Line, trail.Fields{Up: new(false), How: how.String()})
	p.control.Quicken()
	p.control.Nudge()
	switch {
	case !ever:
		p.background(p.withoutHead(p.tempo.Silent/2, failed(health.DaemonDied,
			"the daemon of the head, %s, has died: its host took a call and has ended it, and nobody listens there any more", p.name(0))))
	case how == lifeline.Closed || how == lifeline.Refused:
		p.background(p.withoutHead(0, failed(health.DaemonDied,
			"the daemon of the head, %s, has died: its host has closed the lifeline and nobody listens there any more", p.name(0))))
	case how == lifeline.Left:
		p.background(p.withoutHead(0, p.headLeft()))
	}
}

// errFarewell is why nothing more is to be heard of a head.
var errFarewell = errors.New("the head has ended in order")

// Over learns by which code the run ends. Where that is a failure, who can look sees
// more of it, or that the head could not say why: see withoutHead.
func (p *headLine) Over(code int) {
	p.line.over.Store(int32(code) + 1)
	if code == 0 || p.silence() > p.tempo.Silent/2 {
		p.finish(endingByCode(code))
	}
}

// Rejected ends a daemon that is the second one of its rank.
func (p *headLine) Rejected(reason string) {
	p.end(p.second(reason))
}

// second is why a daemon ends that is not the first one of its rank.
func (n *node) second(why string) *outsider {
	f := failed(health.Launch, "cannot take part as %s: %s; start each rank once", n.name(n.id.Rank), why)
	f.Phase = n.trail.Phase()
	return &outsider{f}
}

// outsider is the failure of a daemon that is none of the run's: the run is not
// to hear of it.
type outsider struct{ *failure }

// Unwrap returns the failure.
func (o *outsider) Unwrap() error { return o.failure }

// withoutHead takes the head for lost when two looks have not shown the end (the
// first may have been under way before), nor a beat that came after the last one
// for as long as quiet. Where that is 0 the head's host has spoken, and is believed
// where the share does not answer and is outwaited.
func (n *node) withoutHead(quiet time.Duration, f *failure) func(ctx context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeoutCause(ctx, n.tempo.Silent, errDeadline)
		defer cancel()
		looking, stop := n.whileAnswered(ctx, n.tempo.Silent/2)
		defer stop()
		before := n.control.Last()
		beat, since := before.Beats(signal.BeatState)[0], time.Now()
		_, err := n.control.Wait(looking, func(l signal.Listing) bool {
			if newest := l.Beats(signal.BeatState)[0]; newest > beat {
				beat, since = newest, l.At
			}
			return l.Looks > before.Looks+1 && l.At.Sub(since) >= quiet
		})
		blind := quiet == 0 && n.line.runs() && n.cfg.Times.outwaits() && errors.Is(context.Cause(looking), errSilent)
		switch {
		case err != nil && !blind:
		case n.ended.Err() != nil:
			n.orphan(f)
		case blind && n.line.over.Load() > 0:
			n.finish(endingByCode(int(n.line.over.Load()) - 1))
		case blind:
			f.Lost = []int{0}
			n.end(f)
		default:
			n.loseHead(ctx, signal.BeatState, f)
		}
	}
}

// watchLine has Control looked at rarely while the lifeline is well and nothing
// is expected, and often while the head is missed.
func (n *node) watchLine(ctx context.Context) {
	tick := time.NewTicker(n.lineBeat() / 2)
	defer tick.Stop()
	began, said, pace := time.Now(), false, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		n.line.tick(now)
		n.watchLink(now)
		_, ever := n.line.of(0)
		if !ever && !said && now.Sub(began) > n.cfg.Times.Peer {
			said = true
			n.log.Warn("cannot reach the head by a lifeline: beat files replace it, and a death is noticed later",
				zap.String("host", n.id.Host), zap.Strings("tried", n.line.tried))
		}
		if wanted := n.lookPace(now, ever); n.line.runs() && wanted != pace {
			pace = wanted
			n.control.Relax(pace)
		}
	}
}

// lookPace is the longest pause between two looks at Control where nothing but
// the end is expected there.
func (n *node) lookPace(now time.Time, ever bool) time.Duration {
	switch {
	case n.line.well(1, now):
		return restful * n.cfg.Times.Peer
	case ever: // and missed by now
		return health.HeadTempo(n.cfg.Times.Peer, n.id.Size).Look
	default:
		return n.tempo.Look
	}
}

// awaitLine waits for the lifeline where one must be.
func (n *node) awaitLine(ctx context.Context) error {
	if n.cfg.Lifeline != LifelineOn {
		return nil
	}
	const mend = "let the nodes connect to each other's ports, or give --lifeline=auto"
	if n.line == nil {
		return failed(health.Launch, "cannot hold a lifeline: the head, %s, offers none; %s", n.name(0), mend)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Times.Peer, errDeadline)
	defer cancel()
	select {
	case <-n.line.up:
		return nil
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return cause
	}
	return failed(health.Launch, "cannot hold a lifeline: %s could not reach the head at %v within %s; %s",
		n.name(n.id.Rank), n.line.tried, n.cfg.Times.Peer, mend)
}

// tug has the other end of the lifeline look at what this node has published, if
// it looks there. A worker that waits for the end alone hears of that by the
// farewell.
func (n *node) tug(sub, name string) {
	unseen := n.id.Rank == 0 && (sub != signal.Control || name == signal.NameOver)
	if n.nudge != nil && !unseen {
		n.nudge()
	}
}

// lossOfHead is what the silence of the head is, by what else there is to see.
func (n *node) lossOfHead(ctx context.Context, quiet time.Duration) *failure {
	since := quiet.Round(time.Second / 10)
	if n.line == nil {
		return n.headSilent(since)
	}
	known, ever := n.line.of(0)
	switch {
	case !ever && n.line.worker.Deserted(ctx):
		return failed(health.DaemonDied, "the daemon of the head, %s, has died: %s has not seen a beat of it for %s, and its host says that nobody listens at the port it offered",
			n.name(0), n.name(n.id.Rank), since)
	case !ever:
		return n.headSilent(since)
	}
	if f := n.linkDown(); f != nil {
		return f
	}
	if !known.connected && known.parting == lifeline.Left {
		return n.headLeft()
	}
	if known.connected && n.line.worker.Evidence().Answers {
		return failed(health.HostHangs, "the head, %s, hangs: the kernel of its host answers, and its daemon has not for %s", n.name(0), since)
	}
	return failed(health.HostLost, "the host of the head, %s, is lost: %s has had no answer of it for %s", n.name(0), n.name(n.id.Rank), since)
}

// watchLink ends a node that hears nobody and has no link any more: its looks
// at the share, which might tell, may hang for the same reason.
func (n *node) watchLink(now time.Time) {
	silence, ever := n.signs.silence(now)
	if !ever || silence < n.tempo.Silent || n.life.Err() != nil {
		return
	}
	if f := n.linkDown(); f != nil {
		n.end(f)
	}
}

// linkDown is the failure of this node that its network interface is down; nil
// where it is not.
func (n *node) linkDown() *failure {
	address, _ := n.cfg.Address()
	addr, err := netip.ParseAddr(address)
	if n.line != nil {
		addr, err = n.line.worker.LocalAddress(), nil
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
func (n *node) cutOff(why string) *failure {
	f := failed(health.CutOff, "%s is cut off from the others: %s", n.name(n.id.Rank), why)
	f.Lost = []int{n.id.Rank}
	return f
}

// headLeft is the failure of a head that has said goodbye, and no end is to be seen.
func (n *node) headLeft() *failure {
	return failed(health.HostHangs, "the head, %s, hangs: its daemon has ended and could not write so into the run directory", n.name(0))
}

func (n *node) headSilent(since time.Duration) *failure {
	return failed(health.PeerLost, "the head, %s, is lost: %s has not seen a beat of it for %s", n.name(0), n.name(n.id.Rank), since)
}
