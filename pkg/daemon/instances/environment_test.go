package instances

import (
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

// TestKeysAreHidden verifies that the failure of a process that has printed its key does not show it.
func TestKeysAreHidden(t *testing.T) {
	inBubble(t, 1, "\n  - {name: server, nodes: 1, command: serve}\n", func(r *run) {
		key := r.find("server.0.0.g0").env("BRINGUPD_ROLE_SERVER_KEY")
		r.print("server.0.0.g0", "the key is "+key)
		r.exit("server.0.0.g0", 3)
		r.later()
		cause := r.cause()
		if key == "" || cause == nil || !slices.Contains(cause.Lines, "the key is …") {
			t.Errorf("the key is %q, and the cause %+v", key, cause)
		}
		f := health.NewFailure(health.ServiceDied, "a probe has the key %s", key)
		if f := r.nodes[0].environment.withoutKeys(f); f.Message != "a probe has the key …" {
			t.Errorf("the message is %q", f.Message)
		}
	})
}
