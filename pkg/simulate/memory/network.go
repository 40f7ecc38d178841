// Package memory is a network in memory, for simulations and tests: lifelines
// are held over it as over TCP.
package memory

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
)

// Net is the network between hosts. What is sent arrives in its order, and as a
// whole. The functions are called from any goroutine, with locks of the network
// held; they are not to be changed once there are connections.
type Net struct {
	// Travel, where it is not nil, returns how long what is sent now takes from
	// one host to another.
	Travel func(from, to *Host, what Parcel) time.Duration
	// Cut, where it is not nil, returns for how long two hosts have not reached
	// each other; 0: they do.
	Cut func(one, other *Host) time.Duration
	// Arrived, where it is not nil, is told of everything that arrives.
	Arrived func(from, to *Host, what Parcel)

	mu        sync.Mutex
	listeners []*listener // by port, from 1 on; nil where nobody listens any more, guarded by mu
	hosts     []*Host     // whose ports they are, or were, guarded by mu
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
	Name string
	net  *Net

	mu        sync.Mutex
	vanished  bool                   // guarded by mu
	conns     map[*conn]struct{}     // guarded by mu
	listeners map[*listener]struct{} // guarded by mu
}

var _ lifeline.Network = (*Host)(nil)

// Host returns a new host.
func (n *Net) Host(name string) *Host {
	return &Host{Name: name, net: n, conns: make(map[*conn]struct{}), listeners: make(map[*listener]struct{})}
}

// Vanish is what a kernel does when a daemon is killed: its connections are
// closed without a word, and nobody listens any more. The daemon itself, whose
// goroutines may live on, sees nothing of that, and never gets an answer.
func (h *Host) Vanish() {
	h.mu.Lock()
	h.vanished = true
	conns, listeners := h.conns, h.listeners
	h.conns, h.listeners = nil, nil
	h.mu.Unlock()
	for l := range listeners {
		h.net.forget(l)
	}
	for c := range conns {
		c.vanish()
	}
}

func (h *Host) gone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vanished
}

// Listen implements lifeline.Network.
func (h *Host) Listen() (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	l := &listener{host: h, port: len(h.net.hosts) + 1, closed: make(chan struct{}), calls: make(chan *conn, backlog)}
	h.net.listeners, h.net.hosts = append(h.net.listeners, l), append(h.net.hosts, h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.vanished {
		h.listeners[l] = struct{}{}
	}
	return l, nil
}

// backlog is how many calls wait for somebody who accepts them: as many as there
// are daemons at most.
const backlog = 1 << 14

// forget has nobody listen there any more.
func (n *Net) forget(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[l.port-1] = nil
}

// at returns whose port that is, or was, and who listens there; nil: nobody.
func (n *Net) at(port int) (*Host, *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if port < 1 || port > len(n.hosts) {
		return nil, nil
	}
	return n.hosts[port-1], n.listeners[port-1]
}

// Dial implements lifeline.Network. The port alone tells who is meant.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	_, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	there, _ := h.net.at(port)
	switch {
	case h.gone():
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case there == nil:
		return nil, refused(address)
	}
	if err := h.net.pass(ctx, h, there, Call); err != nil {
		return nil, err
	}
	ours, theirs := h.net.pair(h, there)
	_, listening := h.net.at(port)
	accepted := listening != nil && listening.take(theirs)
	if err := h.net.pass(ctx, there, h, Answer); err != nil {
		_ = ours.Close()
		return nil, err
	}
	if !accepted {
		return nil, refused(address)
	}
	if !h.keep(ours) {
		ours.vanish()
	}
	return ours, nil
}

func refused(address string) error {
	return fmt.Errorf("cannot connect to %s: %w", address, syscall.ECONNREFUSED)
}

// keep notes a connection; false where the daemon has vanished.
func (h *Host) keep(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.vanished {
		return false
	}
	h.conns[c] = struct{}{}
	return true
}

func (h *Host) drop(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// pass waits for as long as a parcel travels.
func (n *Net) pass(ctx context.Context, from, to *Host, what Parcel) error {
	if n.Travel != nil {
		if !pause.For(ctx, n.Travel(from, to, what)) {
			return context.Cause(ctx)
		}
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
	once   sync.Once
	closed chan struct{}
	calls  chan *conn
}

// take takes a call in, unless the daemon has vanished.
func (l *listener) take(c *conn) bool {
	if !l.host.keep(c) {
		return false
	}
	select {
	case l.calls <- c:
		return true
	default:
		l.host.drop(c)
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
	l.once.Do(func() {
		l.host.net.forget(l)
		close(l.closed)
		if l.host.gone() {
			return // what has called was broken off then
		}
		for {
			select {
			case c := <-l.calls:
				_ = c.SetLinger(0)
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr {
	return address(net.JoinHostPort(l.host.Name, strconv.Itoa(l.port)))
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
