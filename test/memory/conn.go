package memory

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// conn is one end of a connection. What it and its pipes have is guarded by the
// network's mu.
type conn struct {
	net        *Net
	host, peer *Host
	in, out    *pipe // what comes, and what goes

	closed   bool
	vanished bool // its daemon was killed
	abrupt   bool // its end is a reset
}

var _ net.Conn = (*conn)(nil)

// pipe is one direction of a connection.
type pipe struct {
	ready    []byte        // has arrived and was not read
	err      error         // what comes after it: io.EOF, or ECONNRESET at once
	ended    bool          // its sender has sent all
	deaf     bool          // its reader has closed
	latest   time.Time     // when what is under way will have arrived
	underWay int           // bytes
	deadline time.Time     // for the reader
	changed  chan struct{} // closed at each change that a reader may wait for
}

// room is how many bytes may be under way and unread in one direction.
const room = 1 << 15

// pair makes a connection between two hosts.
func (n *Net) pair(one, other *Host) (ours, theirs *conn) {
	there, back := &pipe{changed: make(chan struct{})}, &pipe{changed: make(chan struct{})}
	ours = &conn{net: n, host: one, peer: other, in: back, out: there}
	theirs = &conn{net: n, host: other, peer: one, in: there, out: back}
	return ours, theirs
}

func (p *pipe) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// send has a parcel arrive at the other end, after those before it.
func (c *conn) send(what Parcel, data []byte) {
	p := c.out
	if p.ended && what != Reset {
		return
	}
	p.ended = what != Data
	p.underWay += len(data)
	if c.net.Travel == nil {
		c.arrive(what, data)
		return
	}
	now := time.Now()
	at := now.Add(c.net.Travel(c.host, c.peer, what))
	if !at.After(p.latest) {
		at = p.latest.Add(1)
	}
	p.latest = at
	time.AfterFunc(at.Sub(now), func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		c.arrive(what, data)
	})
}

func (c *conn) arrive(what Parcel, data []byte) {
	p := c.out
	p.underWay -= len(data)
	if p.deaf {
		return
	}
	c.net.arrived(c.host, c.peer, what)
	switch what {
	case End:
		p.err = io.EOF
	case Reset:
		p.err, p.ready = syscall.ECONNRESET, nil
	default:
		p.ready = append(p.ready, data...)
	}
	p.wake()
}

// Read implements net.Conn.
func (c *conn) Read(into []byte) (int, error) {
	for {
		c.net.mu.Lock()
		n, err := c.take(into)
		changed, deadline := c.in.changed, c.in.deadline
		c.net.mu.Unlock()
		switch {
		case n > 0 || err != nil:
			return n, err
		case deadline.IsZero():
			<-changed
		default:
			ctxutil.AwaitDoneFor(changed, time.Until(deadline))
		}
	}
}

// take reads what is there; it returns nothing where there is nothing.
func (c *conn) take(into []byte) (int, error) {
	p := c.in
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.vanished:
	case len(p.ready) > 0:
		n := copy(into, p.ready)
		p.ready = p.ready[n:]
		if len(p.ready) == 0 {
			p.ready = nil
		}
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	if !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return 0, nil
}

// Write implements net.Conn. It never waits: where there is no room it fails as
// if its deadline had passed.
func (c *conn) Write(data []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.vanished:
		return len(data), nil
	case c.out.ended:
		return 0, syscall.EPIPE
	case len(c.out.ready)+c.out.underWay+len(data) > room:
		return 0, os.ErrDeadlineExceeded
	}
	c.send(Data, append([]byte(nil), data...))
	return len(data), nil
}

// CloseWrite ends what this end sends.
func (c *conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed || c.vanished {
		return net.ErrClosed
	}
	c.send(End, nil)
	return nil
}

// SetLinger has Close break the connection where it is given 0.
func (c *conn) SetLinger(seconds int) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.abrupt = seconds == 0
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.end()
	return nil
}

func (c *conn) end() {
	c.closed = true
	if !c.vanished {
		delete(c.host.conns, c)
		c.leave(c.abrupt)
	}
	c.in.wake()
}

// vanish closes the connection for the other end alone.
func (c *conn) vanish() {
	if !c.closed && !c.vanished {
		c.leave(false)
	}
	c.vanished = true
}

// leave ends the connection for the other end: as kernels do, by a reset where
// there is something that was not read.
func (c *conn) leave(abrupt bool) {
	c.in.deaf = true
	if abrupt || len(c.in.ready) > 0 {
		c.send(Reset, nil)
	} else {
		c.send(End, nil)
	}
}

// breakOff has this end see the connection broken.
func (c *conn) breakOff() {
	if !c.in.deaf {
		c.in.err, c.in.ready, c.in.deaf = syscall.ECONNRESET, nil, true
		c.net.arrived(c.peer, c.host, Reset)
		c.in.wake()
	}
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address(c.host.Name) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.peer.Name) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.in.deadline = t
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// TCPState tells what a kernel would say of the other end.
func (c *conn) TCPState() peerlink.TCPState {
	e := peerlink.TCPState{Connected: true, Acknowledges: true}
	if c.net.Cut != nil {
		e.SilentFor = c.net.Cut(c.host, c.peer)
		e.Acknowledges = e.SilentFor == 0
	}
	return e
}
