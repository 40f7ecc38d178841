package instances

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TestExitEvents verifies that the events of exits name the instance and its node, and say what
// follows, with the last lines of the process.
func TestExitEvents(t *testing.T) {
	inBubble(t, 2, `
  - {name: cache, nodes: 1, command: serve, restarts: {max: 1, backoff: 1s..1s}}
  - {name: server, nodes: 1, per-node: 2, command: serve, require: {start: all, run: 1}}
`, func(r *run) {
		log := r.nodes[0].Events
		log.Open(r.dir, launcher.Identity{Size: len(r.nodes), Host: "n0"}, "daemon")
		r.openGate()
		for _, name := range []string{"cache.0.0.g0", "server.0.0.g0", "server.1.0.g0"} {
			for i := range 12 {
				r.print(name, fmt.Sprint(i))
			}
			r.exit(name, 3)
			r.later()
		}
		log.Close(r.t.Context())
		path := r.dir.Path() + "/" + signal.EventsDir + "/" + r.names(signal.EventsDir, "")[0]
		text, err := r.access().FS.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range bytes.Lines(text) {
			e, _ := eventlog.DecodeEvent(line)
			if e.Type == eventlog.InstanceExited {
				got = append(got, fmt.Sprintf("%s on node %d: %s %v", e.Child, *e.Subject, e.Reason, e.Lines))
			}
		}
		want := []string{
			"cache.0 on node 0: it is started again [2 3 4 5 6 7 8 9 10 11]",
			"server.0 on node 1: the role goes on without it [2 3 4 5 6 7 8 9 10 11]",
			"server.1 on node 1: the run ends [2 3 4 5 6 7 8 9 10 11]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
