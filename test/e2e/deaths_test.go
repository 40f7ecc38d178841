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

// peerTimeout is the default, and what the jobs here are told; a death must have
// ended the whole job by then.
const peerTimeout = 10 * time.Second

// Every part of a job is killed without warning, with Slurm told not to care:
// bringupd alone ends the rest, and says what was first.
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
		code int // srun's: where a daemon was killed, it reports that task's 137
		kind health.Kind
		rank int    // that the cause is about
		bad  string // node to stay away from
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
			// srun has TERM sent to all others as soon as it learns of a killed daemon.
			{"where srun ends the others", "control/go", "", []string{"--kill-on-bad-exit=1"}},
		} {
			t.Run(tc.name+" "+when.name, func(t *testing.T) {
				j := bed.start(t, launch{
					nodes: 4,
					srun:  when.srun,
					flags: []string{"--head-cmd=exec sleep 1001", "--worker-cmd=exec sleep 1002", "--worker-ready=" + when.ready,
						"--sandbox-cmd=exec sleep 1003", "--peer-timeout=" + peerTimeout.String()},
					driver: []string{"sleep", "1004"},
				})
				// A daemon that dies before it has joined is only missed.
				for rank := range 4 {
					j.reached(filepath.Join(signal.NodesDir, signal.NodeName(rank, 4, record.StateSandboxReady)))
				}
				if when.reached != "" {
					j.reached(when.reached)
				}
				// Nor does anybody know more of a worker without a lifeline. Of a
				// head they do: its host refuses their calls.
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
				// Slurm itself needs a moment to tell srun.
				if took := time.Since(killed); took > peerTimeout+2*time.Second {
					t.Errorf("the job ended %s after the death, want at most %s", took, peerTimeout)
				}
				cause, bad, code := causeOf(j, tc.rank == 0 && tc.kind == health.DaemonDied)
				if want := health.OutcomeOfKind(tc.kind).Code; code != want {
					t.Errorf("the verdict's code is %d, want %d", code, want)
				}
				if want := fmt.Sprintf("bringupd: the job failed with code %d", code); !strings.Contains(j.stderr.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, &j.stderr)
				}
				if cause.Kind != tc.kind || !about(cause, tc.rank) {
					t.Errorf("the first cause is %+v, want %s of rank %d\n%s", cause, tc.kind, tc.rank, &j.stderr)
				}
				if tc.bad != "" && !slices.Equal(bad, []string{tc.bad}) {
					t.Errorf("the bad nodes are %v, want %s", bad, tc.bad)
				}
			})
		}
	}
}

// about tells whether the cause is this rank's, or the loss of it.
func about(cause record.Failure, rank int) bool {
	if len(cause.LostNodes) > 0 {
		return slices.Equal(cause.LostNodes, []int{rank})
	}
	return cause.NodeIndex == rank
}

// causeOf reads the first cause; without a head it is in a worker's abort.
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
