package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestFindChain verifies that the chain goes back from the last call to the call that ended last
// before it began, on any node, and leaves out calls that nothing has waited for.
func TestFindChain(t *testing.T) {
	const ms = time.Millisecond
	trace := new(callTrace)
	for _, c := range []struct {
		node     int
		op       signal.Op
		path     string
		from, to time.Duration
	}{
		{0, signal.OpMkdir, "/share/run", 0, 10 * ms},
		{1, signal.OpList, "/share", 5 * ms, 15 * ms}, // too early: it is repeated
		{1, signal.OpList, "/share", 16 * ms, 26 * ms},
		{0, signal.OpSymlink, "/share/latest", 11 * ms, 21 * ms},
		{1, signal.OpLink, "/share/run/nodes/0001.joined", 27 * ms, 37 * ms},
		{1, signal.OpRemove, "/share/run/nodes/.0001", 38 * ms, 48 * ms}, // in the background
		{0, signal.OpList, "/share/run/nodes", 38 * ms, 47 * ms},
		{0, signal.OpOpen, "/share/run/control/go", 47 * ms, 57 * ms},
		{0, signal.OpOpen, "/share/run/control/drain", 60 * ms, 70 * ms}, // after the end
	} {
		trace.addCall(c.node, c.op, c.path, c.from, c.to)
	}
	var got []string
	for _, c := range trace.findChain(0, 57*ms, "/share/run") {
		got = append(got, c.Op+" "+c.Path)
	}
	const want = "list .., list .., link nodes/0001.joined, list nodes, open control/go"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := formatChain("To the gate", trace.findChain(60*ms, 70*ms, "/share/run")); !strings.Contains(text, "To the gate: 1 calls") || !strings.Contains(text, "control/drain") {
		t.Errorf("got %q", text)
	}
	if none := (*callTrace)(nil).findChain(0, time.Hour, "/"); none != nil {
		t.Errorf("got %v without a trace", none)
	}
}
