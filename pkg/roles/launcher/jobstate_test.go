package launcher

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestAskJobState has what the programs print.
func TestAskJobState(t *testing.T) {
	const (
		squeue = "squeue --noheader --states=all --format=%T --jobs="
		flux   = "flux jobs --no-header --format={state} "
		bjobs  = "bjobs -a -noheader -o stat "
		active = "has not ended, "
		over   = "has ended, "
	)
	failed := errors.New("exit status 1")
	for _, tc := range []struct {
		name, command, printed string
		err                    error
		want                   string
	}{
		{"53", squeue + "53", "PENDING\n", nil, active + "squeue: PENDING"},
		{"53.0-r1", squeue + "53", "RUNNING\n", nil, active + "squeue: RUNNING"},
		{"60+1", squeue + "60", "REQUEUE_HOLD\n", nil, active + "squeue: REQUEUE_HOLD"},
		{"50", squeue + "50", "FAILED\nCOMPLETED\nRUNNING\n", nil, active + "squeue: RUNNING"},
		{"50_1", squeue + "50_1", "FAILED\n", nil, over + "squeue: FAILED"},
		{"53", squeue + "53", "slurm_load_jobs error: Invalid job id specified", failed,
			over + "squeue: Invalid job id"},
		{"53", squeue + "53", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
			failed, ""},
		{"train", "", "", nil, ""},
		{"53;other", "squeue", "", nil, ""},
		{"2026-train", "squeue", "", nil, ""},
		{"2026-train", "qstat", "", nil, ""},
		{"2026-12-01", "qstat", "", nil, ""},
		{"2026-12-01", "bjobs", "", nil, ""},
		{"17-4-a1", bjobs + "17[4]", "RUN\n", nil, active + "bjobs: RUN"},
		{"17-4-r1-a1", "qstat -f 17[4]", "job_state = R", nil, active + "qstat: R"},
		{"16", "qstat -f 16 16[]", "Job Id: 16.pbs01\n    job_state = Q\nqstat: Unknown Job Id 16[].pbs01", failed,
			active + "qstat: Q"},
		{"17", "qstat -f 17 17[]", "Job Id: 17[].pbs01\n    job_state = B\nqstat: Unknown Job Id 17.pbs01", failed,
			active + "qstat: B"},
		{"16.pbs01", "qstat -f 16.pbs01", "qstat: 16.pbs01 Job has finished, use -x or -H to obtain historical job " +
			"information", failed, over + "qstat: has finished"},
		{"17[4].pbs01", "qstat -f 17[4].pbs01", "Job Id: 17[4].pbs01\n    job_state = X", nil,
			over + "qstat: job_state = X"},
		{"17-4", "qstat -f 17[4]", "qstat: Unknown Job Id 17[4].pbs01", failed, over + "qstat: Unknown Job Id"},
		{"17[].pbs01", "qstat -f 17[].pbs01", "qstat: cannot connect to server pbs01 (errno=111)", failed, ""},
		{"ƒL7wjnw", flux + "fL7wjnw", "SCHED\n", nil, active + "flux: SCHED"},
		{"12549357568", flux + "fL7wjnw", "INACTIVE\n", nil, over + "flux: INACTIVE"},
		{"fL7w-fB2x", flux + "fL7w", "RUN\n", nil, active + "flux: RUN"},
		{"fL7wjnw", flux + "fL7wjnw", "flux-jobs: ERROR: JobID fL7wjnw unknown", failed, ""},
		{"16", bjobs + "16", "PEND\n", nil, active + "bjobs: PEND"},
		{"17-4", bjobs + "17[4]", "EXIT\n", nil, over + "bjobs: EXIT"},
		{"16", bjobs + "16", "Job <16> is not found", failed, over + "bjobs: not found"},
	} {
		t.Run(tc.name+" "+tc.printed, func(t *testing.T) {
			program, _, _ := strings.Cut(tc.command, " ")
			ask := func(_ context.Context, name string, args ...string) (string, error) {
				command := strings.Join(append([]string{name}, args...), " ")
				switch {
				case name != program:
					return "", fmt.Errorf("cannot run %s: %w", name, exec.ErrNotFound)
				case command != tc.command:
					t.Errorf("the command is %s, want %s", command, tc.command)
				case tc.err != nil:
					printed := strings.ReplaceAll(tc.printed, "\n", " ")
					return "", fmt.Errorf("cannot run %s: %w: %s", command, tc.err, printed)
				}
				return tc.printed, nil
			}
			state := AskJobState(t.Context(), tc.name, ask)
			got := ""
			if state.IsKnown {
				got = map[bool]string{true: over, false: active}[state.IsOver] + state.Words
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}
