package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// line is a worker's lifeline.
type line struct {
	*lifeline.Signs // of the head, as rank 0
	worker          *lifeline.Worker
	over            atomic.Int32  // the code by which the run ends and 1, where the head has said so
	tried           []string      // where the head is
	once            sync.Once     // closes up
	up              chan struct{} // closed at the first connection
}

// calm tells whether the head is heard by the lifeline, which has not just ended,
// and its kernel has what we say: after an outage the one way may be back seconds
// before the other.
func (l *line) calm(now time.Time) bool {
	return l.Well(1, now) && l.worker.Evidence().Answers
}

// expectLine makes ready what a lifeline tells into, where the head offers one.
// It comes before begin, whose tasks read it.
func (w *worker) expectLine(job signal.Job) {
	if w.cfg.Lifeline != LifelineOff && len(job.Lifeline) > 0 {
		w.ties = &ties{Signs: lifeline.NewSigns(w.lineBeat())}
	}
}

// tie begins to hold the lifeline that is expected.
func (w *worker) tie(job signal.Job) {
	if w.ties == nil {
		return
	}
	w.line = &line{Signs: w.ties.Signs, tried: job.Lifeline, up: make(chan struct{})}
	cfg := lifeline.Config{Key: w.dir.Nonce(), Size: w.id.Size, Beat: w.lineBeat(), Jitter: w.cfg.Access.Jitter}
	sick := func() bool { return w.silence() > sickShare }
	w.line.worker = lifeline.NewWorker(cfg, w.id.Rank, w.network(), job.Lifeline, &headLine{w}, sick)
	w.nudge = w.line.worker.Nudge
	w.ties.calm = w.line.calm
	w.ties.address = w.line.worker.LocalAddress
	w.ties.hears = func(now time.Time) bool {
		quiet, ever := w.line.Quiet(0, now)
		return ever && quiet < w.tempo.Silent
	}
	w.background(w.line.worker.Run)
	w.background(w.watchLine)
}

// headLine takes in what a worker's lifeline tells of the head.
type headLine struct{ *worker }

// Connected notes that the head can be heard. What it said while it could not
// is in Control.
func (p *headLine) Connected() {
	p.line.Connect(0)
	p.control.Nudge()
	p.trail.Event(trail.Line, trail.Fields{Up: new(true)})
	p.line.once.Do(func() { close(p.line.up) })
}

// Heard notes a sign of life, and has the node look at Control where it is nudged.
// Where there are many nodes, not all of them do in the same moment.
func (p *headLine) Heard(nudge bool) {
	p.line.Hear(0, false)
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
	_, ever := p.line.Of(0)
	if ever {
		p.line.Part(0, how)
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
		p.background(p.withoutHead(p.tempo.Silent/2, health.Failed(health.DaemonDied,
			"the daemon of the head, %s, has died: its host took a call and has ended it, and nobody listens there any more", p.name(0))))
	case how == lifeline.Closed || how == lifeline.Refused:
		p.background(p.withoutHead(0, health.Failed(health.DaemonDied,
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

// watchLine has Control looked at rarely while the lifeline is well and nothing
// is expected, and often while the head is missed.
func (w *worker) watchLine(ctx context.Context) {
	tick := time.NewTicker(w.lineBeat() / 2)
	defer tick.Stop()
	began, said, pace := time.Now(), false, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		w.line.Tick(now)
		w.watchLink(now)
		_, ever := w.line.Of(0)
		if !ever && !said && now.Sub(began) > w.cfg.Times.Peer {
			said = true
			w.log.Warn("cannot reach the head by a lifeline: beat files replace it, and a death is noticed later",
				zap.String("host", w.id.Host), zap.Strings("tried", w.line.tried))
		}
		if wanted := w.lookPace(now, ever); w.line.Runs() && wanted != pace {
			pace = wanted
			w.control.Relax(pace)
		}
	}
}

// lookPace is the longest pause between two looks at Control where nothing but
// the end is expected there.
func (w *worker) lookPace(now time.Time, ever bool) time.Duration {
	switch {
	case w.line.Well(1, now):
		return restful * w.cfg.Times.Peer
	case ever: // and missed by now
		return health.HeadTempo(w.cfg.Times.Peer, w.id.Size).Look
	default:
		return w.tempo.Look
	}
}
