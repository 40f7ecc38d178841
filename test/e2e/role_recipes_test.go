//go:build testbed

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// copyRoleExamples copies the examples of roles to a new directory for a job, and returns it.
func (bed *lane) copyRoleExamples(t *testing.T) string {
	t.Helper()
	dir := bed.place(t)
	examples := filepath.Join(dir, "examples", "roles")
	bed.makeDir(t, examples)
	paths, err := filepath.Glob("../../examples/roles/*.*")
	must(t, err)
	for _, path := range paths {
		copyFile(t, path, examples)
	}
	return dir
}

// submitComponents submits the job script that bringupd writes for an example of roles on the
// components of a heterogeneous job, which flags such as --nodes=2,2 describe.
func (bed *lane) submitComponents(t *testing.T, dir, example string, flags ...string) (b *batchJob,
	logs string) {
	t.Helper()
	args := append([]string{"roles", "--sbatch", filepath.Join(dir, "examples", "roles", example)},
		flags...)
	script, err := exec.Command(program, args...).Output()
	must(t, err)
	path := filepath.Join(dir, "job.sbatch")
	must(t, os.WriteFile(path, script, 0o755))
	logs = filepath.Join(dir, "logs")
	bed.setenv("LOG_DIR", logs)
	return bed.submitFile(t, dir, path), logs
}

// wantLines checks that a job has ended with 0 and printed these lines in any order.
func wantLines(t *testing.T, b *batchJob, result record.Result, want []string) {
	t.Helper()
	out, err := os.ReadFile(b.out)
	must(t, err)
	said := slices.Sorted(strings.Lines(string(out)))
	if diff := cmp.Diff(want, said); diff != "" || result.Code != 0 {
		errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		t.Errorf("the job ended with %d: %s\n%s\n%s", result.Code, result.Reason, diff, errors)
	}
}

// rolePlan returns the first plan of the roles of a job.
func (b *batchJob) rolePlan(logs string) (plan roles.PlanRecord) {
	b.t.Helper()
	readJSON(b.t, filepath.Join(logs, b.id+".0", signal.ControlDir, signal.SeriesPlan.Name(0)), &plan)
	return plan
}

// TestRolesInTwoComponents runs a world in the first component of a heterogeneous job, and servers
// in the second one. Each component has its own nodes, and the world reaches the servers there.
func TestRolesInTwoComponents(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.prependPath(beds.bin())
	b, logs := bed.submitComponents(t, bed.copyRoleExamples(t), "two_components.yaml",
		"--nodes=2,2")
	result := resultOf(t, b, logs)
	plan := b.rolePlan(logs)
	var want []string
	for rank := range 2 {
		for _, server := range plan.Offers[2:] {
			want = append(want, "trainer.0."+itoa(rank)+": rank "+itoa(rank)+
				" of 2: server "+server.Address+":"+itoa(server.FirstPort)+" 200\n")
		}
	}
	slices.Sort(want)
	wantLines(t, b, result, want)
	for place, offer := range plan.Offers {
		if offer.Group != place/2 {
			t.Errorf("node %d is of component %d", place, offer.Group)
		}
	}
}

// TestScriptOfASavedRun kills a daemon whose server a role can do without: srun then ends with 137, and the
// script that bringupd writes with the code of the run, so that jobs which depend on it start.
func TestScriptOfASavedRun(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.prependPath(beds.bin())
	dir := bed.place(t)
	bed.makeDir(t, filepath.Join(dir, "examples", "roles"))
	must(t, os.WriteFile(filepath.Join(dir, "examples", "roles", "saved.yaml"), []byte(`roles:
- {name: client, nodes: head, primary: true, command: "until [ -e `+dir+`/killed ]; do sleep 0.2; ls `+dir+
		` >/dev/null; done; sleep 3"}
- {name: server, nodes: others, require: {start: all, run: 1}, command: exec sleep 1002}
`), 0o644))
	script, err := exec.Command(program, "roles", "--nodes=3", "--sbatch",
		filepath.Join(dir, "examples", "roles", "saved.yaml")).Output()
	must(t, err)
	path, logs := filepath.Join(dir, "job.sbatch"), filepath.Join(dir, "logs")
	must(t, os.WriteFile(path, script, 0o755))
	bed.setenv("LOG_DIR", logs)
	b := bed.submitFile(t, dir, path)
	bed.find(t, 1, "sleep", "1002")
	bed.find(t, 2, "sleep", "1002")
	kill(t, bed.daemonOf(t, 2), syscall.SIGKILL)
	must(t, os.WriteFile(filepath.Join(dir, "killed"), nil, 0o644))
	if result := resultOf(t, b, logs); result.Code != 0 {
		t.Errorf("the run has ended with %d: %s", result.Code, result.Reason)
	}
	eventually(t, func() string {
		if state := b.shown("JobState"); state != "COMPLETED" {
			return "the job is " + state + " with the code " + b.shown("ExitCode")
		}
		return ""
	})
}
