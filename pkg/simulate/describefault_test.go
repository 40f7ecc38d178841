package simulate

import (
	"strings"
	"testing"
)

func TestDescribeFault(t *testing.T) {
	const servers = "- {name: judge, nodes: 2, per-node: 4, gpus: 2, command: c, restarts: {max: 3, window: 10m}, require: {start: all, run: 6}}\n"
	const trainer = "- {name: trainer, nodes: rest, ranks-per-node: 2, primary: true, command: c}\n"
	for _, tc := range []struct{ name, text, fault, want string }{
		{"a restart, and a loss that is tolerated", "roles:\n" + servers + trainer, "judge.1", `judge.1 on n0: a process fails.
It starts again in its place after 1s, at most 3 times within 10m0s. After that:
It is lost: role judge has 7 of 8 instances left, and needs 6.
The run goes on.
`},
		{"a primary over several nodes", "roles:\n" + servers + trainer, "trainer.0", `trainer.0 on n2, n3: a process fails.
Its other 3 processes are stopped.
It is lost: role trainer has 0 of 1 instances left, and needs 1.
The run ends with the code of the process.
`},
		{"a oneshot role, before the gate", "roles: [{name: setup, nodes: all, oneshot: true, command: c, require: {start: 3, run: 0}}]", "setup.3", `setup.3 on n3: a process fails.
It is lost: role setup has 3 of 4 instances left, and needs 3.
The run goes on.
`},
		{"the head's node", "roles:\n" + servers + trainer, "node:0", `node 0 (n0) is lost: it is the node of the head.
The run ends with the code 76.
`},
		{"a node without a spare", "roles:\n" + servers + trainer, "node:1", `node 1 (n1) is lost:
  judge: 4 instances (4-7) lost: judge has 4 of 8 instances left, and needs 6
  trainer: not affected
The run ends with the code 76.
`},
		{"a spare", "spares: 1\nroles:\n" + servers + trainer, "node:1", `node 1 (n1) is lost:
  judge: 4 instances (4-7) started again on the spare node n3, which takes the place
  trainer: not affected
The run goes on.
`},
		{"a spare for one of two roles", "spares: 1\nroles:\n" + servers + "- {name: b, with: judge, command: c}\n", "node:1", `node 1 (n1) is lost:
  judge: 4 instances (4-7) could start again on the spare node n3
  b: 1 instance (1) lost: b has 1 of 2 instances left, and needs 2
The run ends with the code 76.
`},
		{"the spare", "spares: 1\nroles:\n" + servers + trainer, "node:3", "node 3 (n3) is lost: it is a spare node.\nThe run goes on.\n"},
		{"a oneshot role that is done", "roles: [{name: setup, nodes: all, oneshot: true, command: c}]", "node:2", "node 2 (n2) is lost:\n  setup: not affected\nThe run goes on.\n"},
		{"no such node", "roles:\n" + servers + trainer, "node:4", "cannot use --fail=node:4: give a node from node:0 to node:3"},
		{"no such role", "roles:\n" + servers + trainer, "x.1", "cannot use --fail=x.1: give node:INDEX or an instance ROLE.INDEX; the roles are judge, trainer"},
		{"no such instance", "roles:\n" + servers + trainer, "judge.8", "cannot use --fail=judge.8: give an instance from judge.0 to judge.7"},
		{"no index", "roles:\n" + servers + trainer, "judge", "cannot use --fail=judge: give an instance from judge.0 to judge.7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := withRoles(t, 4, tc.text).DescribeFault(4, tc.fault)
			if err != nil {
				got = err.Error()
			}
			if got != tc.want || strings.HasPrefix(got, "cannot") != (err != nil) {
				t.Errorf("got %v:\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
}
