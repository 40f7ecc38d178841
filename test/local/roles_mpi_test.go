//go:build mpi

package local

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// runRoles runs the roles of a file on some nodes, with $MPICH, $OPENMPI and $OPENMPI4 replaced by the
// Pythons that have these MPIs, and returns the code, both outputs and the result.
func runRoles(t *testing.T, nodes, file string) (code int, out, said string, result record.Result) {
	t.Helper()
	dir := t.TempDir()
	job := filepath.Join(dir, "job.yaml")
	text := os.Expand("roles:\n"+file, func(name string) string {
		python := os.Getenv("BRINGUPD_TEST_" + name)
		if python == "" {
			t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has it "+
				"(make test installs it)", name, name)
		}
		return python
	})
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), jobtest.Bringupd, "local", "--nodes="+nodes,
		"--log-dir="+dir, "--job-id=j", "--config="+job)
	run.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	var printed, messages strings.Builder
	run.Stdout, run.Stderr = &printed, &messages
	_ = run.Run() // the caller examines its code
	if data, err := os.ReadFile(filepath.Join(dir, "j", signal.NameResult)); err == nil {
		if err := json.Unmarshal(data, &result); err != nil {
			t.Fatal(err)
		}
	}
	return run.ProcessState.ExitCode(), printed.String(), messages.String(), result
}

// TestRolesWithMPI checks that the ranks of each instance of a role are an MPI world of their own,
// whose nodes are those of the instance: four worlds of three MPIs run at the same time, beside a
// server, and two of them on the same nodes.
func TestRolesWithMPI(t *testing.T) {
	code, out, said, _ := runRoles(t, "4", `
- {name: server, nodes: head, command: exec sleep 600}
- {name: mpich, nodes: 1, ranks-per-node: 3, primary: true, command: exec $MPICH testdata/role_world.py}
- {name: open, nodes: rest, ranks-per-node: 1, primary: true, command: exec $OPENMPI testdata/role_world.py}
- {name: both, nodes: all, nodes-per-instance: 2, ranks-per-node: 2, primary: true,
   command: exec $OPENMPI4 testdata/role_world.py}
`)
	if code != 0 {
		t.Errorf("it ended with %d\n%s%s", code, out, said)
	}
	for _, want := range []string{
		"mpich.0.0: mpich.0 has 3 ranks of mpich.0 with the sum 3\n",
		"open.0.0: open.0 has 3 ranks of open.0 with the sum 3\n",
		"both.0.0: both.0 has 4 ranks of both.0 with the sum 6\n",
		"both.1.0: both.1 has 4 ranks of both.1 with the sum 6\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if lines := strings.Count(out, "\n"); lines != 4 {
		t.Errorf("there are %d worlds:\n%s", lines, out)
	}
}

// TestRolesWithMPIThatDie checks that the run names the rank of an MPI world that has died or has
// called MPI_Abort, beside another world.
func TestRolesWithMPIThatDie(t *testing.T) {
	for _, tc := range []struct {
		mpi, mode string
		code      int
		says      string
	}{
		{"MPICH", "kill", 137, "died: killed by SIGKILL"},
		{"OPENMPI", "kill", 137, "died: killed by SIGKILL"},
		{"OPENMPI4", "kill", 137, "died: killed by SIGKILL"},
		{"MPICH", "abort", 42, "has aborted the job with code 42"},
		{"OPENMPI", "abort", 42, "has aborted the job with code 42"},
		{"OPENMPI4", "abort", 42, "has aborted the job with code 42"},
	} {
		t.Run(tc.mpi+", "+tc.mode, func(t *testing.T) {
			code, out, said, result := runRoles(t, "4", `
- {name: other, nodes: 2, ranks-per-node: 1, command: "$`+tc.mpi+` testdata/role_world.py && exec sleep 600"}
- {name: train, nodes: rest, ranks-per-node: 2, primary: true,
   command: exec $`+tc.mpi+` testdata/role_world.py `+tc.mode+`}
`)
			cause := result.Cause
			if code != tc.code || cause == nil ||
				!strings.HasPrefix(cause.Message, "rank 3 of train.0 (") ||
				!strings.Contains(cause.Message, ") "+tc.says) {
				t.Fatalf("it ended with %d because of %+v\n%s%s", code, cause, out, said)
			}
			if cause.NodeIndex != 3 || cause.WorldRank.Number != 3 || cause.WorldRank.World != "train.0" {
				t.Errorf("the cause is %+v, of %+v", cause, cause.WorldRank)
			}
		})
	}
}

// TestRanksStartAgain checks that a world of MPI ranks is started again: the ranks of a role, and
// those of flags, of which one exits in the first world and another one calls MPI_Abort in the
// second.
func TestRanksStartAgain(t *testing.T) {
	for _, mpi := range []string{"MPICH", "OPENMPI", "OPENMPI4"} {
		t.Run(mpi, func(t *testing.T) {
			code, out, said, result := runRoles(t, "2", `
- {name: train, nodes: rest, ranks-per-node: 2, primary: true, restarts: 3,
   command: exec $`+mpi+` testdata/restarted_world.py}
`)
			if code != 0 || result.Cause != nil || !strings.HasSuffix(out, "start 2 has 4 ranks with the sum 6\n") {
				t.Errorf("the role has ended with %d because of %+v\n%s%s", code, result.Cause, out, said)
			}
			code, out, said = runRanks(t, "--restarts=3 --restart-on=rank --nodes=2 --ranks-per-node=2 --oversubscribe",
				os.Getenv("BRINGUPD_TEST_"+mpi)+" testdata/restarted_world.py")
			if code != 0 || !strings.HasSuffix(out, "start 2 has 4 ranks with the sum 6\n") {
				t.Errorf("the ranks have ended with %d\n%s%s", code, out, said)
			}
		})
	}
}

// runRanks runs a shell command as ranks of flags, and returns the code and both outputs.
func runRanks(t *testing.T, flags, command string) (code int, out, said string) {
	t.Helper()
	words := append(append([]string{"local", "--log-dir=" + t.TempDir()}, strings.Fields(flags)...),
		"--", "sh", "-c", "exec "+command)
	run := exec.CommandContext(t.Context(), jobtest.Bringupd, words...)
	run.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	var printed, messages strings.Builder
	run.Stdout, run.Stderr = &printed, &messages
	_ = run.Run() // the caller examines its code
	return run.ProcessState.ExitCode(), printed.String(), messages.String()
}
