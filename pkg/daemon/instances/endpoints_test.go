package instances

import (
	"os"
	"path/filepath"
	"strings"
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

// TestWithdrawal checks that the endpoint of an instance that has exited is in no list any more before its
// exit is explained, and that of one that is stopped before the processes get the signal; and that both
// are listed again when the instance is ready again.
func TestWithdrawal(t *testing.T) {
	const own = "10.0.0.2:20000\n"
	s := newSwitches(t)
	for _, tc := range []struct {
		name, keys string
		fail       func(r *run)
		unready    string // the change that is published
	}{
		{"an exit by TERM", "", func(r *run) { r.exit("server.1.0.g0", 143) }, "0001.i0001.g0.unready.000001"},
		{"an exit by KILL", "", func(r *run) { r.exit("server.1.0.g0", 137) }, ""},
		{"a hang", `alive: {probe: "file:` + s.dir + `/alive", after: 3s}, env: {IGNORE_TERM: "1"}, grace: 30s,`,
			func(*run) {
				s.set("alive", false)
				time.Sleep(5*time.Second + 500*time.Millisecond)
			}, "0001.i0001.g0.unready.000001"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.set("alive", true)
			s.set("ready", true)
			inBubble(t, 2, `
  - {name: server, nodes: all, `+tc.keys+` ready: "file:`+s.dir+`/ready",
      restarts: {max: 3, backoff: 100ms..1s}, command: serve}
`, func(r *run) {
				file := filepath.Join(r.nodes[1].environment.endpointsDir, "server")
				r.openGate()
				r.later()
				if got := r.read(file); !strings.HasSuffix(got, own) {
					t.Fatalf("the endpoints are %q", got)
				}
				tc.fail(r)
				time.Sleep(10 * time.Millisecond)
				if got := r.read(file); strings.HasSuffix(got, own) {
					t.Errorf("the endpoints are %q", got)
				}
				if tc.unready != "" {
					time.Sleep(100 * time.Millisecond)
					r.want("exits", r.names(signal.NodesDir, "0001.i0001.g0.exited"))
					r.want("changes", r.names(signal.NodesDir, "0001.i0001.g0.unready"), tc.unready)
				}
				s.set("alive", true)
				time.Sleep(time.Minute)
				if got := r.read(file); !strings.HasSuffix(got, own) {
					t.Errorf("the endpoints are %q when it is ready again", got)
				}
			})
		})
	}
}
