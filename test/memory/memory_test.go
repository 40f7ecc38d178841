package memory

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// TestMain checks that the tests leave no goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow returns a network on which everything takes a second.
func slow() *Net {
	return &Net{Travel: func(_, _ *Host, _ Parcel) time.Duration { return time.Second }}
}

// connected returns a connection between two hosts: the hosts and both ends.
func connected(t *testing.T, n *Net) (a, b *Host, ours, theirs net.Conn) {
	t.Helper()
	a, b = n.Host("a"), n.Host("b")
	l, err := b.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = a.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return a, b, ours, theirs
}

func read(t *testing.T, c net.Conn, want string, wantErr error) {
	t.Helper()
	buffer := make([]byte, 16)
	n, err := c.Read(buffer)
	if got := string(buffer[:n]); got != want || !errors.Is(err, wantErr) {
		t.Errorf("read %q, %v; want %q, %v", got, err, want, wantErr)
	}
}

// TestEnds checks how a connection ends for one side, depending on what the other side does.
func TestEnds(t *testing.T) {
	write := func(t *testing.T, c net.Conn) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, n *Net, a, b *Host, ours, theirs net.Conn)
		data string
		err  error
	}{
		{"closed", func(_ *testing.T, _ *Net, _, _ *Host, _,
			theirs net.Conn) {
			_ = theirs.Close()
		}, "", io.EOF},
		{"closed after a word",
			func(t *testing.T, _ *Net, _, _ *Host, _, theirs net.Conn) {
				write(t, theirs)
				_ = theirs.Close()
			}, "x", io.EOF},
		{"half closed", func(_ *testing.T, _ *Net, _, _ *Host, _,
			theirs net.Conn) {
			_ = theirs.(*conn).CloseWrite()
		}, "", io.EOF},
		{"killed", func(_ *testing.T, _ *Net, _, b *Host, _, _ net.Conn) {
			b.Vanish()
		}, "", io.EOF},
		{"aborted", func(_ *testing.T, _ *Net, _, _ *Host, _, theirs net.Conn) {
			_ = theirs.(*conn).SetLinger(0)
			_ = theirs.Close()
		}, "", syscall.ECONNRESET},
		{"closed with something unread",
			func(t *testing.T, _ *Net, _, _ *Host, ours, theirs net.Conn) {
				write(t, ours)
				time.Sleep(2 * time.Second)
				_ = theirs.Close()
			}, "", syscall.ECONNRESET},
		{"broken in between", func(_ *testing.T, n *Net, a, b *Host, _, _ net.Conn) {
			n.Break(a, b)
		}, "", syscall.ECONNRESET},
		{"by ourselves", func(_ *testing.T, _ *Net, _, _ *Host, ours,
			_ net.Conn) {
			_ = ours.Close()
		}, "", net.ErrClosed},
		{"a deadline", func(_ *testing.T, _ *Net, _, _ *Host, ours, _ net.Conn) {
			_ = ours.SetReadDeadline(time.Now().Add(time.Minute))
		}, "", os.ErrDeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := slow()
				a, b, ours, theirs := connected(t, n)
				tc.do(t, n, a, b, ours, theirs)
				if tc.data != "" {
					read(t, ours, tc.data, nil)
				}
				read(t, ours, "", tc.err)
				_, _ = ours.Close(), theirs.Close()
				time.Sleep(2 * time.Second) // until everything in transit has arrived
			})
		})
	}
}

// TestTravels checks that data takes its time to arrive, and arrives in order.
func TestTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := []time.Duration{3 * time.Second, time.Second}
		n := slow()
		_, _, ours, theirs := connected(t, n)
		n.Travel = func(_, _ *Host, _ Parcel) time.Duration {
			defer func() { times = times[1:] }()
			return times[0]
		}
		began := time.Now()
		for _, word := range []string{"first", "second"} {
			if _, err := ours.Write([]byte(word)); err != nil {
				t.Fatal(err)
			}
		}
		read(t, theirs, "first", nil)
		read(t, theirs, "second", nil)
		if took := time.Since(began); took.Round(time.Millisecond) != 3*time.Second {
			t.Errorf("it took %s", took)
		}
		n.Travel = nil
		_, _ = ours.Close(), theirs.Close()
	})
}

// TestDial checks connecting to hosts that do not listen, no longer listen, or cannot be reached.
func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := slow()
		a, b := n.Host("a"), n.Host("b")
		l, err := b.Listen()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := a.Dial(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that answers after 2 s: %v", err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		read(t, c, "", io.EOF)
		_ = c.Close()
		b.Vanish()
		began := time.Now()
		if _, err := a.Dial(t.Context(), l.Addr().String()); !errors.Is(err,
			syscall.ECONNREFUSED) || time.Since(began) < 2*time.Second {
			t.Errorf("a host that has vanished: %v after %s", err, time.Since(began))
		}
		if _, err := a.Dial(t.Context(), "b:77"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("one that never was: %v", err)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestVanished checks that a vanished host receives nothing more, and that its peers receive
// nothing more from it.
func TestVanished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := slow()
		a, b, ours, theirs := connected(t, n)
		a.Vanish()
		if _, err := ours.Write([]byte("goodbye")); err != nil {
			t.Errorf("it hears that it is dead: %v", err)
		}
		read(t, theirs, "", io.EOF)
		_ = theirs.Close()
		_ = ours.SetReadDeadline(time.Now().Add(time.Hour))
		read(t, ours, "", os.ErrDeadlineExceeded)
		_ = ours.Close()
		l, err := b.Listen()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if _, err := a.Dial(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) < time.Hour {
			t.Errorf("it may still dial: %v", err)
		}
		_ = l.Close()
	})
}

// TestEvidence checks the TCP state of a working and of an interrupted connection.
func TestEvidence(t *testing.T) {
	var cut time.Duration
	n := &Net{Cut: func(_, _ *Host) time.Duration { return cut }}
	_, _, ours, theirs := connected(t, n)
	if got := ours.(*conn).TCPState(); got != (peerlink.TCPState{Connected: true, Acknowledges: true}) {
		t.Errorf("one that is well: %+v", got)
	}
	cut = time.Minute
	if got := ours.(*conn).TCPState(); got != (peerlink.TCPState{Connected: true, SilentFor: time.Minute}) {
		t.Errorf("one that is cut off: %+v", got)
	}
	_, _ = ours.Close(), theirs.Close()
}

// TestFull checks that a write to a full pipe without a reader does not wait for space.
func TestFull(t *testing.T) {
	_, _, ours, theirs := connected(t, new(Net))
	var err error
	for range 2 * room {
		if _, err = ours.Write([]byte("x")); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	_, _ = ours.Close(), theirs.Close()
}
