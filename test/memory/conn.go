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

// conn is one end of a connection. The network's mu guards its fields and those of its pipes.
type conn struct {
	net        *Net
	host, peer *Host
	in, out    *pipe // receiving and sending direction

	closed   bool
	vanished bool // its daemon was killed
	abrupt   bool // closing it resets the connection
}

var _ net.Conn = (*conn)(nil)

// pipe is one direction of a connection.
type pipe struct {
	ready    []byte        // has arrived and was not read
	err      error         // follows the data: io.EOF; or ECONNRESET at once
	ended    bool          // the sender has sent everything
	deaf     bool          // the reader has closed
	latest   time.Time     // arrival time of the last parcel in transit
	underWay int           // bytes in transit
	deadline time.Time     // read deadline
	changed  chan struct{} // closed at each change for which a reader may wait
}

// room is the maximum number of bytes in transit and unread in one direction.
const room = 1 << 15

// pair creates a connection between two hosts.
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

// send makes a parcel arrive at the other end, after all earlier ones.
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

// take returns available data without waiting, or 0 if there is none.
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

// Write implements net.Conn. It never waits: if the pipe is full, it fails as if its deadline had
// passed.
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

// CloseWrite closes the sending direction.
func (c *conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed || c.vanished {
		return net.ErrClosed
	}
	c.send(End, nil)
	return nil
}

// SetLinger with 0 makes Close reset the connection.
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

// vanish closes the connection for the other end only.
func (c *conn) vanish() {
	if !c.closed && !c.vanished {
		c.leave(false)
	}
	c.vanished = true
}

// leave ends the connection for the other end. Like a kernel, it resets the connection if there is
// unread data.
func (c *conn) leave(abrupt bool) {
	c.in.deaf = true
	if abrupt || len(c.in.ready) > 0 {
		c.send(Reset, nil)
	} else {
		c.send(End, nil)
	}
}

// breakOff makes the connection appear reset at this end.
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

// SetWriteDeadline implements net.Conn. It has no effect, because writes never wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// TCPState returns what a kernel would report about the other end.
func (c *conn) TCPState() peerlink.TCPState {
	e := peerlink.TCPState{Connected: true, Acknowledges: true}
	if c.net.Cut != nil {
		e.SilentFor = c.net.Cut(c.host, c.peer)
		e.Acknowledges = e.SilentFor == 0
	}
	return e
}
