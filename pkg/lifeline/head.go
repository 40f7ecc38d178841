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

// Peers is what the head's side tells of. The calls come from several goroutines and must not block for long; those
// for one rank come in order, but for a last Heard or Nudged of a connection that another has replaced.
type Peers interface {
	Connected(rank int)             // it has proven itself: for the first time, or again
	Heard(rank int, shareSick bool) // a beat; shareSick: the worker's own share does not answer it
	Nudged(rank int)
	Gone(rank int, how Parting)
}

// Head is the head's side of all lifelines.
type Head struct {
	cfg      Config
	listener net.Listener
	peers    Peers
	seats    []seat // by rank
	nudged   chan struct{}
	tasks    sync.WaitGroup
	callers  Callers           // may be nil
	second   map[Purpose]Serve // for workers that call a second time

	mu        sync.Mutex
	strangers list.List // of net.Conn, the oldest first: who has not proven itself yet
	over      []byte    // the frame that says so; nil before
	leaving   bool      // goodbye was said
	stats     Stats
}

// NewHead returns the head's side, which Run makes serve.
func NewHead(cfg Config, listener net.Listener, peers Peers) *Head {
	return &Head{
		cfg: cfg, listener: listener, peers: peers, seats: make([]seat, cfg.Size), nudged: make(chan struct{}, 1), second: make(map[Purpose]Serve),
	}
}

// Run serves until ctx ends, then closes everything and waits for all its goroutines. It closes the listener too.
func (h *Head) Run(ctx context.Context) {
	h.tasks.Go(func() { h.accept(ctx) })
	h.tasks.Go(func() { h.send(ctx) })
	<-ctx.Done()
	_ = h.listener.Close()
	h.tasks.Wait()
}

// Nudge makes every worker look now. It never blocks, and nudges merge.
func (h *Head) Nudge() { pause.Ring(h.nudged) }

// Ask has every worker give a beat now: the kernel of one that is being killed still acknowledges, its daemon does not
// answer.
func (h *Head) Ask() { h.sendAll(frameAsk) }

// NudgeRank makes one worker look now. It never blocks.
func (h *Head) NudgeRank(rank int) {
	if rank < 1 || rank >= len(h.seats) {
		return
	}
	h.seats[rank].send(frameNudge)
}

// Summon has one worker call a second time, to run a command. It never blocks; without a lifeline it is lost.
func (h *Head) Summon(rank int) {
	if rank >= 1 && rank < len(h.seats) {
		h.seats[rank].send(frameSummon)
	}
}

// Over tells all workers, and those that connect later, with which code, 0 to 255, they are to end the run: some may be
// unable to look at the share.
func (h *Head) Over(code int) {
	over := []byte{frameOver, byte(code)}
	h.mu.Lock()
	h.over = over
	h.mu.Unlock()
	h.sendAll(over...)
}

// Farewell says goodbye to all workers, and to those who connect later: the head is about to end in order.
func (h *Head) Farewell() {
	h.mu.Lock()
	h.leaving = true
	h.mu.Unlock()
	h.sendAll(frameGoodbye)
}

// Evidence tells what the kernels say of the worker.
func (h *Head) Evidence(rank int) Evidence {
	if rank < 1 || rank >= len(h.seats) {
		return Evidence{}
	}
	return h.seats[rank].live().evidence(h.cfg.Beat)
}

// send writes the nudges, and beats to those who are overdue, so that their kernels have something to acknowledge. All
// others get ours in answer to their own: see follow.
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

// sendAll writes a frame to every worker.
func (h *Head) sendAll(frame ...byte) {
	for rank := range h.seats {
		h.seats[rank].send(frame...)
	}
}

// accept lets connections in until ctx ends.
func (h *Head) accept(ctx context.Context) {
	for {
		conn, err := h.listener.Accept()
		switch {
		case err == nil:
			h.tasks.Go(func() { h.receive(ctx, conn) })
		case ctx.Err() != nil:
			return
		default: // no files left, most likely: those that we have go on
			if !pause.For(ctx, 50*time.Millisecond) {
				return
			}
		}
	}
}

// receive finds out who is there, and follows it if it is one of ours.
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
	// A goroutine of its own, for this one's stack has grown while it reckoned.
	if rank == guestRank {
		h.tasks.Go(func() { h.host(ctx, l) })
		return
	}
	h.tasks.Go(func() { h.follow(ctx, rank, l) })
}

// follow answers each beat with ours. What comes while a daemon is being killed is not read any more, and has its kernel
// reset the connection, which may be anybody's doing, instead of closing it in order, which tells of a death at once; who
// is being killed asks for nothing.
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

// identify returns the worker's rank and its link, which has the seat, or nil where it is not let in.
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

// count counts a stranger in. Where there are too many the oldest goes: ours take a moment only, and come again.
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

// know counts a stranger out. It does nothing to one that was crowded out.
func (h *Head) know(stranger *list.Element) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strangers.Remove(stranger)
}

// seat gives the worker its place, unless another daemon has it: one that was heard of lately. The place of one that
// wasn't is free, and it is told of as gone before.
func (h *Head) seat(l *link, rank int) error {
	s := &h.seats[rank]
	s.telling.Lock()
	defer s.telling.Unlock()
	old := s.link.Load()
	other := old != nil && old.identity != l.identity
	if other && old.quiet() <= h.cfg.silence() {
		return errors.Join(errTaken, pronounce(l.conn, taken))
	}
	if err := pronounce(l.conn, welcome); err != nil {
		return err
	}
	s.takeLocked(l)
	if other {
		h.peers.Gone(rank, Broken)
	}
	h.mu.Lock()
	over, leaving := h.over, h.leaving
	if s.known {
		h.stats.Reconnects++ // before it is told of: who is told may look
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
