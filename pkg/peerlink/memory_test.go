package peerlink

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// memory is a network in memory, with one listener at a time. Calls to other addresses are refused.
type memory struct {
	mu     sync.Mutex
	listen *memoryListener
	dials  atomic.Int64
	dark   atomic.Bool // dials get no answer
	apart  atomic.Bool // the head cannot be reached
	conns  []*memoryConn
}

var _ Network = (*memory)(nil)

func (m *memory) Listen() (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen = &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return m.listen, nil
}

// nobody is an address at which a dial is always refused.
const nobody = "nobody"

func (m *memory) Dial(ctx context.Context, address string) (net.Conn, error) {
	m.dials.Add(1)
	if address == nobody {
		return nil, syscall.ECONNREFUSED
	}
	if m.dark.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m.apart.Load() {
		return nil, syscall.EHOSTUNREACH
	}
	near, far := newMemoryPair()
	m.mu.Lock()
	listener := m.listen
	m.conns = append(m.conns, near)
	m.mu.Unlock()
	if listener == nil {
		return nil, syscall.ECONNREFUSED
	}
	select {
	case listener.conns <- far:
		return near, nil
	case <-listener.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// last returns the worker's end of the newest connection.
func (m *memory) last() *memoryConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conns[len(m.conns)-1]
}

type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{} }

// memoryConn is one end of a connection, which can be reset and can lose all written data. It has
// no lock that a goroutine waits at for another: synctest's clock would stand still.
type memoryConn struct {
	net.Conn // nil: the other methods are not called
	other    *memoryConn
	come     chan byte
	gone     chan struct{} // closed with this end
	once     sync.Once
	reset    atomic.Bool // closing it resets the connection
	lost     atomic.Bool // written data and the end are lost
	deadline atomic.Int64
}

func newMemoryPair() (*memoryConn, *memoryConn) {
	near := &memoryConn{come: make(chan byte, 1<<16), gone: make(chan struct{})}
	far := &memoryConn{come: make(chan byte, 1<<16), gone: make(chan struct{}), other: near}
	near.other = far
	return near, far
}

// deaf is a network whose connections fail once the head's answer has arrived.
type deaf struct{ *memory }

func (d deaf) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.memory.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &deafConn{memoryConn: conn.(*memoryConn), left: len(preface) + messageSize}, nil
}

type deafConn struct {
	*memoryConn
	left int
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.left--; c.left < 0 {
		<-c.come // the head has sent more
		return 0, syscall.ETIMEDOUT
	}
	return c.memoryConn.Read(p)
}

func (c *memoryConn) SetLinger(int) error {
	select {
	case <-c.gone: // it has ended already
	default:
		c.reset.Store(true)
	}
	return nil
}

func (c *memoryConn) SetDeadline(at time.Time) error {
	if at.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(at.UnixNano())
	}
	return nil
}

func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

func (c *memoryConn) LocalAddr() net.Addr { return &net.UnixAddr{} }

func (c *memoryConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}

func (c *memoryConn) Read(p []byte) (int, error) {
	var late <-chan time.Time
	if at := c.deadline.Load(); at != 0 {
		timer := time.NewTimer(time.Until(time.Unix(0, at)))
		defer timer.Stop()
		late = timer.C
	}
	for end := c.other.gone; ; {
		select {
		case p[0] = <-c.come:
			return 1, nil
		case <-c.gone:
			return 0, net.ErrClosed
		case <-late:
			return 0, os.ErrDeadlineExceeded
		case <-end:
			select {
			case p[0] = <-c.come: // data that arrived before it
				return 1, nil
			default:
			}
			if c.other.reset.Load() && !c.lost.Load() {
				return 0, syscall.ECONNRESET
			}
			if !c.lost.Load() {
				return 0, io.EOF
			}
			end = nil
		}
	}
}

func (c *memoryConn) Write(p []byte) (int, error) {
	for _, b := range p {
		if c.lost.Load() {
			break
		}
		select {
		case c.other.come <- b:
		case <-c.gone:
			return 0, net.ErrClosed
		case <-c.other.gone:
			return 0, syscall.EPIPE
		}
	}
	return len(p), nil
}

// lose makes both ends lose written data and the other's end.
func (c *memoryConn) lose() {
	c.lost.Store(true)
	c.other.lost.Store(true)
}
