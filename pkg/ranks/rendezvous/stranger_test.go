package rendezvous

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/users"
)

// TestStrangerAtTheSocket verifies that another user is rejected even if the socket can be reached,
// and that its open connections, in any number, do not block other clients.
func TestStrangerAtTheSocket(t *testing.T) {
	users.Need(t)
	s := raise(t, 1, 1, false)
	path := s.paths[0]
	users.Open(t, filepath.Dir(path), path)
	const many = 200
	var conns []net.Conn
	users.Stranger.Do(t, func() {
		for range many {
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Errorf("after %d connections: %v", len(conns), err)
				return
			}
			conns = append(conns, conn)
		}
	})
	must(t, s.rank(0).PutValue(t.Context(), "key", []byte("value")))
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(ceiling))
		said, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(said), "cannot accept a connection of user 64102") {
			t.Fatalf("the stranger is told %q, and then: %v", said, err)
		}
		_ = conn.Close()
	}
}
