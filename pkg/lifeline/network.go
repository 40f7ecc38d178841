package lifeline

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Network makes the connections: TCP, or one in memory for tests.
type Network interface {
	// Listen takes a port that the kernel picks, on all addresses, IPv4 and IPv6.
	Listen() (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the network of this machine.
type TCP struct{}

var _ Network = TCP{}

// Keepalives are off, for who is silent is ours to judge; Go's own default is to send at once and to have no
// TCP_USER_TIMEOUT.
const noKeepAlive = -1

// Listen implements Network. Without IPv6 in the kernel it is for IPv4 alone.
func (TCP) Listen() (net.Listener, error) {
	listen := net.ListenConfig{KeepAlive: noKeepAlive}
	listen.SetMultipathTCP(false) // it would hide what TCP_INFO tells
	return listen.Listen(context.Background(), "tcp", ":0")
}

// Dial implements Network.
func (TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dial := net.Dialer{KeepAlive: noKeepAlive}
	return dial.DialContext(ctx, "tcp", address)
}

// Evidence is what the kernels say of a peer that is silent.
type Evidence struct {
	Connected bool
	Answers   bool          // its kernel has acknowledged what we have sent, and lately
	Quiet     time.Duration // since its kernel was last heard of
}

// A witness is a connection without a kernel that can give the evidence itself.
type witness interface{ Evidence() Evidence }

// A kernel may hold back its acknowledgement, in the hope of data to send with it, for as long as this.
const delayedAck = 300 * time.Millisecond

// evidence asks our kernel, where there is a connection, for what it knows of the peer's. We send something each beat, and so a kernel that is well
// was heard of within two. One thing may have been lost in passing, and be sent again.
func (l *link) evidence(beat time.Duration) Evidence {
	if l == nil {
		return Evidence{}
	}
	if w, ok := l.conn.Conn.(witness); ok {
		return w.Evidence()
	}
	if l.raw == nil {
		return Evidence{Connected: true, Quiet: l.quiet()}
	}
	var info *unix.TCPInfo
	err := l.raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil || info == nil {
		return Evidence{}
	}
	quiet := time.Duration(info.Last_ack_recv) * time.Millisecond
	return Evidence{Connected: true, Answers: info.Retransmits <= 1 && quiet <= 2*beat+delayedAck, Quiet: quiet}
}

// LinkDown tells whether the interface that has this address is down or has no carrier, and its name. An address that
// no interface has any more is down too, and has no name: a kernel takes an interface's IPv6 addresses from it.
func LinkDown(addr netip.Addr) (name string, down bool) {
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
