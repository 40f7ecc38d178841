package health_test

import (
	"net"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

// TestDialTrustedOnce verifies that a name of this node is connected to once.
func TestDialTrustedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var own [2]net.Conn
	own[0], err = health.DialTrusted(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	if err == nil {
		own[1], err = net.Dial("tcp", l.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, conn := range own {
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if accepted.RemoteAddr().String() != conn.LocalAddr().String() {
			t.Errorf("connection %d is from %s, want %s", i, accepted.RemoteAddr(), conn.LocalAddr())
		}
		_, _ = accepted.Close(), conn.Close()
	}
}
