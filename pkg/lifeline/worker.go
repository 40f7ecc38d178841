package lifeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// HeadPeer is what a worker's side tells of. The calls come from several goroutines and must not block for long.
type HeadPeer interface {
	Connected()       // the head has proven itself: for the first time, or again
	Heard(nudge bool) // a beat, or a nudge: this node is to look
	Over(code int)    // the run ends by this code, also for who can't look
	// Gone: the connection has ended for good. It is called with Refused, also where there never was a connection, when
	// the head's kernel has taken a call and later refuses one. Who took that call had not proven to be the head. It is
	// called with Broken as soon as calls are refused, too, and may be followed by Connected then.
	Gone(how Parting)
	Rejected(reason string) // another daemon of this rank is connected already: this one must end
}

const (
	// dialTime is how long one address may take to answer.
	dialTime = time.Second
	// The pauses between two tries double: from firstPause to half a beat where there was a connection before, from
	// firstCalmPause to lastCalmPause where there never was one.
	firstPause     = 10 * time.Millisecond
	firstCalmPause = 100 * time.Millisecond
	lastCalmPause  = 15 * time.Second
)

// Worker is a worker's side of its lifeline.
type Worker struct {
	caller
	cfg       Config
	offered   []string // the head's addresses
	addresses []string // the same, the one that has worked first; keep's
	early     early    // keep's
	head      HeadPeer
	shareSick func() bool
	summoned  func() // may be nil

	seat   seat // the head's
	nudged chan struct{}
	asked  chan struct{}              // the head wants a beat now
	local  atomic.Pointer[netip.Addr] // of the last connection
	tasks  sync.WaitGroup

	leaving atomic.Bool     // we have said goodbye: what comes of it is no news
	over    context.Context // ends once there is nothing left to do
	end     context.CancelFunc
}

// NewWorker returns the worker's side, which Run connects to one of the head's addresses: host and port. shareSick
// tells, before each beat, whether this node's share does not answer.
func NewWorker(
	cfg Config, rank int, network Network, addresses []string, head HeadPeer, shareSick func() bool,
) *Worker {
	w := &Worker{
		caller: caller{network: network, key: cfg.Key, rank: rank}, cfg: cfg, head: head,
		offered: slices.Clone(addresses), addresses: slices.Clone(addresses), shareSick: shareSick,
		nudged: make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
	w.over, w.end = context.WithCancel(context.Background())
	draw(w.self[:])
	if cfg.Jitter == nil {
		w.cfg.Jitter = rand.Float64
	}
	return w
}

// Heed has the worker call a second time, to run a command, where the head wants that. It comes before Run; summoned must
// not block.
func (w *Worker) Heed(summoned func()) { w.summoned = summoned }

// Run keeps the worker connected until ctx ends, either side says goodbye or the head rejects this daemon. It waits
// for all its goroutines.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.tasks.Go(func() { w.send(ctx) })
	w.tasks.Go(func() { w.keep(ctx) })
	select {
	case <-ctx.Done():
	case <-w.over.Done():
	}
	cancel()
	w.tasks.Wait()
}

// Nudge makes the head look now. It never blocks, and nudges merge. Without a connection it is lost: the head looks
// when there is one again.
func (w *Worker) Nudge() { pause.Ring(w.nudged) }

// Farewell says goodbye, so that the head does not take our end for a death, and waits a moment for it to hear that.
func (w *Worker) Farewell() {
	w.leaving.Store(true)
	if l := w.seat.live(); l != nil {
		l.sayGoodbye()
	}
	w.end()
}

// Evidence tells what the kernels say of the head.
func (w *Worker) Evidence() Evidence { return w.seat.live().evidence(w.cfg.Beat) }

// LocalAddress returns this node's address in the connection, or in the last one; it is invalid where there was none.
func (w *Worker) LocalAddress() netip.Addr {
	if addr := w.local.Load(); addr != nil {
		return *addr
	}
	return netip.Addr{}
}

// send writes the beats and the nudges.
func (w *Worker) send(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.nudged:
			w.seat.send(frameNudge)
		case <-ticker.C:
			w.seat.send(w.beat())
		case <-w.asked:
			w.seat.send(w.beat())
		}
	}
}

func (w *Worker) beat() byte {
	if w.shareSick() {
		return frameSickBeat
	}
	return frameBeat
}

// keep dials whenever there is no connection, or a silent one: what the network lost while it was down is not sent
// again for seconds, and a new connection is made sooner. The silent one stays, for it may wake up and it can be asked
// for evidence.
func (w *Worker) keep(ctx context.Context) {
	var l *link
	wait, most := firstCalmPause, lastCalmPause
	for {
		if l != nil && l.live() {
			w.hold(l)
		}
		if parted := l != nil && !l.live() && l.how == Left; parted || w.leaving.Load() || ctx.Err() != nil {
			return
		}
		before := w.early.took
		fresh := w.dialAll(ctx)
		switch {
		case fresh != nil:
			l = fresh
			wait, most = firstPause, max(w.cfg.Beat/2, firstPause)
			continue
		case before != w.early.took: // a call was taken: it is time to come back and see
			wait = firstPause
		}
		if !pause.For(ctx, wait/2+time.Duration(w.cfg.Jitter()*float64(wait))) { // or all workers would come at once
			return
		}
		wait = min(2*wait, most)
	}
}

// hold returns when the connection has ended, which it does with Run, or is silent, at once where it is.
func (w *Worker) hold(l *link) {
	for left := w.cfg.silence() - l.quiet(); left > 0 && !pause.Until(l.ended, left); {
		left = w.cfg.silence() - l.quiet()
	}
}

// dialAll tries the head's addresses in turn, beginning with the one that has worked, and returns the
// connection, which has the seat, or nil.
func (w *Worker) dialAll(ctx context.Context) *link {
	for i, address := range w.addresses {
		conn, took, err := w.reach(ctx, address)
		if err != nil && took {
			w.early.turnedAway(address, err)
		}
		switch {
		case err == nil:
			w.addresses[0], w.addresses[i] = w.addresses[i], w.addresses[0]
			w.early.closed = true
			return w.take(ctx, conn)
		case errors.Is(err, errTaken):
			w.head.Rejected(err.Error())
			w.end()
			return nil
		case !errors.Is(err, syscall.ECONNREFUSED):
		case w.early.bereft(address):
			w.gone(Refused)
		case i == 0:
			w.refused()
		}
	}
	return nil
}

// refused tells, if a connection has ended that was not told of yet, that the head's daemon has died. Where the connection
// was reset, it tells no more than that: the kernel of a daemon which dies before it has read all that was said to it does
// so, and so does a firewall that begins to reject.
func (w *Worker) refused() {
	l := w.seat.link.Load()
	if l == nil || l.live() {
		return
	}
	how := l.how
	if how == Closed {
		how = Refused
	}
	w.seat.lose(l, func() { w.gone(how) })
}

// caller is who calls the head.
type caller struct {
	network Network
	key     []byte
	rank    int
	self    identity
}

// reach makes a connection to the head on which both sides have proven themselves. Where they have not, it tells whether
// the call was taken. One that fails is aborted: the head may have let us in already, and must not take its end for our
// death.
func (c caller) reach(ctx context.Context, address string) (proven *secureConn, took bool, err error) {
	short, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := c.network.Dial(short, address)
	if err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	defer stop()
	proven, err = introduce(conn, c.key, c.rank, c.self)
	if err != nil {
		abort(conn)
		return nil, true, err
	}
	return proven, true, nil
}

// take gives the head's seat to the connection.
func (w *Worker) take(ctx context.Context, conn *secureConn) *link {
	l := newLink(conn, w.self)
	if local, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		addr := local.AddrPort().Addr().Unmap()
		w.local.Store(&addr)
	}
	w.seat.telling.Lock()
	w.seat.takeLocked(l)
	w.head.Connected()
	w.seat.telling.Unlock()
	l.send(w.beat())
	if w.leaving.Load() { // Farewell may have said it on the one before
		l.send(frameGoodbye)
	}
	w.tasks.Go(func() { w.follow(ctx, l) })
	return l
}

func (w *Worker) follow(ctx context.Context, l *link) {
	w.seat.follow(ctx, w.cfg, l, func(frame, code byte) {
		switch frame {
		case frameOver:
			w.head.Over(int(code))
		case frameAsk:
			pause.Ring(w.asked)
			w.head.Heard(false)
		case frameSummon:
			w.head.Heard(false)
			if w.summoned != nil {
				w.summoned()
			}
		default:
			w.head.Heard(frame == frameNudge)
		}
	}, w.gone)
}

func (w *Worker) gone(how Parting) {
	if !w.leaving.Load() {
		w.head.Gone(how)
	}
	if how == Left {
		w.end()
	}
}
