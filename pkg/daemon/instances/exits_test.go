package instances

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestToleratedExits verifies that the cause of the end names the newest three exits of the minute
// before it, and how many instances were left.
func TestToleratedExits(t *testing.T) {
	inBubble(t, 1, `
  - {name: server, nodes: 1, per-node: 7, command: serve, require: {start: all, run: 2}}
`, func(r *run) {
		r.openGate()
		r.exit("server.0.0.g0", 10)
		r.sleep(40 * time.Second)
		if entries := r.logged.FilterMessageSnippet("goes on with 6 of 7 instances").All(); len(entries) != 1 {
			t.Errorf("logged: %v", r.logged.All())
		}
		for _, index := range []string{"1", "2", "3", "4"} {
			r.goesOn()
			r.exit("server."+index+".0.g0", 11)
			r.sleep(10 * time.Second)
		}
		r.exit("server.5.0.g0", 12)
		r.later()
		cause := r.wantCause(record.Failure{Child: "server.5", Code: 12}, "has 1 of 7 instances left and needs 2")
		var before []string
		for word := range strings.FieldsSeq(cause.Message) {
			if strings.HasSuffix(word, "s") && strings.Contains(cause.Message, ", "+word+" before") {
				before = append(before, word)
			}
		}
		if want := []string{"10s", "20s", "30s"}; !slices.Equal(before, want) {
			t.Errorf("the exits of %v before are mentioned, want those of %v: %s", before, want, cause.Message)
		}
	})
}

// TestFurtherExit verifies that of the exits of an instance on several nodes the first one counts.
func TestFurtherExit(t *testing.T) {
	inBubble(t, 3, `
  - {name: pair, nodes: 2, nodes-per-instance: 2, command: serve, restarts: {max: 1, backoff: 10s..10s}}
  - {name: single, nodes: 1, command: serve}
`, func(r *run) {
		r.openGate()
		r.exit("pair.0.1.g0", 3)
		r.exit("pair.0.0.g0", 4)
		r.later()
		r.exit("single.0.0.g0", 5)
		r.later()
		cause := r.wantCause(record.Failure{Child: "single.0"}, "pair.0.0")
		if strings.Count(cause.Message, "pair.0") != 1 {
			t.Errorf("the cause is %+v", cause)
		}
	})
}

// TestUnreadableExit verifies that an exit counts although its record cannot be read.
func TestUnreadableExit(t *testing.T) {
	inBubble(t, 2, "\n  - {name: server, nodes: 2, command: serve}\n", func(r *run) {
		r.setFault(func(op signal.Op, path string) error {
			if op == signal.OpRead && strings.HasSuffix(path, "/0001.i0001.g0.exited") {
				return os.ErrPermission
			}
			return nil
		})
		r.exit("server.1.0.g0", 3)
		r.later()
		if cause := r.wantCause(record.Failure{Kind: health.ServiceDied}, "server.1 has exited"); cause.NodeIndex != 1 {
			t.Errorf("it was on node %d", cause.NodeIndex)
		}
	})
}

// TestMarkOfUnknownInstance verifies that a mark of an instance that the plan does not have hides no
// other one.
func TestMarkOfUnknownInstance(t *testing.T) {
	inBubble(t, 2, "\n  - {name: server, nodes: 2, command: serve}\n", func(r *run) {
		for _, instance := range []int{2, 9} {
			r.mark(record.InstanceMark{Instance: instance, State: record.InstanceExited})
		}
		r.later()
		r.goesOn()
		r.exit("server.1.0.g0", 3)
		r.later()
		r.wantCause(record.Failure{Child: "server.1"})
	})
}
