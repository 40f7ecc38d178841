package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// endedRun creates the run directory of an ended run, named after job, in bringupd-logs of a new
// directory. Its driver's log contains the directory's path.
func endedRun(t *testing.T, job string) string {
	t.Helper()
	made := runDir(t, 2, -1)
	dir := filepath.Join(filepath.Dir(filepath.Dir(made)), "bringupd-logs", job)
	if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, dir); err != nil {
		t.Fatal(err)
	}
	touch(t, dir, signal.ControlDir, signal.NameOrderlyEnd)
	writeFile(t, filepath.Join(dir, signal.LogsDir, "driver.log"), "driven in "+dir+"\n")
	ends(t, dir, 0)
	return dir
}

// TestWhichRun verifies that all subcommands that inspect a run find the same one. Each prints its
// path: those that need a live run do so in the refusal.
func TestWhichRun(t *testing.T) {
	one, other := endedRun(t, "4711.0"), endedRun(t, "4712.0")
	logs := filepath.Dir(one)
	for _, way := range []struct {
		name string
		env  []string
		args []string
	}{
		{"its directory", nil, []string{one}},
		{"its directory, within another", []string{"BRINGUPD_RUN_DIR=" + other}, []string{one}},
		{"its log directory, within another", []string{"BRINGUPD_RUN_DIR=" + other}, []string{logs}},
		{"within it", []string{"BRINGUPD_RUN_DIR=" + one}, nil},
		{"within it, where a variable leads elsewhere",
			[]string{"BRINGUPD_RUN_DIR=" + one, "BRINGUPD_LOG_DIR=" + filepath.Dir(other)}, nil},
		{"a name beside that which it is in", []string{"BRINGUPD_RUN_DIR=" +
			filepath.Join(logs, "4710.0")}, []string{"4711.0"}},
		{"a name, by a variable", []string{"BRINGUPD_LOG_DIR=" + logs}, []string{"4711.0"}},
		{"a name, by a flag behind it", []string{"BRINGUPD_RUN_DIR=" + other}, []string{"4711.0", "--log-dir", logs}},
		{"a job", []string{"BRINGUPD_LOG_DIR=" + logs}, []string{"4711"}},
		{"a job, by its log directory", nil, []string{filepath.Join(logs, "4711")}},
		{"a step of Slurm's own", []string{"BRINGUPD_LOG_DIR=" + logs}, []string{"4711.batch"}},
		{"a component of a job", []string{"BRINGUPD_LOG_DIR=" + logs}, []string{"4711+1"}},
		{"a name where the job was submitted", []string{"SLURM_SUBMIT_DIR=" + filepath.Dir(logs)}, []string{"4711.0"}},
		{"the newest of a flag's log directory", []string{"BRINGUPD_RUN_DIR=" + other}, []string{"--log-dir=" + logs}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			touch(t, ".", "", "4711.0") // as Slurm's own output may be named
			for _, by := range [][]string{{"status", "--json"}, {"report", "--format=json"},
				{"logs"}, {"exec"}, {"stop"}, {"why"}} {
				args := append(append([]string{}, by...), way.args...)
				if by[0] == "exec" {
					args = append(args, "--", "true")
				}
				if got := call(t, way.env, args...); !strings.Contains(got.out+got.err, one) ||
					strings.Contains(got.out+got.err, other) {
					t.Errorf("%v means something else: code %d\nstdout: %.300s\nstderr: %s", args,
						got.code, got.out, got.err)
				}
			}
		})
	}
	newest := []string{"SLURM_SUBMIT_DIR=" + filepath.Dir(logs)}
	if got := call(t, newest, "logs"); got.out != "driven in "+one+"\n" {
		t.Errorf("the newest where the job was submitted: %+v", got)
	}
	refused(t, call(t, newest, "stop"), 64, "cannot select a run to stop")
}

// TestListAndWait lists the runs of a log directory, and waits for one that has ended.
func TestListAndWait(t *testing.T) {
	dir := endedRun(t, "4711.0")
	env := []string{"BRINGUPD_LOG_DIR=" + filepath.Dir(dir)}
	for _, args := range [][]string{{"list"}, {"list", filepath.Dir(dir)}, {"list", "4711.batch"}} {
		if got := call(t, env, args...); got.code != 0 || !strings.HasPrefix(got.out, "RUN ") ||
			!strings.Contains(got.out, "\n4711.0  finished  2 ") {
			t.Errorf("%v ended with %d: %q, %q", args, got.code, got.out, got.err)
		}
	}
	if got := call(t, env, "list", "--json"); got.code != 0 ||
		!strings.Contains(got.out, `"run": "4711.0"`) || !strings.Contains(got.out, `"code": 0`) {
		t.Errorf("as JSON: %d: %q, %q", got.code, got.out, got.err)
	}
	if got := call(t, nil, "list", t.TempDir()); got.code != 0 || got.out != "" ||
		!strings.Contains(got.err, "there are no runs in ") {
		t.Errorf("an empty directory: %d: %q, %q", got.code, got.out, got.err)
	}
	refused(t, call(t, nil, "list", filepath.Join(dir, "none")), 64,
		"cannot find a run in "+filepath.Join(dir, "none")+": it does not exist")
	refused(t, call(t, nil, "list", "a", "b"), 64, "2 directories")
	refused(t, call(t, env, "list", "4710"), 64, "cannot find run 4710 in "+filepath.Dir(dir))
	if got := call(t, env, "wait", "4711"); got.code != 0 || got.out != "" ||
		!strings.Contains(got.err, "run 4711.0: code 0") {
		t.Errorf("the wait: %d: %q, %q", got.code, got.out, got.err)
	}
	if got := call(t, env, "wait", "4711", "--json"); got.code != 0 ||
		!strings.Contains(got.out, `"run": "4711.0"`) {
		t.Errorf("the wait with JSON: %d: %q, %q", got.code, got.out, got.err)
	}
	if got := call(t, env, "wait", "4712", "--for=up", "--timeout=1100ms"); got.code != 124 ||
		!strings.Contains(got.err, "waiting for run 4712 in ") {
		t.Errorf("the wait for another: %d: %q, %q", got.code, got.out, got.err)
	}
}

// TestWaitForEndedJob waits for a run that no job will make any more.
func TestWaitForEndedJob(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 10 seconds")
	}
	programs := t.TempDir()
	writeFile(t, filepath.Join(programs, "squeue"), "#!/bin/sh\necho FAILED\n")
	if err := os.Chmod(filepath.Join(programs, "squeue"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	got := call(t, nil, "wait", "4712", "--log-dir="+t.TempDir())
	if got.code != 64 || !strings.Contains(got.err, "and its job has ended (squeue: FAILED)") {
		t.Errorf("it ended with %d: %s", got.code, got.err)
	}
}

// TestNodeOrRun passes one argument that may be a node or a run.
func TestNodeOrRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dir := endedRun(t, "4711.0")
	for node, host := range []string{"n0", "0"} {
		put(t, dir, signal.NodesDir, signal.NodeName(node, 2, record.StateJoined),
			&record.Joined{Header: record.Header{Version: record.FormatVersion, Nonce: "n0",
				NodeIndex: node, Host: host}})
		writeFile(t, filepath.Join(dir, signal.LogsDir, signal.LogName("worker", node, 2)), "worker "+host+"\n")
	}
	logs := "BRINGUPD_LOG_DIR=" + filepath.Dir(dir)
	for _, tc := range []struct {
		args string
		want string
	}{
		{"4711.0", "driven in " + dir},
		{"driver 4711.0", "driven in " + dir},
		{"4711", "driven in " + dir}, // not a node
		{"driver 4711", "driven in " + dir},
		{"1 4711", "worker 0"},
		{"n0", "worker n0"},
		{"n0 4711.0", "worker n0"},
		{"n0 " + dir, "worker n0"},
		{"0", "worker n0"}, // not the host of that name
		{"1", "worker 0"},
		{"1 --raw 4711.0", "worker 0"},
		{"1 4711.0 --raw", "worker 0"},
		{"driver --raw", "driven in " + dir},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.Mkdir("n0", 0o700); err != nil { // not a run
				t.Fatal(err)
			}
			if got := call(t, []string{logs}, append([]string{"logs"},
				strings.Fields(tc.args)...)...); got.code != 0 || !strings.Contains(got.out, tc.want) {
				t.Errorf("code %d, want %q\nstdout: %s\nstderr: %s", got.code, tc.want, got.out, got.err)
			}
		})
	}
	refused(t, call(t, []string{logs}, "logs", "n7"), 64, `no node "n7"`, "a number of 0 to 1")
	refused(t, call(t, []string{logs}, "logs", "2"), 64, `no node "2"`, "a number of 0 to 1")
	for _, args := range [][]string{{"status", "4"}, {"report", "4"}, {"logs", "driver", "4"},
		{"exec", "4", "--", "true"}, {"stop", "4"}, {"why", "4"}} {
		refused(t, call(t, []string{logs}, args...), 64,
			"cannot find run 4 in "+filepath.Dir(dir)+": the newest runs there are 4711.0: give ")
	}
	refused(t, call(t, []string{logs}, "logs", "a/b"), 64, "cannot find run b in ")
	refused(t, call(t, nil, "logs", "n7"), 64, "cannot find run n7 in ")
	refused(t, call(t, []string{logs}, "logs", "1", dir, "more"), 64, "3 arguments")
}
