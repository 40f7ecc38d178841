package lifeline

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Peers handles the events of workers on the head's side. Its methods are called from several
// goroutines and must not block for long. The calls for one node are in order, with one exception:
// a last heartbeat or notification of a connection may be reported after its replacement.
type Peers interface {
	Connected(rank int)             // the worker has proven itself: for the first time, or again
	Heard(rank int, shareSick bool) // a heartbeat; shareSick: the shared file system is unresponsive on the worker
	// Nudged is called when the worker asks the head to poll the run directory.
	Nudged(rank int)
	// Gone is called when the worker's connection has ended for good.
	Gone(rank int, how Parting)
}

// Head is the head's side of all peer links.
type Head struct {
	cfg      Config
	listener net.Listener
	peers    Peers
	seats    []seat // indexed by node
	nudged   chan struct{}
	tasks    sync.WaitGroup
	callers  Callers           // may be nil
	second   map[Purpose]Serve // handlers of additional connections, by purpose

	mu        sync.Mutex
	strangers list.List // connections (net.Conn) before the end of their handshakes, oldest first
	over      []byte    // the frame with the run's exit code; nil before
	leaving   bool      // the goodbye message was sent
	stats     Stats
}

// NewHead returns the head's side. It accepts no connections before Run.
func NewHead(cfg Config, listener net.Listener, peers Peers) *Head {
	return &Head{
		cfg: cfg, listener: listener, peers: peers, seats: make([]seat, cfg.Size), nudged: make(chan struct{}, 1), second: make(map[Purpose]Serve),
	}
}

// Run serves until ctx ends, then closes all connections and waits for all its goroutines. It also
// closes the listener.
func (h *Head) Run(ctx context.Context) {
	h.tasks.Go(func() { h.accept(ctx) })
	h.tasks.Go(func() { h.send(ctx) })
	<-ctx.Done()
	_ = h.listener.Close()
	h.tasks.Wait()
}

// Nudge makes every worker poll the run directory now. It never blocks. Several calls may result in
// one notification.
func (h *Head) Nudge() { pause.Ring(h.nudged) }

// Ask requests an immediate heartbeat from every worker. The kernel of a worker that is being
// killed still acknowledges data, but its daemon sends no heartbeat.
func (h *Head) Ask() { h.sendAll(frameAsk) }

// NudgeRank makes one worker poll the run directory now. It never blocks.
func (h *Head) NudgeRank(rank int) {
	if rank < 1 || rank >= len(h.seats) {
		return
	}
	h.seats[rank].send(frameNudge)
}

// Summon asks one worker for an additional connection, to run a command. It never blocks. It has no
// effect if the worker is not connected.
func (h *Head) Summon(rank int) {
	if rank >= 1 && rank < len(h.seats) {
		h.seats[rank].send(frameSummon)
	}
}

// Over sends the exit code of the run, from 0 to 255, to all workers, including those that connect
// later, because some may not be able to read the run directory.
func (h *Head) Over(code int) {
	over := []byte{frameOver, byte(code)}
	h.mu.Lock()
	h.over = over
	h.mu.Unlock()
	h.sendAll(over...)
}

// Farewell sends a goodbye message to all workers, including those that connect later: the head is
// about to end in order.
func (h *Head) Farewell() {
	h.mu.Lock()
	h.leaving = true
	h.mu.Unlock()
	h.sendAll(frameGoodbye)
}

// Evidence returns what this node's kernel knows about the connection to the worker.
func (h *Head) Evidence(rank int) Evidence {
	if rank < 1 || rank >= len(h.seats) {
		return Evidence{}
	}
	return h.seats[rank].live().evidence(h.cfg.Beat)
}

// send sends notifications. It also sends heartbeats to workers with overdue heartbeats, so that
// their kernels have data to acknowledge. Other workers receive a heartbeat in answer to each of
// their own: see [Head.follow].
func (h *Head) send(ctx context.Context) {
	ticker := time.NewTicker(h.cfg.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.nudged:
			h.sendAll(frameNudge)
		case <-ticker.C:
			for rank := range h.seats {
				if l := h.seats[rank].live(); l != nil && l.quiet() > h.cfg.Beat*3/2 {
					l.send(frameBeat)
				}
			}
		}
	}
}

// sendAll sends a frame to every worker.
func (h *Head) sendAll(frame ...byte) {
	for rank := range h.seats {
		h.seats[rank].send(frame...)
	}
}

// accept accepts connections until ctx ends.
func (h *Head) accept(ctx context.Context) {
	for {
		conn, err := h.listener.Accept()
		switch {
		case err == nil:
			h.tasks.Go(func() { h.receive(ctx, conn) })
		case ctx.Err() != nil:
			return
		default: // most likely no file descriptors are left: existing connections continue
			if !pause.For(ctx, 50*time.Millisecond) {
				return
			}
		}
	}
}

// receive performs the handshake, and then serves the connection.
func (h *Head) receive(ctx context.Context, conn net.Conn) {
	rank, l := h.identify(ctx, conn)
	if l == nil {
		_ = conn.Close()
		return
	}
	if purpose := Purpose(uint32(rank) & purposes); purpose != 0 {
		h.tasks.Go(func() { h.second[purpose](ctx, rank&^int(purpose), l.conn) })
		return
	}
	// The link is served by a new goroutine, because the stack of this one has grown during the
	// handshake.
	if rank == guestRank {
		h.tasks.Go(func() { h.host(ctx, l) })
		return
	}
	h.tasks.Go(func() { h.follow(ctx, rank, l) })
}

// follow serves a worker's link. It sends heartbeats only in answer to the worker's, because a
// daemon that is being killed sends none. Data that arrives at such a daemon stays unread, and
// makes its kernel reset the connection. A reset has other possible causes, but an orderly close
// proves the death of the daemon.
func (h *Head) follow(ctx context.Context, rank int, l *link) {
	h.seats[rank].follow(ctx, h.cfg, l, func(frame, _ byte) {
		if frame == frameNudge {
			h.peers.Nudged(rank)
			return
		}
		l.send(frameBeat)
		h.peers.Heard(rank, frame == frameSickBeat)
	}, func(how Parting) { h.peers.Gone(rank, how) })
}

// identify performs the handshake. It returns the claimed node index and the link, or a nil link if
// the other side is rejected. A link of a worker already has its slot.
func (h *Head) identify(ctx context.Context, conn net.Conn) (int, *link) {
	stranger := h.count(conn)
	defer h.know(stranger)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	who, sealed, err := examine(conn, h.cfg.Key)
	if err != nil {
		h.turnAway(err)
		return 0, nil
	}
	l := newLink(sealed, who.identity())
	// Guests and additional connections need no slot.
	purpose := Purpose(who.rank() & purposes)
	switch rank := int64(who.rank()); {
	case rank == guestRank && h.callers != nil:
		err = pronounce(sealed, welcome)
	case h.second[purpose] != nil && rank&^int64(purpose) < int64(h.cfg.Size):
		err = pronounce(sealed, welcome)
	case rank < 1 || rank >= int64(h.cfg.Size):
		err = errWrongRank
	default:
		err = h.seat(l, int(rank))
	}
	if err != nil {
		h.turnAway(err)
		return 0, nil
	}
	return int(who.rank()), l
}

// count adds a connection to the list of connections before their handshakes. If there are too
// many, it closes the oldest. This hardly delays a worker: its handshake needs only a moment, and
// it tries again.
func (h *Head) count(conn net.Conn) *list.Element {
	const more = 64
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.strangers.Len() >= h.cfg.Size+more {
		oldest := h.strangers.Front()
		_ = h.strangers.Remove(oldest).(net.Conn).Close()
		h.strange(errCrowded)
	}
	return h.strangers.PushBack(conn)
}

// know removes a connection that was added by [Head.count], after its handshake. It does nothing if
// count has closed the connection.
func (h *Head) know(stranger *list.Element) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strangers.Remove(stranger)
}

// seat puts the worker's link into its slot, and reports that the worker is connected. It returns
// errTaken if another daemon has the slot and was heard recently. If that daemon is silent, it is
// reported as gone first.
func (h *Head) seat(l *link, rank int) error {
	s := &h.seats[rank]
	s.telling.Lock()
	defer s.telling.Unlock()
	old := s.link.Load()
	other := old != nil && old.identity != l.identity
	if other && old.quiet() <= h.cfg.silence() {
		return errors.Join(errTaken, pronounce(l.conn, taken))
	}
	// Accept the worker, and replace the previous link.
	if err := pronounce(l.conn, welcome); err != nil {
		return err
	}
	s.takeLocked(l)
	if other {
		h.peers.Gone(rank, Broken)
	}
	// Report the new link. The goodbye message and the exit code may have been sent before it existed.
	h.mu.Lock()
	over, leaving := h.over, h.leaving
	if s.known {
		h.stats.Reconnects++ // counted before the event, because its handler may read the statistics
	}
	h.mu.Unlock()
	s.known = true
	h.peers.Connected(rank)
	l.send(frameBeat)
	if over != nil {
		l.send(over...)
	}
	if leaving {
		l.send(frameGoodbye)
	}
	return nil
}
