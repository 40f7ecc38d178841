package exec

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/users"
)

// TestStrangerAtTheSocket verifies that another user can run no command even if the socket can be
// reached, and that its open connections, in any number, do not block other clients.
func TestStrangerAtTheSocket(t *testing.T) {
	users.Need(t)
	s := raise(t)
	path := s.nodes[0].SocketPath()
	users.Open(t, filepath.Dir(filepath.Dir(path)), filepath.Dir(path), path)
	mark := filepath.Join(t.TempDir(), "mark")
	const many = 200
	var conns []net.Conn
	users.Stranger.Do(t, func() {
		for i := range many {
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Errorf("after %d connections: %v", i, err)
				return
			}
			conns = append(conns, conn)
			if i%2 == 0 {
				_ = writeMessage(conn, message{Host: "n1", Command: "touch " + mark})
			}
		}
	})
	if got := s.call(t.Context(), 0, "n1", "[ ! -e "+mark+" ]"); got != (said{}) {
		t.Errorf("its own user is told %+v", got)
	}
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(ceiling))
		told, err := io.ReadAll(conn)
		if reset := errors.Is(err, syscall.ECONNRESET); err != nil && !reset || !reset &&
			!strings.Contains(string(told), "cannot accept a connection of user 64102") {
			t.Fatalf("the stranger is told %q, and then: %v", told, err)
		}
		_ = conn.Close()
	}
	if got := s.call(t.Context(), 0, "n1", "[ ! -e "+mark+" ]"); got != (said{}) {
		t.Errorf("the stranger's command was run: %+v", got)
	}
}
