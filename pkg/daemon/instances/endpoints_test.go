package instances

import (
	"os"
	"path/filepath"
	"testing"
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
