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

// worker is a daemon that is not the head, or the daemon of a sandbox in a step of its own.
type worker struct {
	*node
	line     *line       // to the head; nil if there is none
	forsaken atomic.Bool // set when this node decides the outcome because the head publishes none
}

const (
	// lookCost is the time that one poll, which is three calls, takes of a file system that answers
	// about ten thousand calls a second.
	lookCost = 300 * time.Microsecond
	// fewAtOnce is the number of nodes that may poll at the same time.
	fewAtOnce = 64
)

// line is a worker's peer link.
type line struct {
	*lifeline.Signs // state of the head, as node 0
	worker          *lifeline.Worker
	over            atomic.Int32  // the run's exit code plus 1, once the head has sent it
	tried           []string      // the head's addresses
	began           time.Time     // the time of the first connection attempt
	once            sync.Once     // guards the closing of up
	up              chan struct{} // closed at the first connection
}

// calm reports whether both directions of the peer link work: it is up, the head's heartbeats
// arrive in time, and the head's kernel acknowledges this node's. After a network outage one
// direction may work seconds before the other.
func (l *line) calm(now time.Time) bool {
	return l.Well(1, now) && l.worker.Evidence().Answers
}

// expectLine prepares the state of the peer link, if the head offers one. It must be called before
// [node.begin], because the tasks that it starts read the state.
func (w *worker) expectLine(job signal.Job) {
	if w.cfg.Lifeline != config.LifelineOff && len(job.Lifeline) > 0 {
		w.ties = &ties{Signs: lifeline.NewSigns(w.cfg.Times.LineBeat())}
	}
}

// tie starts the peer link that expectLine has prepared, if any.
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

// caller returns a function that opens a further connection to the head for the given purpose.
func (w *worker) caller(purpose lifeline.Purpose) func(context.Context) (io.ReadWriteCloser, error) {
	return lifeline.Caller(purpose, w.Dir.Secret(lifeline.SecretName), w.id.Rank, w.cfg.Network, w.line.tried)
}

// watchLine adapts the polling interval of Control to the peer link until ctx ends: once the job
// runs, polls are rare while the link is healthy, and frequent while it has failed. It warns once
// if no link can be made within the peer timeout.
func (w *worker) watchLine(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Times.LineBeat() / 2)
	defer tick.Stop()
	said, pace := false, w.tempo.Look // [worker.relax] sets this pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Warn if there is no link.
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

// lookPace returns the maximum interval between two polls of Control while only the end is expected
// there.
func (w *worker) lookPace(now time.Time, ever bool) time.Duration {
	switch {
	case w.line.Well(1, now):
		return w.cfg.Times.Rest()
	case ever: // but not healthy now
		return health.HeadTempo(w.cfg.Times.Peer, w.id.Size).Look
	default:
		return w.tempo.Look
	}
}

// second returns the failure of a daemon that is not the first one of its node.
func (w *worker) second(why string) *outsider {
	f := health.Failed(health.Launch, "cannot take part as %s: %s; start each rank once", w.name(w.id.Rank), why)
	f.Phase = w.Trail.Phase()
	return &outsider{f}
}

// outsider is the failure of a daemon that does not belong to the run, because another daemon has
// its node index. It is never published in the run directory.
type outsider struct{ *health.Failure }

// Unwrap returns the failure.
func (o *outsider) Unwrap() error { return o.Failure }

// relax makes polls of Control rare, because no record is expected there except the end of the run.
// It also records that the job runs.
func (w *worker) relax() {
	w.Control.Relax(w.tempo.Look)
	if w.line != nil {
		w.line.Run(w.cfg.Times.Outwaits())
	}
}

// ties is the state of this daemon's peer links. A nil *ties stands for a daemon without any.
type ties struct {
	*lifeline.Signs // state of the peers with links

	// calm reports whether every peer link is healthy. It is nil if heartbeat files are needed anyway.
	calm func(now time.Time) bool
	// hears reports whether heartbeats of all peers that the job needs arrive on the links.
	hears func(now time.Time) bool
	// address returns the local address of this node's peer link. It is nil on the head.
	address func() netip.Addr
}

// areCalm reports whether all peer links are healthy, so that heartbeat files are not needed.
func (t *ties) areCalm(now time.Time) bool { return t != nil && t.calm != nil && t.calm(now) }

// bear reports whether the peer links allow the job to continue without the shared file system: the
// job runs, and heartbeats of all peers that it needs arrive on the links.
func (t *ties) bear(now time.Time) bool { return t != nil && t.Runs() && t.hears(now) }
