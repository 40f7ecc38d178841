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

// HeadPeer handles the events of the head on a worker's side. Its methods are called from several
// goroutines and must not block for long.
type HeadPeer interface {
	Connected()       // the head has proven itself: for the first time, or again
	Heard(nudge bool) // a heartbeat, or a notification to poll
	Over(code int)    // the run's exit code, for workers that cannot read the run directory
	// Gone is called when the connection has ended for good. If the connection was broken, it is
	// called with [Broken] as soon as the head refuses a new connection, and [HeadPeer.Connected] may
	// follow. It is called with [Refused] even if there never was a complete connection: if the head's
	// kernel has accepted a connection and later refuses one, although the side that accepted it has
	// not proven to be the head.
	Gone(how Parting)
	Rejected(reason string) // another daemon of this node is connected already: this one must end
}

const (
	// dialTime is the timeout for one address.
	dialTime = time.Second
	// The pauses between two tries double: after a connection was lost, from firstPause to half a
	// heartbeat interval; before the first connection, from firstCalmPause to lastCalmPause.
	firstPause     = 10 * time.Millisecond
	firstCalmPause = 100 * time.Millisecond
	lastCalmPause  = 15 * time.Second
)

// Worker is a worker's side of its peer link.
type Worker struct {
	caller
	cfg       Config
	offered   []string // the head's addresses
	addresses []string // the same, the one that worked last first; used by the connecting goroutine
	early     early    // used by the connecting goroutine
	head      HeadPeer
	shareSick func() bool
	summoned  func() // may be nil

	seat   seat // the head's slot
	nudged chan struct{}
	asked  chan struct{}              // the head requests a heartbeat now
	local  atomic.Pointer[netip.Addr] // this node's address of the last connection
	tasks  sync.WaitGroup

	leaving atomic.Bool     // the goodbye message was sent: the end of the connection is not reported
	over    context.Context // ends when the worker needs no connection any more
	end     context.CancelFunc
}

// NewWorker returns the worker's side of the peer link of the node with index rank. Run connects it
// to one of the head's addresses (host and port). Before each heartbeat, shareSick reports whether
// the shared file system is unresponsive on this node.
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

// Heed sets a function that opens an additional connection, to run a command, when the head
// requests one. It must be called before Run. The function must not block.
func (w *Worker) Heed(summoned func()) { w.summoned = summoned }

// Run keeps the worker connected until ctx ends, either side sends a goodbye message or the head
// rejects this daemon. It waits for all its goroutines.
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

// Nudge makes the head poll the run directory now. It never blocks. Several calls may result in one
// notification. Without a connection it has no effect, because the head polls when there is one
// again.
func (w *Worker) Nudge() { pause.Ring(w.nudged) }

// Farewell sends a goodbye message, so that the end of this daemon does not look like a failure,
// and waits at most 100 ms for the head to receive it.
func (w *Worker) Farewell() {
	w.leaving.Store(true)
	if l := w.seat.live(); l != nil {
		l.sayGoodbye()
	}
	w.end()
}

// Evidence returns what this node's kernel knows about the connection to the head.
func (w *Worker) Evidence() Evidence { return w.seat.live().evidence(w.cfg.Beat) }

// LocalAddress returns this node's address on the present connection, or on the last one. It is
// invalid if there was none.
func (w *Worker) LocalAddress() netip.Addr {
	if addr := w.local.Load(); addr != nil {
		return *addr
	}
	return netip.Addr{}
}

// send sends heartbeats and notifications.
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

// beat returns the frame of a heartbeat.
func (w *Worker) beat() byte {
	if w.shareSick() {
		return frameSickBeat
	}
	return frameBeat
}

// keep connects to the head if there is no connection, or if the connection is silent: packets that
// were lost while the network was down are sent again only after seconds, and a new connection is
// faster. The silent connection stays open until then, because it may recover, and because it
// provides information about the head's kernel.
func (w *Worker) keep(ctx context.Context) {
	var l *link
	wait, most := firstCalmPause, lastCalmPause
	for {
		if l != nil && l.live() {
			w.hold(l)
		}
		// The head has sent a goodbye message, or this side needs no connection any more.
		if parted := l != nil && !l.live() && l.how == Left; parted || w.leaving.Load() || ctx.Err() != nil {
			return
		}
		// Connect again. Retry soon after a connection was lost, but slowly before the first one.
		before := w.early.took
		fresh := w.dialAll(ctx)
		switch {
		case fresh != nil:
			l = fresh
			wait, most = firstPause, max(w.cfg.Beat/2, firstPause)
			continue
		case before != w.early.took: // a connection was accepted: retry soon
			wait = firstPause
		}
		if !pause.For(ctx, wait/2+time.Duration(w.cfg.Jitter()*float64(wait))) { // jitter, so that not all workers retry at once
			return
		}
		wait = min(2*wait, most)
	}
}

// hold waits until the connection has ended or is silent. The connection also ends when the context
// of Run ends.
func (w *Worker) hold(l *link) {
	for left := w.cfg.silence() - l.quiet(); left > 0 && !pause.Until(l.ended, left); {
		left = w.cfg.silence() - l.quiet()
	}
}

// dialAll tries the head's addresses in turn, beginning with the one that worked last. It returns
// the new link, which has its slot, or nil.
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

// refused is called when the head refuses a connection. If a connection has ended that was not
// reported yet, it reports how. If that one was closed in order, the refusal proves that the head's
// daemon has died. If it was reset, nothing is proven, because the kernel of a daemon that dies
// with unread data resets the connection, but so does a firewall that begins to reject.
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

// caller connects to the head, for workers and guests.
type caller struct {
	network Network
	key     []byte
	rank    int
	self    identity
}

// reach connects to the head and performs the handshake. If that fails, took reports whether the
// connection was accepted. A failed connection is reset: the head may have accepted this worker
// already, and must not mistake the end of the connection for the death of its daemon.
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

// take puts the connection into the head's slot, reports it, and starts its reader.
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
	if w.leaving.Load() { // the goodbye message may have been sent on the previous connection
		l.send(frameGoodbye)
	}
	w.tasks.Go(func() { w.follow(ctx, l) })
	return l
}

// follow reads the link until it ends, and reports its frames.
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

// gone reports that the connection has ended for good, unless this side has said goodbye.
func (w *Worker) gone(how Parting) {
	if !w.leaving.Load() {
		w.head.Gone(how)
	}
	if how == Left {
		w.end()
	}
}
