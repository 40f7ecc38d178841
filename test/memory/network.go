// Package memory is a network and a share in memory, for tests. Lifelines are held over the
// network as over TCP, and the test says how long things travel and what is cut off. Daemons reach
// the share by clients, and a policy says what becomes of their calls.
package memory

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// Net is the network between hosts. What is sent arrives in its order, and as a
// whole. The functions are called from any goroutine, Travel and Arrived with the
// network's lock held; they are not to be changed once there are connections.
type Net struct {
	// Travel, where it is not nil, returns how long what is sent now takes from
	// one host to another.
	Travel func(from, to *Host, what Parcel) time.Duration
	// Cut, where it is not nil, returns for how long two hosts have not reached
	// each other; 0: they do.
	Cut func(one, other *Host) time.Duration
	// Arrived, where it is not nil, is told of everything that arrives.
	Arrived func(from, to *Host, what Parcel)

	mu        sync.Mutex  // guards all that hosts, listeners and connections have
	listeners []*listener // by port, from 1 on; guarded by mu
}

// Parcel is what travels.
type Parcel string

// The parcels.
const (
	Call   Parcel = "call"   // somebody wants to connect
	Answer Parcel = "answer" // whether it may
	Data   Parcel = "data"
	End    Parcel = "end"   // nothing more is sent
	Reset  Parcel = "reset" // the connection is broken
)

// Host is one daemon's end of the network.
type Host struct {
	Name     string
	net      *Net
	vanished bool
	conns    map[*conn]struct{}
}

var _ peerlink.Network = (*Host)(nil)

// Host returns a new host.
func (n *Net) Host(name string) *Host {
	return &Host{Name: name, net: n, conns: make(map[*conn]struct{})}
}

// Vanish is what a kernel does when a daemon is killed: its connections are
// closed without a word, and nobody listens any more. The daemon itself, whose
// goroutines may live on, sees nothing of that, and never gets an answer.
func (h *Host) Vanish() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.vanished = true
	for c := range h.conns {
		c.vanish()
	}
	h.conns = nil
}

// Break resets the connections between two hosts, as what keeps track of them
// in between does when it forgets them.
func (n *Net) Break(one, other *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range []struct{ host, peer *Host }{{one, other}, {other, one}} {
		for c := range end.host.conns {
			if c.peer == end.peer {
				c.breakOff()
			}
		}
	}
}

// Listen implements peerlink.Network.
func (h *Host) Listen() (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	l := &listener{host: h, port: len(h.net.listeners) + 1, open: true, closed: make(chan struct{}), calls: make(chan *conn, backlog)}
	h.net.listeners = append(h.net.listeners, l)
	return l, nil
}

// backlog is how many calls wait for somebody who accepts them: as many as there
// are daemons at most.
const backlog = 1 << 14

// Dial implements peerlink.Network. The port alone tells who is meant.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	n := h.net
	l, err := n.at(address)
	n.mu.Lock()
	vanished := h.vanished
	n.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case vanished:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case l == nil:
		return nil, refused(address)
	}
	if err := n.pass(ctx, h, l.host, Call); err != nil {
		return nil, err
	}
	ours, theirs := n.pair(h, l.host)
	accepted := l.take(theirs)
	if err := n.pass(ctx, l.host, h, Answer); err != nil {
		_ = ours.Close()
		return nil, err
	}
	if !accepted {
		return nil, refused(address)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.vanished {
		ours.vanish()
	} else {
		h.conns[ours] = struct{}{}
	}
	return ours, nil
}

// at returns who listens, or did, at the port of an address; nil: nobody ever did.
func (n *Net) at(address string) (*listener, error) {
	_, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil || port < 1 || port > len(n.listeners) {
		return nil, err
	}
	return n.listeners[port-1], nil
}

func refused(address string) error {
	return fmt.Errorf("cannot connect to %s: %w", address, syscall.ECONNREFUSED)
}

// pass waits for as long as a parcel travels.
func (n *Net) pass(ctx context.Context, from, to *Host, what Parcel) error {
	if n.Travel != nil && !ctxutil.SleepContext(ctx, n.Travel(from, to, what)) {
		return context.Cause(ctx)
	}
	n.arrived(from, to, what)
	return nil
}

func (n *Net) arrived(from, to *Host, what Parcel) {
	if n.Arrived != nil {
		n.Arrived(from, to, what)
	}
}

// listener is a port.
type listener struct {
	host   *Host
	port   int
	open   bool
	closed chan struct{}
	calls  chan *conn
}

// take takes a call in, if somebody listens and the daemon has not vanished.
func (l *listener) take(c *conn) bool {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	if !l.open || l.host.vanished {
		return false
	}
	select {
	case l.calls <- c:
		l.host.conns[c] = struct{}{}
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Calls that nobody has accepted are broken off.
func (l *listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	if !l.open {
		return nil
	}
	l.open = false
	close(l.closed)
	for {
		select {
		case c := <-l.calls:
			c.abrupt = true
			c.end()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr {
	return address(net.JoinHostPort(l.host.Name, strconv.Itoa(l.port)))
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
