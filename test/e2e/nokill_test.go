//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRolesThatSurviveANode checks that the first node of a batch job finds the options of its srun,
// and warns if Slurm would end a step whose roles have a spare node.
func TestRolesThatSurviveANode(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`spares: 1
roles:
- {name: server, nodes: head, restarts: 1, command: exec sleep 1009}
- {name: client, nodes: head, primary: true, command: "true"}
`), 0o644))
	bed.prependPath(beds.bin())
	logs := filepath.Join(dir, "logs")
	b := bed.submit(t, `#!/bin/bash
run() { srun "$@" bringupd --log-dir=`+logs+` --config=`+file+`; echo "ended with $?" >&2; }
run --no-kill --kill-on-bad-exit=0
run -K
echo done
`, "--nodes=2", "--ntasks-per-node=1", "--no-kill")
	b.wait("done\n")
	said, err := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
	must(t, err)
	first, second, _ := strings.Cut(string(said), "ended with 0\n")
	if strings.Contains(first, "host.step") || !strings.HasSuffix(second, "ended with 0\n") {
		t.Errorf("the step that survives said %s", first)
	}
	if !strings.Contains(second, "check warning: host.step: ") || !strings.Contains(second, ": srun has -K and no --no-kill") {
		t.Errorf("the other step said %s", second)
	}
}
