package instances

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestEndpointFilesArePrivate verifies that only this user can read the files of endpoints, and write
// to their directory, before and after they are replaced.
func TestEndpointFilesArePrivate(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: 1, command: serve, ports: {http: auto}}
  - {name: client, nodes: 1, command: ask, after: [server]}
`, func(r *run) {
		dir := r.nodes[1].environment.endpointsDir
		for path, want := range map[string]os.FileMode{
			dir: 0o700, filepath.Join(dir, "client"): 0o600, filepath.Join(dir, "server"): 0o600,
		} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v (%v), want %v", path, info.Mode(), err, want)
			}
		}
		if text, err := os.ReadFile(filepath.Join(dir, "server")); err != nil || len(text) == 0 {
			t.Errorf("the file of the server has %q: %v", text, err)
		}
	})
}

// TestListsAreReadOnce verifies that a node reads each list of ready instances at most once, however
// often the directory changes.
func TestListsAreReadOnce(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: all, command: serve, restarts: {max: 100, backoff: 1s..1s}}
`, func(r *run) {
		var mu sync.Mutex
		reads := make(map[string]int)
		r.setFault(func(op signal.Op, path string) error {
			if op == signal.OpRead && strings.Contains(path, "/live.") {
				mu.Lock()
				defer mu.Unlock()
				reads[path]++
			}
			return nil
		})
		r.openGate()
		for generation := range 5 {
			r.exit(fmt.Sprintf("server.0.0.g%d", generation), 1)
			r.sleep(10 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(reads) < 5 {
			t.Errorf("only %v have been read", reads)
		}
		for path, count := range reads {
			if count > len(r.nodes) {
				t.Errorf("%s was read %d times by %d nodes", path, count, len(r.nodes))
			}
		}
	})
}
