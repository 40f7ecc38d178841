package simulate

import (
	"strings"
	"testing"
	"time"
)

// TestFindChain verifies that the chain goes back from the last call to the call that ended last
// before it began, on any node, and leaves out calls that nothing has waited for.
func TestFindChain(t *testing.T) {
	const ms = time.Millisecond
	trace := new(callTrace)
	for _, call := range []TracedCall{
		{0, "mkdir", "/share/run", 0, 10 * ms},
		{1, "list", "/share", 5 * ms, 15 * ms}, // too early: it is repeated
		{1, "list", "/share", 16 * ms, 26 * ms},
		{0, "symlink", "/share/latest", 11 * ms, 21 * ms},
		{1, "link", "/share/run/nodes/0001.joined", 27 * ms, 37 * ms},
		{1, "remove", "/share/run/nodes/.0001", 38 * ms, 48 * ms}, // in the background
		{0, "list", "/share/run/nodes", 38 * ms, 47 * ms},
		{0, "open", "/share/run/control/go", 47 * ms, 57 * ms},
		{0, "open", "/share/run/control/drain", 60 * ms, 70 * ms}, // after the end
	} {
		trace.addCall(call)
	}
	var got []string
	for _, c := range trace.findChain(0, 57*ms, "/share/run") {
		got = append(got, c.Op+" "+c.Path)
	}
	const want = "list .., list .., link nodes/0001.joined, list nodes, open control/go"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
