package peerlink

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpState is what the kernel says of a link's connection.
func tcpState(l *link) (state uint8) {
	_ = l.rawConn.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return state
}

// A connection that was broken is never taken for one that a kernel has closed,
// nor the other way round, whoever meets the kernel's error first: it is told
// once, to a read or to a write.
func TestHowItEnds(t *testing.T) {
	const closeWait, closed = 8, 7
	for _, tc := range []struct {
		name  string
		end   func(conn net.Conn)
		state uint8  // to wait for
		sends []bool // frames sent then; true: wait until the answer to it is here
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
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			theirs, err := TCP{}.Dial(t.Context(), listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			ours, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
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
			l.readLoop(func(_, _ byte) { t.Error("something has come") })
			if l.closeReason != tc.want {
				t.Errorf("it is %s, not %s", l.closeReason, tc.want)
			}
		})
	}
}
