package peerlink

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Network makes connections: by TCP, or in memory for tests.
type Network interface {
	// Listen listens on a port that the kernel picks, on all addresses, IPv4 and IPv6.
	Listen() (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the network of this machine.
type TCP struct{}

var _ Network = TCP{}

// keepAliveOff turns TCP keepalives off, because heartbeats detect silent peers. By default, Go
// sends keepalives, and sets no TCP_USER_TIMEOUT.
const keepAliveOff = -1

// Listen implements Network. If the kernel has no IPv6, it listens on IPv4 only.
func (TCP) Listen() (net.Listener, error) {
	listen := net.ListenConfig{KeepAlive: keepAliveOff}
	listen.SetMultipathTCP(false) // it would hide the values of TCP_INFO
	return listen.Listen(context.Background(), "tcp", ":0")
}

// Dial implements Network.
func (TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dial := net.Dialer{KeepAlive: keepAliveOff}
	return dial.DialContext(ctx, "tcp", address)
}

// TCPState is what this node's kernel knows about a connection and the peer's kernel.
type TCPState struct {
	Connected    bool
	Acknowledges bool          // the peer's kernel has acknowledged recent data
	SilentFor    time.Duration // time since the last packet of the peer's kernel
}

// tcpStateProvider is a connection without a kernel, as in tests, which provides the evidence
// itself.
type tcpStateProvider interface{ TCPState() TCPState }

// maxAckDelay is the maximum time by which a kernel delays an acknowledgement, to send it together
// with data.
const maxAckDelay = 300 * time.Millisecond

// tcpState returns what this node's kernel knows about the connection, or the zero value if l is
// nil. Both sides send data at each heartbeat interval, so that a healthy kernel acknowledges
// within two intervals. One retransmission is allowed, because a single packet may get lost.
func (l *link) tcpState(beat time.Duration) TCPState {
	if l == nil {
		return TCPState{}
	}
	if w, ok := l.conn.Conn.(tcpStateProvider); ok {
		return w.TCPState()
	}
	if l.rawConn == nil {
		return TCPState{Connected: true, SilentFor: l.silentFor()}
	}
	var info *unix.TCPInfo
	err := l.rawConn.Control(func(fd uintptr) {
		info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err != nil || info == nil {
		return TCPState{}
	}
	quiet := time.Duration(info.Last_ack_recv) * time.Millisecond
	return TCPState{Connected: true, Acknowledges: info.Retransmits <= 1 && quiet <= 2*beat+maxAckDelay,
		SilentFor: quiet}
}

// IsInterfaceDown reports whether the network interface with this address is down or has no
// carrier, and returns its name. If no interface has the address, it also reports true, without a
// name, because a kernel removes the IPv6 addresses of an interface that goes down.
func IsInterfaceDown(addr netip.Addr) (name string, down bool) {
	addr = addr.Unmap().WithZone("")
	interfaces, err := net.Interfaces()
	if err != nil || !addr.IsValid() {
		return "", false
	}
	for _, card := range interfaces {
		has, err := card.Addrs()
		if err != nil {
			return "", false
		}
		for _, one := range has {
			if prefix, err := netip.ParsePrefix(one.String()); err == nil && prefix.Addr().Unmap() == addr {
				const well = net.FlagUp | net.FlagRunning
				return card.Name, card.Flags&well != well
			}
		}
	}
	return "", true
}
