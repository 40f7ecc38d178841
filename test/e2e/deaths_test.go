//go:build testbed

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// peerTimeout is the default, which the jobs here use. Within this time after a failure, the whole
// job must have ended.
const peerTimeout = 10 * time.Second

// TestDeaths kills each part of a job without warning, with Slurm configured not to react. It
// checks that bringupd alone ends the rest and reports the first cause.
func TestDeaths(t *testing.T) {
	bed := claim(t, fewNodes)
	daemon := func(node int) func(*testing.T) int {
		return func(t *testing.T) int { return bed.daemonOf(t, node) }
	}
	child := func(node int, words ...string) func(*testing.T) int {
		return func(t *testing.T) int { return bed.find(t, node, words...) }
	}
	for _, tc := range []struct {
		name string
		pid  func(*testing.T) int
		code int // srun's code: 137 if a daemon was killed
		kind health.Kind
		rank int    // node of the cause
		bad  string // node to avoid
	}{
		{"a worker's daemon", daemon(2), 137, health.DaemonDied, 2, "n2"},
		{"the head's daemon", daemon(0), 137, health.DaemonDied, 0, "n0"},
		{"the head's service", child(0, "sleep", "1001"), 77, health.ServiceDied, 0, ""},
		{"a worker's service", child(3, "sleep", "1002"), 77, health.ServiceDied, 3, ""},
		{"a sandbox", child(1, "sleep", "1003"), 77, health.SandboxDied, 1, ""},
	} {
		for _, when := range []struct {
			name, reached, ready string
			srun                 []string
		}{
			{"before the gate", "", "file:/nonexistent", nil},
			{"under the driver", "control/go", "", nil},
			// srun sends TERM to all other tasks as soon as it learns that a daemon was killed.
			{"where srun ends the others", "control/go", "", []string{"--kill-on-bad-exit=1"}},
		} {
			t.Run(tc.name+" "+when.name, func(t *testing.T) {
				j := bed.start(t, launch{
					nodes: 4,
					srun:  when.srun,
					flags: []string{"--head-cmd=exec sleep 1001", "--worker-cmd=exec sleep 1002",
						"--worker-ready=" + when.ready,
						"--sandbox-cmd=exec sleep 1003", "--peer-timeout=" + peerTimeout.String()},
					driver: []string{"sleep", "1004"},
				})
				// Wait until all daemons have joined: one that dies earlier is only reported as missing.
				for rank := range 4 {
					j.reached(filepath.Join(signal.NodesDir,
						signal.NodeName(rank, 4, record.StateSandboxReady)))
				}
				if when.reached != "" {
					j.reached(when.reached)
				}
				// Without a peer link, a dead worker also has no known cause. A dead head has one: its host
				// refuses connections.
				if tc.kind == health.DaemonDied && tc.rank != 0 {
					j.connected(3)
				}
				pid := tc.pid(t)
				if when.reached == "control/go" {
					bed.find(t, 0, "sleep", "1004")
				}
				killed := time.Now()
				kill(t, pid, syscall.SIGKILL)
				j.wantCode(tc.code)
				// Slurm itself needs a moment to notify srun.
				if took := time.Since(killed); took > peerTimeout+2*time.Second {
					t.Errorf("the job ended %s after the death, want at most %s", took, peerTimeout)
				}
				cause, bad, code := causeOf(j, tc.rank == 0 && tc.kind == health.DaemonDied)
				if want := health.OutcomeOfKind(tc.kind).Code; code != want {
					t.Errorf("the verdict's code is %d, want %d", code, want)
				}
				if want := fmt.Sprintf("bringupd: the job failed with code %d",
					code); !strings.Contains(j.stderr.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, &j.stderr)
				}
				if cause.Kind != tc.kind || !about(cause, tc.rank) {
					t.Errorf("the first cause is %+v, want %s of node %d\n%s", cause, tc.kind,
						tc.rank, &j.stderr)
				}
				if tc.bad != "" && !slices.Equal(bad, []string{tc.bad}) {
					t.Errorf("the bad nodes are %v, want %s", bad, tc.bad)
				}
			})
		}
	}
}

// about reports whether the cause is a failure or the loss of this node.
func about(cause record.Failure, rank int) bool {
	if len(cause.LostNodes) > 0 {
		return slices.Equal(cause.LostNodes, []int{rank})
	}
	return cause.NodeIndex == rank
}

// causeOf reads the first cause. Without a head, it is in the abort record of a worker.
func causeOf(j *job, headless bool) (cause record.Failure, bad []string, code int) {
	j.t.Helper()
	if !headless {
		result := j.result()
		if result.Cause == nil {
			j.t.Fatalf("the result has no cause: %+v", result)
		}
		return *result.Cause, result.BadNodes, result.Code
	}
	abort := anyAbort(j)
	return abort.Cause, abort.BadNodes, abort.Code
}
