package daemon

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// worker is a daemon that is not the head, that of a sandbox in a step of its own
// too.
type worker struct {
	*node
	line     *line       // to the head; nil where there is none
	forsaken atomic.Bool // there is no head to make an end, as far as this node knows
}

const (
	// lookCost is what one node's look takes of a share that answers some ten
	// thousand calls a second: a look is three.
	lookCost = 300 * time.Microsecond
	// fewAtOnce is how many nodes may look in the same moment.
	fewAtOnce = 64
)

// line is a worker's lifeline.
type line struct {
	*lifeline.Signs // of the head, as rank 0
	worker          *lifeline.Worker
	over            atomic.Int32  // the code by which the run ends and 1, where the head has said so
	tried           []string      // where the head is
	began           time.Time     // when it was first tried
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
	if w.cfg.Lifeline != config.LifelineOff && len(job.Lifeline) > 0 {
		w.ties = &ties{Signs: lifeline.NewSigns(w.cfg.Times.LineBeat())}
	}
}

// tie begins to hold the lifeline that is expected.
func (w *worker) tie(job signal.Job) {
	if w.ties == nil {
		return
	}
	w.line = &line{
		Signs: w.ties.Signs, tried: job.Lifeline, began: time.Now(), up: make(chan struct{}),
	}
	cfg := lifeline.Config{Key: w.Dir.Secret(lifeline.SecretName), Size: w.id.Size, Beat: w.cfg.Times.LineBeat(), Jitter: w.cfg.Access.Jitter}
	sick := func() bool { return w.Silence() > run.SickShare }
	w.line.worker = lifeline.NewWorker(cfg, w.id.Rank, w.cfg.Network, job.Lifeline, &headLine{w}, sick)
	w.Nudge = w.line.worker.Nudge
	w.remote.Dial = w.caller(lifeline.ForRemote)
	w.line.worker.Heed(w.remote.Summoned)
	w.ties.calm = w.line.calm
	w.ties.address = w.line.worker.LocalAddress
	w.ties.hears = func(now time.Time) bool {
		quiet, ever := w.line.Quiet(0, now)
		return ever && quiet < w.tempo.Silent
	}
	w.Background(w.line.worker.Run)
	w.Background(w.watchLine)
}

// caller calls the head a second time, whenever there is something to say.
func (w *worker) caller(purpose lifeline.Purpose) func(context.Context) (io.ReadWriteCloser, error) {
	return lifeline.Caller(purpose, w.Dir.Secret(lifeline.SecretName), w.id.Rank, w.cfg.Network, w.line.tried)
}

// watchLine has Control looked at rarely while the lifeline is well and nothing
// is expected, and often while the head is missed.
func (w *worker) watchLine(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Times.LineBeat() / 2)
	defer tick.Stop()
	said, pace := false, w.tempo.Look // as relax has made it
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
		if !ever && !said && now.Sub(w.line.began) > w.cfg.Times.Peer {
			said = true
			w.Log.Warn("cannot reach the head by a lifeline: beat files replace it, and a death is noticed later",
				zap.String("host", w.id.Host), zap.Strings("tried", w.line.tried))
		}
		if wanted := w.lookPace(now, ever); w.line.Runs() && wanted != pace {
			pace = wanted
			w.Control.Relax(pace)
		}
	}
}

// lookPace is the longest pause between two looks at Control where nothing but
// the end is expected there.
func (w *worker) lookPace(now time.Time, ever bool) time.Duration {
	switch {
	case w.line.Well(1, now):
		return w.cfg.Times.Rest()
	case ever: // and missed by now
		return health.HeadTempo(w.cfg.Times.Peer, w.id.Size).Look
	default:
		return w.tempo.Look
	}
}

// second is why a daemon ends that is not the first one of its rank.
func (w *worker) second(why string) *outsider {
	f := health.Failed(health.Launch, "cannot take part as %s: %s; start each rank once", w.name(w.id.Rank), why)
	f.Phase = w.Trail.Phase()
	return &outsider{f}
}

// outsider is the failure of a daemon that is none of the run's: the run is not
// to hear of it.
type outsider struct{ *health.Failure }

// Unwrap returns the failure.
func (o *outsider) Unwrap() error { return o.Failure }

// relax has Control looked at rarely: nothing is expected there but the end.
func (w *worker) relax() {
	w.Control.Relax(w.tempo.Look)
	if w.line != nil {
		w.line.Run(w.cfg.Times.Outwaits())
	}
}

// ties are what this daemon's lifelines mean to it. Nil ties are none.
type ties struct {
	*lifeline.Signs // of those that lifelines are held with

	// calm tells whether every lifeline is well; nil where beats by files must
	// not rest.
	calm func(now time.Time) bool
	// hears tells whether everybody who matters is heard.
	hears func(now time.Time) bool
	// address is this node's end of its lifeline; nil on the head.
	address func() netip.Addr
}

// areCalm tells whether nobody needs beats by files.
func (t *ties) areCalm(now time.Time) bool { return t != nil && t.calm != nil && t.calm(now) }

// bear tells whether the job runs, and everybody who matters is heard.
func (t *ties) bear(now time.Time) bool { return t != nil && t.Runs() && t.hears(now) }
