package lifeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// seat is a peer's place: the connection that it has now, whose news is told in order.
type seat struct {
	telling sync.Mutex           // held from a change of link until it is told of
	link    atomic.Pointer[link] // nil before the first, and after one was lost for good
	known   bool                 // somebody has had it, guarded by telling
}

// live returns the connection if there is one.
func (s *seat) live() *link {
	if l := s.link.Load(); l != nil && l.live() {
		return l
	}
	return nil
}

// send writes a frame where there is a connection.
func (s *seat) send(frame ...byte) {
	if l := s.live(); l != nil {
		l.send(frame...)
	}
}

// takeLocked gives the place to l. The connection that had it is closed, and its peer is not told of as gone.
func (s *seat) takeLocked(l *link) {
	if old := s.link.Swap(l); old != nil {
		close(old.replaced)
		abort(old.conn)
	}
}

// lose empties the place and tells so, unless l has lost it already.
func (s *seat) lose(l *link, tell func()) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.link.CompareAndSwap(l, nil) {
		tell()
	}
}

// follow hands over what comes on l until its end, which comes with that of ctx, and tells how it parted if it isn't
// back in time. l has the place.
func (s *seat) follow(ctx context.Context, cfg Config, l *link, on func(frame, code byte), gone func(Parting)) {
	defer context.AfterFunc(ctx, l.finish)()
	l.read(on)
	patience := time.NewTimer(cfg.patience(l.how))
	defer patience.Stop()
	select {
	case <-patience.C:
		if ctx.Err() == nil { // or it was we who have ended it
			s.lose(l, func() { gone(l.how) })
		}
	case <-l.replaced:
	case <-ctx.Done():
	}
}
