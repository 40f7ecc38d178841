package lifeline

import (
	"context"
	"sync/atomic"
)

// A guest has no rank: it is somebody outside the job who wants the head to look
// at once, and to know when it goes.
const guestRank = 0

// GuestID is what a guest calls itself.
type GuestID = [identitySize]byte

// Callers is what the head's side tells of guests. The calls come from several
// goroutines and must not block for long; those for one guest come in order.
type Callers interface {
	Called(id GuestID, look bool) // a sign of it; look: it wants the head to look now
	Hung(id GuestID, how Parting)
}

// Receive has guests let in, and told of. It comes before Run.
func (h *Head) Receive(callers Callers) { h.callers = callers }

// host listens to a guest until it goes.
func (h *Head) host(ctx context.Context, l *link) {
	defer context.AfterFunc(ctx, l.finish)()
	h.callers.Called(l.identity, false)
	l.read(func(frame, _ byte) { h.callers.Called(l.identity, frame == frameNudge) })
	if ctx.Err() == nil { // or it was we who have ended it
		h.callers.Hung(l.identity, l.how)
	}
}

// Guest is a guest's side of its connection, as soon and as long as there is one.
type Guest struct {
	made chan struct{}        // closed when the connection is made, or can't be
	link atomic.Pointer[link] // nil before it is made, and where it can't be
}

// Visit has a connection made to the head at one of its addresses, tried in turn, and
// has the head look then: there may be something already. Leave must be called.
func Visit(ctx context.Context, key []byte, self GuestID, network Network, addresses []string) *Guest {
	g := &Guest{made: make(chan struct{})}
	from := caller{network: network, key: key, rank: guestRank, self: self}
	go func() {
		for _, address := range addresses {
			conn, _, err := from.reach(ctx, address)
			if err == nil {
				l := newLink(conn, self)
				go l.read(func(_, _ byte) {})
				g.link.Store(l)
				break
			}
		}
		close(g.made)
		g.Nudge()
	}()
	return g
}

// tell sends a frame where the connection is made and has not ended.
func (g *Guest) tell(frame byte) bool {
	l := g.link.Load()
	if l == nil || !l.live() {
		return false
	}
	l.send(frame)
	return true
}

// Nudge makes the head look now, or once the connection is made.
func (g *Guest) Nudge() { g.tell(frameNudge) }

// Beat tells that the guest is still there; it returns false where that can't be told.
func (g *Guest) Beat() bool { return g.tell(frameBeat) }

// Leave says goodbye, and waits a moment for the head to hear it.
func (g *Guest) Leave() {
	<-g.made
	if l := g.link.Load(); l != nil {
		l.sayGoodbye()
		l.finish()
		<-l.ended
	}
}
