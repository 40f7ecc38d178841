package memory

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/lifeline"
)

// conn is one end of a connection.
type conn struct {
	net        *Net
	host, peer *Host
	in, out    *pipe // what comes, and what goes

	mu       sync.Mutex
	closed   bool // guarded by mu
	vanished bool // its daemon was killed, guarded by mu
	abrupt   bool // its end is a reset, guarded by mu
}

var _ net.Conn = (*conn)(nil)

// pipe is one direction of a connection.
type pipe struct {
	mu       sync.Mutex
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
const room = 4096

func newPipe() *pipe { return &pipe{changed: make(chan struct{})} }

// pair makes a connection between two hosts.
func (n *Net) pair(one, other *Host) (ours, theirs *conn) {
	there, back := newPipe(), newPipe()
	ours = &conn{net: n, host: one, peer: other, in: back, out: there}
	theirs = &conn{net: n, host: other, peer: one, in: there, out: back}
	return ours, theirs
}

// wake needs p.mu.
func (p *pipe) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// send has a parcel arrive at the other end, after those before it.
func (c *conn) send(what Parcel, data []byte) {
	p := c.out
	p.mu.Lock()
	defer p.mu.Unlock()
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
		p.mu.Lock()
		defer p.mu.Unlock()
		c.arrive(what, data)
	})
}

// arrive needs the lock of c.out.
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
	p := c.in
	for {
		p.mu.Lock()
		n, err := c.readLocked(into)
		changed, deadline := p.changed, p.deadline
		p.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		if deadline.IsZero() {
			<-changed
			continue
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// readLocked needs the lock of c.in; it returns nothing where there is nothing.
func (c *conn) readLocked(into []byte) (int, error) {
	p := c.in
	closed, vanished := c.state()
	switch {
	case closed:
		return 0, net.ErrClosed
	case vanished:
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

func (c *conn) state() (closed, vanished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed, c.vanished
}

// Write implements net.Conn. It never waits: where there is no room it fails as
// if its deadline had passed.
func (c *conn) Write(data []byte) (int, error) {
	closed, vanished := c.state()
	c.out.mu.Lock()
	ended, full := c.out.ended, len(c.out.ready)+c.out.underWay+len(data) > room
	c.out.mu.Unlock()
	switch {
	case closed:
		return 0, net.ErrClosed
	case vanished:
		return len(data), nil
	case ended:
		return 0, syscall.EPIPE
	case full:
		return 0, os.ErrDeadlineExceeded
	}
	c.send(Data, append([]byte(nil), data...))
	return len(data), nil
}

// CloseWrite ends what this end sends.
func (c *conn) CloseWrite() error {
	if closed, vanished := c.state(); closed || vanished {
		return net.ErrClosed
	}
	c.send(End, nil)
	return nil
}

// SetLinger has Close break the connection where it is given 0.
func (c *conn) SetLinger(seconds int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abrupt = seconds == 0
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	abrupt, was, vanished := c.abrupt, c.closed, c.vanished
	c.closed = true
	c.mu.Unlock()
	switch {
	case was:
		return net.ErrClosed
	case !vanished:
		c.host.drop(c)
		c.leave(abrupt)
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.wake()
	return nil
}

// vanish closes the connection for the other end alone.
func (c *conn) vanish() {
	c.mu.Lock()
	was := c.closed || c.vanished
	c.vanished = true
	c.mu.Unlock()
	if !was {
		c.leave(false)
	}
}

// leave ends the connection for the other end: as kernels do, by a reset where
// there is something that was not read.
func (c *conn) leave(abrupt bool) {
	c.in.mu.Lock()
	abrupt = abrupt || len(c.in.ready) > 0
	c.in.deaf = true
	c.in.mu.Unlock()
	if abrupt {
		c.send(Reset, nil)
	} else {
		c.send(End, nil)
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
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Evidence tells what a kernel would say of the other end.
func (c *conn) Evidence() lifeline.Evidence {
	e := lifeline.Evidence{Connected: true, Answers: true}
	if c.net.Cut != nil {
		e.Quiet = c.net.Cut(c.host, c.peer)
		e.Answers = e.Quiet == 0
	}
	return e
}

// Break resets the connections between two hosts, as what keeps track of them
// in between does when it forgets them.
func (n *Net) Break(one, other *Host) {
	for _, c := range one.to(other) {
		c.breakOff()
	}
	for _, c := range other.to(one) {
		c.breakOff()
	}
}

func (h *Host) to(other *Host) (conns []*conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		if c.peer == other {
			conns = append(conns, c)
		}
	}
	return conns
}

// breakOff has this end see the connection broken.
func (c *conn) breakOff() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if !c.in.deaf {
		c.in.err, c.in.ready, c.in.deaf = syscall.ECONNRESET, nil, true
		c.net.arrived(c.peer, c.host, Reset)
		c.in.wake()
	}
}
