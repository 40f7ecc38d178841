//go:build testbed

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestRanksStartAgain checks that ranks which fail start again in the same run, on all nodes, while
// the services of these stay, and that the loss of a node ends that run.
func TestRanksStartAgain(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.start(t, launch{
		nodes: 4, flags: []string{"--peer-timeout=" + quick.String(), "--restarts=3", "--restart-on=rank",
			"--nnodes=3:4", "--ranks-per-node=2", "--oversubscribe", "--output=none",
			"--worker-cmd=echo >>$BRINGUPD_RUN_DIR/service.$BRINGUPD_NODE_RANK; exec sleep 1019"},
		driver: []string{"sh", "-c", `case $BRINGUPD_ATTEMPT.$RANK in 0.5) exit 3;; 1.*) exec sleep 1021;; esac`},
	})
	for node := range 4 {
		bed.find(t, node, "sleep", "1021")
	}
	first := filepath.Base(j.runDir())
	for node := range 4 {
		path := filepath.Join(j.logs, first, "service."+itoa(node))
		if data, err := os.ReadFile(path); len(data) != 1 {
			t.Errorf("the service of node %d was started %d times (%v)", node, len(data), err)
		}
	}
	kill(t, bed.daemonOf(t, 3), syscall.SIGKILL)
	j.wantCode(137) // srun has seen the kill
	for run, want := range map[string]struct{ code, next, restarts int }{first: {76, 2, 1}, first + "-a2": {0, 0, 2}} {
		var result record.Result
		data, err := os.ReadFile(filepath.Join(j.logs, run, signal.NameResult))
		if err == nil {
			err = json.Unmarshal(data, &result)
		}
		if err != nil || result.Code != want.code || result.NextAttempt != want.next ||
			result.History == nil || result.History.Count != want.restarts {
			t.Errorf("%s has ended with %d, %d follows, and the restarts are %+v (%v)", run, result.Code,
				result.NextAttempt, result.History, err)
		}
	}
	bed.noneLeft(t)
}
