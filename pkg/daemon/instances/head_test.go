package instances

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestStatesAtStart checks the states of the instances of roles that wait for others, and have been
// started but are not ready.
func TestStatesAtStart(t *testing.T) {
	s := newSwitches(t)
	inBubble(t, 1, `
  - {name: setup, nodes: head, command: prepare, oneshot: true}
  - {name: server, nodes: head, command: serve, after: [setup], ready: "file:`+s.dir+`/server"}
  - {name: client, nodes: head, command: ask, after: [server]}
`, func(r *run) {
		want := func(when string, states ...roles.InstanceStatus) {
			t.Helper()
			if got := r.statuses(); !slices.Equal(got, states) {
				t.Errorf("%s the states are %v, want %v", when, got, states)
			}
		}
		want("at first", roles.StatusReady, roles.StatusWaiting, roles.StatusWaiting)
		r.exit("setup.0.0.g0", 0)
		r.later()
		want("after setup", roles.StatusDone, roles.StatusStarting, roles.StatusWaiting)
		s.set("server", true)
		r.sleep(20 * time.Second)
		want("at the end", roles.StatusDone, roles.StatusReady, roles.StatusReady)
	})
}
