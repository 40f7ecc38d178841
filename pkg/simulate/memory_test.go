package simulate

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// connected returns both ends of a connection in memory.
func connected(t *testing.T, m *memoryNetwork) (ours, theirs net.Conn) {
	t.Helper()
	l, err := m.Listen()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if ours, err = m.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return ours, <-accepted
}

// TestMemoryEnds verifies how a connection ends for one side, depending on the other side's action.
func TestMemoryEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(ours, theirs net.Conn)
		want error
	}{
		{"closed", func(_, theirs net.Conn) { _ = theirs.Close() }, io.EOF},
		{"broken off", func(_, theirs net.Conn) { _ = theirs.(memoryConn).SetLinger(0); _ = theirs.Close() }, syscall.ECONNRESET},
		{"closed, and broken off too late", func(_, theirs net.Conn) { _ = theirs.Close(); _ = theirs.(memoryConn).SetLinger(0) }, io.EOF},
		{"by ourselves", func(ours, _ net.Conn) { _ = ours.Close() }, net.ErrClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, theirs := connected(t, new(memoryNetwork))
			if got := ours.(memoryConn).TCPState(); got != (peerlink.TCPState{Connected: true, Acknowledges: true}) {
				t.Errorf("the evidence is %+v", got)
			}
			if _, err := theirs.Write([]byte("a word")); err != nil {
				t.Fatal(err)
			}
			word := make([]byte, 16)
			if n, err := ours.Read(word); err != nil || string(word[:n]) != "a word" {
				t.Errorf("read %q, %v", word[:n], err)
			}
			tc.do(ours, theirs)
			if _, err := ours.Read(word); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			_, _ = ours.Close(), theirs.Close()
		})
	}
}

// TestMemoryDial covers a called address that does not exist yet, no longer exists, or does not
// answer.
func TestMemoryDial(t *testing.T) {
	m := new(memoryNetwork)
	l, err := m.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := m.Dial(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that does not answer: %v", err)
	}
	_ = l.Close()
	for _, address := range []string{l.Addr().String(), "n1:77", "n1:0"} {
		if _, err := m.Dial(t.Context(), address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens at %s: %v", address, err)
		}
	}
}
