package peerlink

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpState returns the kernel's state of a link's connection.
func tcpState(l *link) (state uint8) {
	_ = l.rawConn.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return state
}

// TestHowItEnds verifies that a broken connection is never mistaken for one that a kernel has
// closed, or vice versa, regardless of which call gets the kernel's error: the kernel returns it
// once, to a read or to a write.
func TestHowItEnds(t *testing.T) {
	const closeWait, closed = 8, 7
	for _, tc := range []struct {
		name  string
		end   func(conn net.Conn)
		state uint8  // to wait for
		sends []bool // frames to send then; true: wait until the answer has arrived
		want  CloseReason
	}{
		{"closed", func(c net.Conn) { _ = c.Close() }, closeWait, nil, Closed},
		{"closed, and sent to", func(c net.Conn) { _ = c.Close() }, closeWait, []bool{true}, Closed},
		{"closed, and sent to twice", func(c net.Conn) { _ = c.Close() }, closeWait, []bool{true, false}, Closed},
		{"broken", resetConn, closed, nil, Broken},
		{"broken, and sent to", resetConn, closed, []bool{false}, Broken},
		{"broken, and sent to twice", resetConn, closed, []bool{false, false}, Broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listener, err := TCP{}.Listen()
			must(t, err)
			defer listener.Close()
			theirs, err := TCP{}.Dial(t.Context(), listener.Addr().String())
			must(t, err)
			ours, err := listener.Accept()
			must(t, err)
			end, _ := sealedPair(ours, theirs)
			l := newLink(end, identity{})
			tc.end(theirs)
			until(t, "the end is here", func() bool { return tcpState(l) == tc.state })
			for _, answered := range tc.sends {
				l.sendFrame(frameHeartbeat)
				if answered {
					until(t, "the answer is here", func() bool { return tcpState(l) == closed })
				}
			}
			l.readLoop(func(byte, []byte) { t.Error("something has come") })
			if l.closeReason != tc.want {
				t.Errorf("it is %s, not %s", l.closeReason, tc.want)
			}
		})
	}
}
