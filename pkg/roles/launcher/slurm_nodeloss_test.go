package launcher

import (
	"strings"
	"testing"
)

func TestNodeLossShortfall(t *testing.T) {
	const step, kill = "SLURM_JOB_ID=17 SLURM_STEP_ID=0", "no --no-kill"
	for _, tc := range []struct {
		name    string
		environ string // of the daemon
		srun    string // command line
		own     string // variables of srun beside the job's number
		want    string // what srun has
	}{
		{"both options", step, "srun --no-kill --kill-on-bad-exit=0 --wait=0 bringupd", "", ""},
		{"short options", step, "/usr/bin/srun -k -K0 bringupd", "", ""},
		{"the site's default", step, "srun -k -N 4 /opt/bringupd", "", ""},
		{"neither", step, "srun -N 4 --wait=0 bringupd", "", kill},
		{"both missing", step, "srun --kill-on-bad-exit=1 bringupd", "", "--kill-on-bad-exit=1 and " + kill},
		{"no value", step, "srun -k --kill-on-bad-exit bringupd", "", "--kill-on-bad-exit"},
		{"short", step, "srun -k -K bringupd", "", "-K"},
		{"another option that begins with -K", step, "srun -k -Kx bringupd", "", ""},
		{"variables", step, "srun bringupd", "SLURM_NO_KILL=set SLURM_KILL_BAD_EXIT=0", ""},
		{"an option has precedence over a variable", step, "srun --no-kill=off -K0 bringupd", "SLURM_NO_KILL=1 SLURM_KILL_BAD_EXIT=1", kill},
		{"a variable", step, "srun -k bringupd", "SLURM_KILL_BAD_EXIT=1", "SLURM_KILL_BAD_EXIT=1"},
		{"arguments of the command", step, "srun -k bringupd -K --kill-on-bad-exit=1", "", ""},
		{"another program", step, "run bringupd", "", ""},
		{"another job", step, "srun bringupd", "SLURM_JOB_ID=18", ""},
		{"no step", "SLURM_JOB_ID=17", "srun bringupd", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srun := StarterProcess{strings.Fields(tc.srun), strings.Fields(tc.own + " SLURM_JOB_ID=17")}
			lack, is := FindNodeLossShortfall(EnvironmentOf(strings.Fields(tc.environ)), []StarterProcess{{}, srun, srun})
			_, got, _ := strings.Cut(lack.Problem, ": srun has ")
			if got != tc.want || is != (tc.want != "") {
				t.Errorf("found %q (%v), want %q", got, is, tc.want)
			}
		})
	}
}
