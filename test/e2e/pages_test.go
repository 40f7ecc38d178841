//go:build testbed

package e2e

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// snippet returns the page's code example that begins with this line, unchanged.
func snippet(t *testing.T, page, first string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	must(t, err)
	_, rest, found := strings.Cut(string(text), "\n    "+first+"\n")
	if !found {
		t.Fatalf("%s has no example that begins with %q", page, first)
	}
	lines := []string{first}
	for line := range strings.SplitSeq(rest, "\n") {
		line, inside := strings.CutPrefix(line, "    ")
		if !inside {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestAScriptThatRequeuesItself checks that the script of docs/ending.md restarts a job whose
// driver was ended by TERM.
func TestAScriptThatRequeuesItself(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	driver := `if [ -n "$SLURM_RESTART_COUNT" ]; then echo again; else echo started; exec sleep 1000; fi`
	b := bed.submit(t, "#!/bin/sh\nsrun --wait=0 "+program+" --log-dir="+logs+" -- sh -c '"+driver+
		"'\n"+snippet(t, "ending.md", "code=$?"),
		"-N", "2", "--ntasks-per-node=1", "--requeue", "--open-mode=append")
	eventually(t, func() string { return lacks(b.out, "started") })
	bed.scancel(t, "--signal=TERM", b.id+".0")
	b.wait("again\n")
	if first, again := resultOfRun(t, logs, b.id+".0"),
		resultOfRun(t, logs, b.id+".0-r1"); first.Code != 143 || again.Code != 0 {
		t.Errorf("the first attempt ended with %d, and the second with %d", first.Code, again.Code)
	}
}

// TestAWrapperThatSubmitsAnew checks that the wrapper of docs/requeue.md submits a job again
// without the node that failed, and otherwise exits with the job's code.
func TestAWrapperThatSubmitsAnew(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	wrapper, script := filepath.Join(dir, "wrapper.sh"), filepath.Join(dir, "job.sh")
	must(t, os.WriteFile(wrapper,
		[]byte("#!/bin/bash\ncd "+dir+"\n"+snippet(t, "requeue.md",
			"logs=$PWD/bringupd-logs; bad=")), 0o755))
	// Exactly the first node that is checked fails.
	must(t, os.WriteFile(script, []byte("#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1\n"+
		"srun --kill-on-bad-exit=0 --wait=0 "+program+" --log-dir=$LOG_DIR"+
		" --active-check='! mkdir "+dir+"/failed || exit 2' -- \"$@\"\n"), 0o755))
	cmd := bed.Command(t.Context(), wrapper, script, "sh", "-c", "exit 7")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its exit code is checked below
	runs, err := filepath.Glob(filepath.Join(dir, "bringupd-logs", "*.0"))
	must(t, err)
	// job 10 after 9
	slices.SortFunc(runs, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	if code := cmd.ProcessState.ExitCode(); code != 7 || len(runs) != 2 {
		t.Fatalf("the wrapper ended with %d, after %v: %s", code, runs, &out)
	}
	var failed, again record.Result
	readJSON(t, filepath.Join(runs[0], signal.NameResult), &failed)
	readJSON(t, filepath.Join(runs[1], signal.NameResult), &again)
	if failed.Code != 75 || len(failed.BadNodes) != 1 || again.Code != 7 ||
		strings.Contains(strings.Join(again.Hosts, " ")+" ", failed.BadNodes[0]+" ") {
		t.Errorf("the first job ended with %d and blames %v, the second with %d on %v", failed.Code,
			failed.BadNodes, again.Code, again.Hosts)
	}
}

// TestServicesAsShown checks that the services and sandboxes of docs/services.md start, and the
// driver after them.
func TestServicesAsShown(t *testing.T) {
	bed := claim(t, fewNodes)
	for _, tc := range []struct{ name, first, ready string }{
		{"in one step", `srun --ntasks-per-node=1 bringupd \`, "0002.sandbox"},
		{"a sandbox in a step of its own", `bringupd --dry-run --roles \`, "0002.i0002.g0.ready"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := bed.place(t)
			bed.makeDir(t, filepath.Join(dir, "examples"))
			copyFile(t, "../../examples/hello.sh", filepath.Join(dir, "examples"))
			script := "#!/bin/bash\ncd " + dir + "\nPATH=" + beds.bin() + ":$PATH\n" +
				snippet(t, "services.md", tc.first) + "wait\n"
			if out := bed.batch(t, script, "-N", "3", "--ntasks-per-node=1"); !strings.Contains(out,
				"hello from the driver on n") ||
				!strings.Contains(out, tc.ready) {
				t.Errorf("the job said %q", out)
			}
		})
	}
}
