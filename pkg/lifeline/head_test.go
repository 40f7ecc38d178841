package lifeline

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
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

// Who comes while the head ends is let go at once, or the end would wait for as long as a stranger may take.
func TestStrangerAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, _ := (&memory{}).Listen()
		h := NewHead(testConfig(), listener, headNews{newNews()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		near, far := net.Pipe()
		defer near.Close()
		begin := time.Now()
		h.receive(ctx, far)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// Who had a place that another connection has taken is not waited for.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seat
		links := make([]*link, 2)
		for i := range links {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			links[i] = newLink(near, identity{})
			s.takeLocked(links[i])
		}
		begin := time.Now()
		s.follow(t.Context(), testConfig(), links[0], nil, func(how Parting) { t.Errorf("told of as %s", how) })
		if took := time.Since(begin); took != 0 || s.live() != links[1] {
			t.Errorf("it took %v, and the place is the new one's: %t", took, s.live() == links[1])
		}
	})
}
