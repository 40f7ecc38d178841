package peerlink

import (
	"context"
	"sync/atomic"
)

// clientIndex is the node index that a guest claims. A guest is a process outside the job, for
// example a caller of bringupd exec. Its connection makes the head poll at once, and lets the head
// detect when the guest ends.
const clientIndex = 0

// ClientID is the identifier that a guest chooses for itself.
type ClientID = [identitySize]byte

// ClientHandler handles the events of guests on the head's side. Its methods are called from
// several goroutines and must not block for long; the calls for one guest are in order.
type ClientHandler interface {
	ClientActive(id ClientID, look bool) // the guest is alive; look: it wants the head to poll now
	ClientGone(id ClientID, how CloseReason)
}

// AcceptClients makes the head accept guests, and sets the handler of their events. It must be
// called before Run.
func (h *Head) AcceptClients(callers ClientHandler) { h.clients = callers }

// serveClient serves a guest's connection until it ends.
func (h *Head) serveClient(ctx context.Context, l *link) {
	defer context.AfterFunc(ctx, l.closeInOrder)()
	h.clients.ClientActive(l.identity, false)
	l.readLoop(func(frame byte, _ []byte) { h.clients.ClientActive(l.identity, frame == framePoll) })
	if ctx.Err() == nil { // not if this side has ended it
		h.clients.ClientGone(l.identity, l.closeReason)
	}
}

// Client is the guest's side of its connection to the head. Its methods are safe for concurrent
// use.
type Client struct {
	dialed chan struct{}        // closed when the connection is made, or has failed
	link   atomic.Pointer[link] // nil before it is made, and if it has failed
}

// ConnectClient connects to the head in the background, at one of its addresses, tried in turn.
// Once connected, it makes the head poll, because the guest may have written a record already. The
// caller must call [Client.Disconnect].
func ConnectClient(ctx context.Context, key []byte, self ClientID, network Network, addresses []string) *Client {
	g := &Client{dialed: make(chan struct{})}
	from := headDialer{network: network, key: key, node: clientIndex, identity: self}
	go func() {
		for _, address := range addresses {
			conn, _, err := from.dialAddress(ctx, address)
			if err == nil {
				l := newLink(conn, self)
				go l.readLoop(func(byte, []byte) {})
				g.link.Store(l)
				break
			}
		}
		close(g.dialed)
		g.RequestPoll()
	}()
	return g
}

// sendFrame sends a frame if the connection is open. Otherwise it returns false.
func (g *Client) sendFrame(frame byte) bool {
	l := g.link.Load()
	if l == nil || !l.isOpen() {
		return false
	}
	l.sendFrame(frame)
	return true
}

// RequestPoll makes the head poll now, or once the connection is made.
func (g *Client) RequestPoll() { g.sendFrame(framePoll) }

// SendHeartbeat sends a heartbeat. It returns false if there is no open connection.
func (g *Client) SendHeartbeat() bool { return g.sendFrame(frameHeartbeat) }

// Disconnect sends a goodbye message, and waits at most 100 ms for the head to receive it.
func (g *Client) Disconnect() {
	<-g.dialed
	if l := g.link.Load(); l != nil {
		l.sayGoodbye()
		l.closeInOrder()
		<-l.ended
	}
}
