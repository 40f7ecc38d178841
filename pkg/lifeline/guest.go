package lifeline

import (
	"context"
	"sync/atomic"
)

// guestRank is the node index that a guest claims. A guest is a process outside the job, for
// example a caller of bringupd exec. Its connection makes the head poll at once, and lets the head
// detect when the guest ends.
const guestRank = 0

// GuestID is the identifier that a guest chooses for itself.
type GuestID = [identitySize]byte

// Callers handles the events of guests on the head's side. Its methods are called from several
// goroutines and must not block for long; the calls for one guest are in order.
type Callers interface {
	Called(id GuestID, look bool) // the guest is alive; look: it wants the head to poll now
	Hung(id GuestID, how Parting)
}

// Receive makes the head accept guests, and sets the handler of their events. It must be called
// before Run.
func (h *Head) Receive(callers Callers) { h.callers = callers }

// host serves a guest's connection until it ends.
func (h *Head) host(ctx context.Context, l *link) {
	defer context.AfterFunc(ctx, l.finish)()
	h.callers.Called(l.identity, false)
	l.read(func(frame, _ byte) { h.callers.Called(l.identity, frame == frameNudge) })
	if ctx.Err() == nil { // not if this side has ended it
		h.callers.Hung(l.identity, l.how)
	}
}

// Guest is the guest's side of its connection to the head. Its methods are safe for concurrent use.
type Guest struct {
	made chan struct{}        // closed when the connection is made, or has failed
	link atomic.Pointer[link] // nil before it is made, and if it has failed
}

// Visit connects to the head in the background, at one of its addresses, tried in turn. Once
// connected, it makes the head poll, because the guest may have written a record already. The
// caller must call [Guest.Leave].
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

// tell sends a frame if the connection is open. Otherwise it returns false.
func (g *Guest) tell(frame byte) bool {
	l := g.link.Load()
	if l == nil || !l.live() {
		return false
	}
	l.send(frame)
	return true
}

// Nudge makes the head poll now, or once the connection is made.
func (g *Guest) Nudge() { g.tell(frameNudge) }

// Beat sends a heartbeat. It returns false if there is no open connection.
func (g *Guest) Beat() bool { return g.tell(frameBeat) }

// Leave sends a goodbye message, and waits at most 100 ms for the head to receive it.
func (g *Guest) Leave() {
	<-g.made
	if l := g.link.Load(); l != nil {
		l.sayGoodbye()
		l.finish()
		<-l.ended
	}
}
