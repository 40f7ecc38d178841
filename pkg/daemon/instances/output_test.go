package instances

import (
	"fmt"
	"strings"
	"testing"
)

// TestOutputOfSeveralProcesses checks that the lines of several processes of a primary role have names,
// on both streams, and that other roles write only to their logs.
func TestOutputOfSeveralProcesses(t *testing.T) {
	inBubble(t, 1, `
  - {name: train, nodes: head, ranks-per-node: 2, primary: true, command: train}
  - {name: serve, nodes: head, command: serve, ports: {http: 7000}}
`, func(r *run) {
		r.print("train.0.0.g0", "x")
		r.print("train.0.1.g0", "y")
		r.print("serve.0.0.g0", "z")
		if got := r.nodes[0].out.String(); got != "train.0.0: x\ntrain.0.1: y\n" {
			t.Errorf("the output is %q", got)
		}
		role := &r.plan.Roles[0]
		s := r.nodes[0].newSupervisor(r.nodes[0].known(), role, &role.Instances[0])
		out, err := s.writers(role.Instances[0].Processes[1])
		_, _ = fmt.Fprintln(err, "e")
		if got := r.nodes[0].out.String(); out == err || !strings.HasSuffix(got, "\ntrain.0.1: e\n") {
			t.Errorf("the output is %q", got)
		}
	})
}
