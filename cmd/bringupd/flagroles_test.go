package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/deploy"
	"github.com/bringupd/bringupd/internal/textutil"
)

// firstOfFour is the environment of the daemon of the first of four nodes of a step.
var firstOfFour = []string{
	"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NNODES=4", "SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_LOCALID=0",
	"SLURM_STEP_NODELIST=n[1-4]", "SLURM_STEP_TASKS_PER_NODE=1(x4)", "SLURMD_NODENAME=n1",
}

// describeRoles returns a command line, and the file of the roles that it stands for. It fails the
// test unless that file stands for itself, or has a key that no run obeys yet.
func describeRoles(t *testing.T, env, args []string) string {
	t.Helper()
	var words []string
	for _, word := range args {
		words = append(words, textutil.QuotePOSIXWord(word))
	}
	got := call(t, slices.Concat(env, firstOfFour), append([]string{"--dry-run", "--roles"}, args...)...)
	if got.code == 0 && got.out != "{}\n" {
		again := call(t, firstOfFour, "--dry-run", "--roles", "--config="+file(t, "job.yaml", got.out))
		isRefused := again.code == 64 && strings.Contains(again.err, "is not supported by this version")
		if !isRefused && (again.code != 0 || again.out != got.out) {
			t.Errorf("%q: the roles\n%sbecame, with code %d:\n%s%s", args, got.out, again.code, again.out, again.err)
		}
	}
	return "$ bringupd " + strings.Join(words, " ") + "\n" + got.out + got.err
}

// compareGolden compares a text with that of a file, which -update writes.
func compareGolden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(contents(t, path), text); diff != "" {
		t.Errorf("%s differs (-update writes it):\n%s", path, diff)
	}
}

// TestRolesOfFlags compares the roles for which each command line in testdata/roles-of-flags.txt
// stands.
func TestRolesOfFlags(t *testing.T) {
	path, err := filepath.Abs("testdata/roles-of-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(contents(t, path)) {
		command, isCommand := strings.CutPrefix(line, "$ bringupd ")
		if !isCommand {
			continue
		}
		words, err := exec.Command("sh", "-c", `printf '%s\0' `+command).Output()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, describeRoles(t, nil, splitWords(string(words))))
	}
	compareGolden(t, path, strings.Join(all, "\n"))
	refused(t, call(t, nil, "--roles", "--", "true"), 64, "--roles without --dry-run")
}

// splitWords returns the words of a text, each of which a NUL character ends.
func splitWords(text string) []string { return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00") }

// TestRolesOfScripts compares the roles for which the command lines of each script in deploy stand
// with testdata/roles-of-scripts.txt.
func TestRolesOfScripts(t *testing.T) {
	path, err := filepath.Abs("testdata/roles-of-scripts.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, script := range deploy.Scripts() {
		if strings.HasSuffix(script.FileName(), ".yaml") {
			continue // of Kubernetes
		}
		with, isKnown := scriptCalls[script.Name]
		submit := t.TempDir()
		calls := runScript(t, script, submit, with.env, with.driver)
		if !isKnown || len(calls) == 0 {
			t.Errorf("the test does not know how to run the script %s, which has %d calls", script.Name, len(calls))
		}
		all = append(all, "# "+script.Name+": "+script.FileName()+"\n")
		for _, args := range calls {
			text := describeRoles(t, with.env, args)
			all = append(all, strings.ReplaceAll(text, submit, "/submit"))
		}
	}
	compareGolden(t, path, strings.Join(all, "\n"))
}

// standIns are scripts in place of programs. Those of launchers run the program that they would start
// on each node, which is a stand-in of bringupd that writes its arguments into a file of $CALLS.
var standIns = map[string]string{
	"launcher": `case "$1 $2" in
		"resource list") echo 4; exit ;;
		"show hostnames") printf 'n%s\n' 1 2 3 4; exit ;;
	esac
	while [ $# -gt 0 ]; do
		case "$1" in */bringupd | bringupd | bash) exec "$@" ;; esac
		shift
	done`,
	"bringupd": `case "$1" in -*) printf '%s\0' "$@" >"$(mktemp -p "$CALLS")" ;; esac
	[ "$1" != --dry-run ] || exec env ` + mainVariable + `=1 "$PROGRAM" "$@"`,
}

// scriptCalls are the variables and the driver with which the scripts are run.
var scriptCalls = map[string]struct{ env, driver []string }{
	"ray":   {driver: []string{"python", "train.py"}},
	"torch": {driver: []string{"python", "train.py"}},
	"mpi":   {[]string{"RANKS_PER_NODE=core"}, []string{"./program"}},
	"dask":  {driver: []string{"python", "train.py"}},
	"generic": {[]string{"HEAD_CMD=serve", "HEAD_READY=tcp:7000", "WORKER_CMD=work"},
		[]string{"./driver.sh", "a b"}},
	"ray-sandbox": {[]string{"SANDBOX_CMD=box", "SANDBOX_READY=tcp:6000"}, []string{"python", "train.py"}},
	"generic-sandbox": {[]string{"SANDBOX_CMD=box", "SANDBOX_READY=tcp:6000", "SANDBOX_REQUIRE=3"},
		[]string{"./driver.sh"}},
	"ray.sub":  {env: []string{"COMMAND=uv run train.py", "SANDBOX_COMMAND=box"}},
	"pbs":      {env: []string{"DRIVER=python train.py", "RANKS_PER_NODE=gpu"}},
	"flux":     {[]string{"HEAD_CMD=serve", "WORKER_CMD=work"}, []string{"./driver.sh"}},
	"flux-ray": {driver: []string{"python", "train.py"}},
	"lsf":      {env: []string{"BRINGUPD_FRAMEWORK=ray", "DRIVER=python train.py"}},
}

// runScript returns the sorted command lines of bringupd that a script, which is submitted in a
// directory, runs on any node.
func runScript(t *testing.T, script deploy.Script, submit string, env, driver []string) (calls [][]string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, records := filepath.Join(dir, "bin"), filepath.Join(dir, "calls")
	for _, made := range []string{bin, records} {
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(bin, "bringupd"), "#!/bin/bash\n"+standIns["bringupd"])
	for _, launcher := range []string{"srun", "scontrol", "flux", "blaunch", "pbs_tmrsh"} {
		write(filepath.Join(bin, launcher), "#!/bin/bash\n"+standIns["launcher"])
	}
	write(filepath.Join(dir, "script"), string(script.Text()))
	write(filepath.Join(dir, "nodes"), "n1\nn2\nn3\nn4\n")
	// Users of some sites share all that they write with their group.
	command := exec.Command("bash", slices.Concat(
		[]string{"-c", `umask 002; exec bash "$@"`, "bash", filepath.Join(dir, "script")}, driver)...)
	command.Dir = submit
	command.Env = slices.Concat([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CALLS=" + records,
		"PROGRAM=" + self, "HOME=" + dir,
		"LOG_DIR=" + filepath.Join(submit, "logs"),
		"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_SUBMIT_DIR=" + submit,
		"PBS_NODEFILE=" + filepath.Join(dir, "nodes"), "PBS_O_WORKDIR=" + submit, "PBS_JOBID=7",
		"LSB_MCPU_HOSTS=n1 1 n2 1 n3 1 n4 1"}, env)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", script.Name, err, out)
	}
	for _, logs := range []string{"logs", "7-logs"} {
		info, err := os.Stat(filepath.Join(submit, logs))
		if err == nil && info.Mode()&0o022 != 0 {
			t.Errorf("%s makes a log directory of mode %v, which bringupd refuses", script.Name, info.Mode())
		}
	}
	files, err := filepath.Glob(filepath.Join(records, "*"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, name := range files {
		text := contents(t, name)
		if !seen[text] {
			calls = append(calls, splitWords(text))
		}
		seen[text] = true
	}
	slices.SortFunc(calls, slices.Compare)
	return calls
}
