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

// memoryNetwork is a network in memory, which needs no file descriptors.
type memoryNetwork struct {
	mu        sync.Mutex
	listeners []*memoryListener // number N is at index N-1; guarded by mu
}

var _ peerlink.Network = (*memoryNetwork)(nil)

// Listen implements peerlink.Network.
func (m *memoryNetwork) Listen() (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &memoryListener{number: len(m.listeners) + 1, incoming: make(chan memoryConn)}
	p.lifetime, p.close = context.WithCancel(context.Background())
	m.listeners = append(m.listeners, p)
	return p, nil
}

// Dial implements peerlink.Network. It ignores the host, because the port alone identifies the
// listener.
func (m *memoryNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	_, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(digits)
	m.mu.Lock()
	ports := m.listeners
	m.mu.Unlock()
	refused := fmt.Errorf("cannot connect to %s: %w", address, syscall.ECONNREFUSED)
	if number < 1 || number > len(ports) {
		return nil, refused
	}
	ours, theirs := newConnPair()
	p := ports[number-1]
	select {
	case p.incoming <- theirs:
		return ours, nil
	case <-p.lifetime.Done():
		return nil, refused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// memoryListener is a listener.
type memoryListener struct {
	number   int
	incoming chan memoryConn
	lifetime context.Context // ends when the listener is closed
	close    func()
}

// Accept implements net.Listener.
func (p *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.incoming:
		return c, nil
	case <-p.lifetime.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *memoryListener) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *memoryListener) Addr() net.Addr { return &net.TCPAddr{Port: p.number} }

// memoryConn is one end of a connection.
type memoryConn struct {
	net.Conn
	*closeState
}

// closeState is the way in which a connection was closed. The end that is closed first decides.
type closeState struct {
	first sync.Once
	reset atomic.Bool // closed with a reset
}

// connBufferSize is the size in bytes of the buffer for each direction. It is more than is sent at
// once.
const connBufferSize = 512

// newConnPair returns the two ends of a new connection.
func newConnPair() (ours, theirs memoryConn) {
	l := bufconn.Listen(connBufferSize)
	dialled := make(chan net.Conn)
	go func() {
		c, _ := l.Dial() // cannot fail: l is not closed
		dialled <- c
	}()
	how := new(closeState)
	one, _ := l.Accept()
	return memoryConn{one, how}, memoryConn{<-dialled, how}
}

// Read implements net.Conn.
func (e memoryConn) Read(into []byte) (int, error) {
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
func (e memoryConn) SetLinger(int) error {
	e.first.Do(func() { e.reset.Store(true) })
	return nil
}

// Close implements net.Conn.
func (e memoryConn) Close() error {
	e.first.Do(func() {})
	return e.Conn.Close()
}

// TCPState reports what a kernel would know about the other end.
func (memoryConn) TCPState() peerlink.TCPState {
	return peerlink.TCPState{Connected: true, Acknowledges: true}
}
