package lifeline

import (
	"net"
	"testing"
	"time"
)

// A kernel that has no room left for what we send has not acknowledged it: so has
// none of a host that is gone.
func TestEvidenceOfWhatWasAcknowledged(t *testing.T) {
	listener, err := TCP{}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	ours, err := TCP{}.Dial(t.Context(), net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	h := NewHead(slowConfig(), listener, headNews{newNews()})
	l := newLink(ours, identity{})
	h.seats[1].link.Store(l)

	h.Beat()
	until(t, "a beat is acknowledged", func() bool { return h.Evidence(1).Settled })
	_ = theirs.(*net.TCPConn).SetReadBuffer(1)
	_ = ours.(*net.TCPConn).SetWriteBuffer(1)
	until(t, "what nobody reads is not", func() bool {
		for range 1000 {
			h.Beat()
		}
		return !h.Evidence(1).Settled && l.quiet() > time.Millisecond
	})
	unread := make([]byte, 1<<20)
	until(t, "it is once it was read", func() bool {
		_ = theirs.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = theirs.Read(unread)
		return h.Evidence(1).Settled
	})
}
