package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/test/bufconn"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// memory is a network in memory, which needs no file descriptors.
type memory struct {
	mu    sync.Mutex
	ports []*port // number N is at index N-1; guarded by mu
}

var _ peerlink.Network = (*memory)(nil)

// Listen implements peerlink.Network.
func (m *memory) Listen() (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &port{number: len(m.ports) + 1, calls: make(chan end)}
	p.open, p.close = context.WithCancel(context.Background())
	m.ports = append(m.ports, p)
	return p, nil
}

// Dial implements peerlink.Network. It ignores the host, because the port alone identifies the
// listener.
func (m *memory) Dial(ctx context.Context, address string) (net.Conn, error) {
	_, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(digits)
	m.mu.Lock()
	ports := m.ports
	m.mu.Unlock()
	refused := fmt.Errorf("cannot connect to %s: %w", address, syscall.ECONNREFUSED)
	if number < 1 || number > len(ports) {
		return nil, refused
	}
	ours, theirs := pair()
	p := ports[number-1]
	select {
	case p.calls <- theirs:
		return ours, nil
	case <-p.open.Done():
		return nil, refused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// port is a listener.
type port struct {
	number int
	calls  chan end
	open   context.Context // ends when the listener is closed
	close  func()
}

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.open.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *port) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *port) Addr() net.Addr { return &net.TCPAddr{Port: p.number} }

// end is one end of a connection.
type end struct {
	net.Conn
	*parting
}

// parting is the way in which a connection was closed. The end that is closed first decides.
type parting struct {
	first sync.Once
	reset atomic.Bool // closed with a reset
}

// room is the size in bytes of the buffer for each direction. It is more than is sent at once.
const room = 512

// pair returns the two ends of a new connection.
func pair() (ours, theirs end) {
	l := bufconn.Listen(room)
	dialled := make(chan net.Conn)
	go func() {
		c, _ := l.Dial() // cannot fail: l is not closed
		dialled <- c
	}()
	how := new(parting)
	one, _ := l.Accept()
	return end{one, how}, end{<-dialled, how}
}

// Read implements net.Conn.
func (e end) Read(into []byte) (int, error) {
	n, err := e.Conn.Read(into)
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		err = net.ErrClosed
	case errors.Is(err, io.EOF) && e.reset.Load():
		err = syscall.ECONNRESET
	}
	return n, err
}

// SetLinger makes Close reset the connection. Callers use it for nothing else.
func (e end) SetLinger(int) error {
	e.first.Do(func() { e.reset.Store(true) })
	return nil
}

// Close implements net.Conn.
func (e end) Close() error {
	e.first.Do(func() {})
	return e.Conn.Close()
}

// TCPState reports what a kernel would know about the other end.
func (end) TCPState() peerlink.TCPState {
	return peerlink.TCPState{Connected: true, Acknowledges: true}
}
