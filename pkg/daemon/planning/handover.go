package planning

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	grantTimeout = 10 * time.Second // limits the time for passing on ports
	maxGranted   = 200              // the number of ports in a message: the kernel passes on at most 253 files
)

// grantAddress returns the abstract socket at which the daemon of a node passes on ports to those of
// further steps. No other user can derive its name, and take it before.
func grantAddress(dir *signal.Dir, node int) string {
	return "@bringupd-grants-" + hex.EncodeToString(dir.DeriveSecret(fmt.Sprintf("ports of node %d", node)))
}

// ServeGrants passes on ports that the block keeps to the daemons of further steps of the node, which
// start the processes for them. Their containers share the network of the node.
func (b *PortBlock) ServeGrants(background func(task func(ctx context.Context)), dir *signal.Dir, node int) error {
	listener, err := net.Listen("unixpacket", grantAddress(dir, node))
	if err != nil {
		return fmt.Errorf("cannot pass on ports to further steps: %v", err)
	}
	background(func(ctx context.Context) {
		peerlink.ServeLocal(ctx, listener, func(_ context.Context, conn net.Conn) {
			defer func() { _ = conn.Close() }()
			if _, err := peerlink.AuthenticatePeer(conn); err == nil {
				b.grant(conn.(*net.UnixConn))
			}
		})
	})
	return nil
}

// grant passes on the ports that the other end asks for, as far as they are kept. They are not kept here
// any more.
func (b *PortBlock) grant(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(grantTimeout))
	for {
		asked := make([]byte, 8*maxGranted)
		length, err := conn.Read(asked)
		if err != nil || length == 0 {
			return // it has all that it wants
		}
		b.mu.Lock()
		var ports []string
		var sockets []int
		for _, port := range parsePorts(string(asked[:length])) {
			if socket, isKept := b.kept[port]; isKept {
				ports, sockets = append(ports, fmt.Sprint(port)), append(sockets, socket)
			}
		}
		_, _, err = conn.WriteMsgUnix([]byte(strings.Join(append(ports, "."), " ")), unix.UnixRights(sockets...), nil)
		if err == nil {
			for _, port := range parsePorts(string(asked[:length])) {
				b.close(port)
				b.granted[port] = true
			}
		}
		b.mu.Unlock()
	}
}

// TakeGrants takes ports over from the daemon of the node, as far as that keeps them. Without such a
// daemon, in this network, there are none.
func (b *PortBlock) TakeGrants(ctx context.Context, dir *signal.Dir, node int, ports []int) error {
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	dialed, err := dialer.DialContext(ctx, "unixpacket", grantAddress(dir, node))
	if err != nil {
		return err
	}
	defer func() { _ = dialed.Close() }()
	conn := dialed.(*net.UnixConn)
	if _, err := peerlink.AuthenticatePeer(conn); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	for len(ports) > 0 {
		some := ports[:min(maxGranted, len(ports))]
		ports = ports[len(some):]
		if _, err := conn.Write([]byte(strings.Trim(fmt.Sprint(some), "[]"))); err != nil {
			return err
		}
		if err := b.receive(conn); err != nil {
			return err
		}
	}
	return nil
}

// receive receives a message with ports and their sockets.
func (b *PortBlock) receive(conn *net.UnixConn) error {
	text, rights := make([]byte, 8*maxGranted), make([]byte, unix.CmsgSpace(4*maxGranted))
	length, rightsLength, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsLength])
	if err != nil {
		return err
	}
	var sockets []int
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		sockets = append(sockets, some...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, port := range parsePorts(string(text[:length])) {
		if i < len(sockets) {
			b.kept[port] = sockets[i]
		}
	}
	return nil
}

func parsePorts(text string) (ports []int) {
	for word := range strings.FieldsSeq(text) {
		var port int
		if _, err := fmt.Sscan(word, &port); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}
