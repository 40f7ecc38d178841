//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestTheDriversCodeIsTheJobs checks that the job has the driver's exit code, or 126 or 127.
func TestTheDriversCodeIsTheJobs(t *testing.T) {
	bed := claim(t, nodes)
	for _, tc := range []struct {
		name   string
		driver []string
		code   int
	}{
		{"success", []string{"true"}, 0},
		{"failure", []string{"sh", "-c", "exit 42"}, 42},
		{"a signal", []string{"sh", "-c", "kill -9 $$"}, 137},
		{"not found", []string{"no-such-driver"}, 127},
		{"not executable", []string{"/etc/passwd"}, 126},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := bed.run(t, launch{nodes: nodes, driver: tc.driver})
			j.wantCode(tc.code)
			if got := j.result().Code; got != tc.code {
				t.Errorf("result.json has code %d, want %d", got, tc.code)
			}
		})
	}
}

// TestStandardOutputIsTheDrivers checks that the driver's two streams arrive unchanged.
func TestStandardOutputIsTheDrivers(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.run(t, launch{nodes: 3,
		driver: []string{"sh", "-c", `printf 'no newline'; echo "$BRINGUPD_HOSTS" >&2`}})
	j.wantCode(0)
	if got := j.stdout.String(); got != "no newline" {
		t.Errorf("standard output is %q", got)
	}
	if want := "n0,n1,n2\n"; !strings.Contains(j.stderr.String(), want) {
		t.Errorf("standard error lacks %q: %s", want, &j.stderr)
	}
}

// TestOneNode checks a job on one node.
func TestOneNode(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.run(t, launch{nodes: 1, driver: []string{"true"}}).wantCode(0)
}

// TestASecondStepSeesNothingOfTheFirst checks that a second srun in the same allocation does not
// see the state of the first.
func TestASecondStepSeesNothingOfTheFirst(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	script := "#!/bin/sh\n" +
		"srun --wait=0 " + program + " --log-dir=" + logs + " -- sh -c 'exit 3'\n" +
		"echo first: $?\n" +
		"srun --wait=0 " + program + " --log-dir=" + logs +
		" -- sh -c 'ls $BRINGUPD_RUN_DIR/nodes | grep -c joined'\n" +
		"echo second: $?\n"
	out := bed.batch(t, script, "-N", "4", "--ntasks-per-node=1")
	if want := "first: 3\n4\nsecond: 0\n"; out != want {
		t.Errorf("the job wrote %q, want %q", out, want)
	}
	var runs []string
	entries, err := os.ReadDir(logs)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			runs = append(runs, entry.Name())
		}
	}
	if len(runs) != 2 {
		t.Errorf("there are runs %v, want two", runs)
	}
}

// TestARequeueSeesNothingOfTheFirst checks that a requeued job does not see the state of its first
// run.
func TestARequeueSeesNothingOfTheFirst(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	script := "#!/bin/sh\n" +
		"srun --wait=0 " + program + " --log-dir=" + logs +
		" -- sh -c 'echo run $BRINGUPD_RUN; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 1000'\n" +
		"echo ended: $?\n"
	b := bed.submit(t, script, "-N", "4", "--ntasks-per-node=1", "--requeue", "--open-mode=append")
	first := filepath.Join(logs, b.id+".0")
	eventually(t, func() string {
		return missing(filepath.Join(first, signal.ControlDir, signal.NameGateOpen))
	})
	if err := bed.Requeue(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	out := b.wait("ended: 0\n")
	if want := "run " + b.id + ".0-r1\n"; !strings.Contains(out, want) {
		t.Errorf("the job wrote %q, want %q in it", out, want)
	}
	var rec record.Job
	readJSON(t, filepath.Join(logs, b.id+".0-r1", signal.ControlDir, signal.NameJob), &rec)
	if rec.Run != b.id+".0-r1" {
		t.Errorf("the second run's record is of %s", rec.Run)
	}
}

func missing(path string) string {
	if _, err := os.Lstat(path); err != nil {
		return err.Error()
	}
	return ""
}
