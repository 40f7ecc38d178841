package service

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manager returns a real socket that receives the messages.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestNotify(t *testing.T) {
	for _, socket := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@bringupd-test-%d", os.Getpid())} {
		t.Run(socket[:1], func(t *testing.T) {
			conn := manager(t, socket)
			if err := SendNotification(socket, StateReady, StatusLine("the gate\nis open")); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			got := make([]byte, 1024)
			n, err := conn.Read(got)
			if want := "READY=1\nSTATUS=the gate is open"; err != nil || string(got[:n]) != want {
				t.Errorf("got %q, not %q: %v", got[:n], want, err)
			}
		})
	}
}

func TestNotifyNobody(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"", "notify", "vsock:2:1234", "/nonexistent/notify", plain, "@" + plain, "/" + strings.Repeat("x", 200)} {
		if err := SendNotification(socket, StateReady); err == nil || !strings.HasPrefix(err.Error(), "cannot notify NOTIFY_SOCKET="+socket) {
			t.Errorf("%q: %v", socket, err)
		}
	}
}

// TestNotifyOneThatHangs verifies that a manager that reads no messages delays the caller only
// briefly.
func TestNotifyOneThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager(t, socket)
	for range 100_000 {
		if err := SendNotification(socket, StateReady); err != nil {
			if !strings.Contains(err.Error(), "timeout") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("its queue has no end")
}
