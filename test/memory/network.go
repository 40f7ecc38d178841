// Package memory provides a network and a shared file system in memory, for tests. Peer links use
// the network like TCP, and the test determines latencies and outages. Daemons use the file system
// through clients, and a policy determines the effects of their calls.
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

// Net is the network between hosts. Data arrives in order and completely. The functions may be
// called from any goroutine; Travel and Arrived are called with the network's lock held. They must
// not be changed after the first connection.
type Net struct {
	// Travel, if not nil, returns how long a parcel that is sent now takes from one host to another.
	Travel func(from, to *Host, what Parcel) time.Duration
	// Cut, if not nil, returns for how long two hosts have been unable to reach each other; 0 means
	// that they are connected.
	Cut func(one, other *Host) time.Duration
	// Arrived, if not nil, is called for every parcel that arrives.
	Arrived func(from, to *Host, what Parcel)

	mu        sync.Mutex  // guards all fields of hosts, listeners and connections
	listeners []*listener // by port, from 1; guarded by mu
}

// Parcel is the kind of a transmission.
type Parcel string

// The kinds of transmissions.
const (
	Call   Parcel = "call"   // a request to connect
	Answer Parcel = "answer" // the response to it
	Data   Parcel = "data"
	End    Parcel = "end"   // no more data follows
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

// Vanish simulates the kernel's reaction when a daemon is killed: its connections are closed
// without a goodbye message, and it no longer listens. The daemon itself, whose goroutines may
// continue to run, does not notice this, and never receives anything more.
func (h *Host) Vanish() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.vanished = true
	for c := range h.conns {
		c.vanish()
	}
	h.conns = nil
}

// Break resets the connections between two hosts, as a stateful firewall between them does when it
// drops its state.
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
	l := &listener{host: h, port: len(h.net.listeners) + 1, open: true, closed: make(chan struct{}),
		calls: make(chan *conn, backlog)}
	h.net.listeners = append(h.net.listeners, l)
	return l, nil
}

// backlog is the maximum number of connections that wait to be accepted: at least the number of
// daemons.
const backlog = 1 << 14

// Dial implements peerlink.Network. The port alone identifies the listener.
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

// at returns the current or former listener at the port of an address, or nil if there has never
// been one.
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

// pass waits for the travel time of a parcel.
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

// listener is a port on which a host listens.
type listener struct {
	host   *Host
	port   int
	open   bool
	closed chan struct{}
	calls  chan *conn
}

// take queues a connection and returns true if the port is open and the daemon has not vanished.
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

// Close implements net.Listener. It resets connections that have not been accepted.
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
