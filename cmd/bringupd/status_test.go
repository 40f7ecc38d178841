package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// runDir creates the run directory of a job of size nodes in a new log directory, as of a few
// seconds after its start: all nodes have joined, except for late if it is not negative; all are
// checked, and a service has yet to become ready.
func runDir(t testing.TB, size, late int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "logs", "4711.0")
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.LogsDir, signal.EventsDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now().Add(-5 * time.Second)
	header := func(node int) record.Header {
		return record.Header{Version: record.FormatVersion, Nonce: "n0", NodeIndex: node,
			Host: fmt.Sprintf("node%04d", node), WrittenAt: began}
	}
	put(t, dir, signal.ControlDir, signal.NameJob, &record.Job{
		Header: header(0), Run: "4711.0", Size: size, Hosts: fmt.Sprintf("node[0000-%04d]", size-1),
		Plan: &record.Plan{Framework: "none", Driver: "train.py", NodesNeeded: size,
			JoinTimeout: 2 * time.Minute, CheckTimeout: time.Minute},
	})
	put(t, dir, signal.ControlDir, signal.NameHead, &record.Head{Header: header(0)})
	touch(t, dir, signal.ControlDir, "0000.beat.000003")
	events := []string{eventLine(began, "enter", `"phase":"join"`)}
	for node := range size {
		if node == late {
			continue
		}
		put(t, dir, signal.NodesDir, signal.NodeName(node, size, record.StateJoined),
			&record.Joined{Header: header(node)})
		put(t, dir, signal.NodesDir, signal.CheckedName(node, size, 4), &record.Checked{Header: header(node)})
		touch(t, dir, signal.NodesDir, signal.NodeName(node, size, record.StateServiceUp))
		touch(t, dir, signal.NodesDir, signal.NodeName(node, size, "beat.000012"))
		if node > 0 {
			writeFile(t, filepath.Join(dir, signal.EventsDir,
				signal.EventsName("daemon", node, size)), eventLine(began, "enter", `"phase":"join"`))
		}
		for i, state := range []record.State{record.StateJoined, record.StateChecked, record.StateServiceUp} {
			at := began.Add(time.Duration(i+1)*time.Second + time.Duration(node)*time.Microsecond)
			events = append(events, eventLine(at, "reached",
				fmt.Sprintf(`"state":%q,"node_indices":"%d"`, state, node)))
		}
	}
	writeFile(t, filepath.Join(dir, signal.EventsDir, signal.EventsName("daemon", 0, size)), strings.Join(events, ""))
	return dir
}

func eventLine(at time.Time, name, fields string) string {
	return fmt.Sprintf(`{"v":2,"at":%q,"event":%q,%s}`+"\n", at.Format(time.RFC3339Nano), name, fields)
}

func put(t testing.TB, dir, sub, name string, rec record.Record) {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, sub, name), string(data)+"\n")
}

func touch(t testing.TB, dir, sub, name string) { writeFile(t, filepath.Join(dir, sub, name), "") }

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quiet sets the time of the last change in the run directory to since before now.
func quiet(t testing.TB, dir string, since time.Duration) {
	t.Helper()
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		if err := os.Chtimes(filepath.Join(dir, sub), time.Now(), time.Now().Add(-since)); err != nil {
			t.Fatal(err)
		}
	}
}

// ends writes the result.
func ends(t testing.TB, dir string, code int) {
	t.Helper()
	result := &record.Result{Header: record.Header{Version: record.ResultVersion, Nonce: "n0"},
		Run: "4711.0", Size: 2, Code: code, Outcome: "driver", Reason: "the driver has ended",
		RunTimings: record.RunTimings{Duration: time.Second}}
	put(t, dir, "", ".result", result)
	if err := os.Rename(filepath.Join(dir, ".result"), filepath.Join(dir, signal.NameResult)); err != nil {
		t.Fatal(err)
	}
}

func TestStatusCommand(t *testing.T) {
	late := runDir(t, 4, 2)
	up := runDir(t, 4, -1)
	touch(t, up, signal.ControlDir, signal.NameGateOpen)
	silent := runDir(t, 4, -1)
	touch(t, silent, signal.ControlDir, signal.NameGateOpen)
	quiet(t, silent, time.Hour)
	resting := runDir(t, 4, -1)
	touch(t, resting, signal.ControlDir, signal.NameGateOpen)
	put(t, resting, signal.ControlDir, signal.NameJob, &record.Job{
		Header: record.Header{Version: record.FormatVersion, Nonce: "n0", WrittenAt: time.Now()},
		Run:    "4711.0", Size: 4,
		Plan: &record.Plan{Framework: "none", Driver: "train.py",
			NodesNeeded: 4, MaxHeartbeatInterval: 4 * time.Minute},
	})
	quiet(t, resting, 4*time.Minute)
	well, failed := runDir(t, 2, -1), runDir(t, 2, -1)
	ends(t, well, 0)
	ends(t, failed, 3)
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		want string
	}{
		{"on its way", nil, []string{late}, 2,
			"BRINGING UP  4711.0  join: 3/4 ready after 00:NN: waiting for node0002 (join)\n"},
		{"up", nil, []string{up}, 0, "UP  4711.0  4/4 ready"},
		{"no sign of life", nil, []string{silent}, 2, "the daemons may be gone"},
		{"up, and at rest", nil, []string{resting}, 0, "UP  4711.0  4/4 ready"},
		{"ended well", nil, []string{well}, 0, "FINISHED  4711.0  code 0"},
		{"failed", nil, []string{failed}, 1, "FAILED  4711.0  code 3"},
		{"all nodes, by the letter, behind the run", nil, []string{up, "-v"}, 0, "✓ node 3  node0003  ready  ok\n"},
		{"watch what is over", nil, []string{failed, "-w"}, 1, "FAILED"},
		{"JSON", nil, []string{failed, "--json"}, 1, `"state": "failed"`},
		{"JSON of what is watched", nil, []string{failed, "--json", "--watch"}, 1, `"state":"failed"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := call(t, tc.env, append([]string{"status"}, tc.args...)...)
			// The machine may be slow.
			said := regexp.MustCompile(`after 00:\d\d`).ReplaceAllString(got.out, "after 00:NN")
			if got.code != tc.code || !strings.Contains(said, tc.want) || got.err != "" {
				t.Errorf("code %d, want %d with %q\nstdout: %s\nstderr: %s", got.code, tc.code,
					tc.want, got.out, got.err)
			}
		})
	}
	refused(t, call(t, nil, "status", filepath.Join(late, "nothing")), 64, "cannot find run nothing in ")
	refused(t, call(t, nil, "status", t.TempDir()), 64, "cannot find a run")
	refused(t, call(t, nil, "status", "--wach", late), 64, "--watch")
	refused(t, call(t, nil, "status", late, up), 64, "2 runs")
	refused(t, call(t, nil, "status", late, "--timeout=1s"), 64, "bringupd wait")
	refused(t, call(t, nil, "status", "--", "ls"), 64, "driver")
}

// TestStatusWatch watches a run until it is over. A line that does not change is printed once.
func TestStatusWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	forget(t)
	dir := runDir(t, 2, 1)
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	code := make(chan int, 1)
	go func() {
		code <- runMain([]string{"bringupd", "status", "-w", dir}, make(chan os.Signal),
			config.Streams{In: os.Stdin, Out: out, Err: os.Stderr})
	}()
	shows := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(content(t, out.Name()),
			what); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q is not shown:\n%s", what, content(t, out.Name()))
			}
		}
	}
	shows("1/2 ready")
	touch(t, dir, signal.ControlDir, "0000.beat.000004") // a heartbeat is not a change
	put(t, dir, signal.NodesDir, "0001.joined",
		&record.Joined{Header: record.Header{Version: record.FormatVersion, Nonce: "n0",
			NodeIndex: 1, Host: "node0001", WrittenAt: time.Now()}})
	shows("waiting for node0001 (check)")
	ends(t, dir, 7)
	shows("code 7")
	if got := <-code; got != 1 {
		t.Errorf("it ended with %d", got)
	}
	if n := strings.Count(content(t, out.Name()), "1/2 ready"); n > 3 {
		t.Errorf("the same is told %d times:\n%s", n, content(t, out.Name()))
	}
}

// TestStatusCode verifies the code with which a job script ends: that of the run, or the given one.
func TestStatusCode(t *testing.T) {
	running, failed, saved := runDir(t, 2, -1), runDir(t, 2, -1), runDir(t, 2, -1)
	ends(t, failed, 3)
	ends(t, saved, 0)
	for dir, want := range map[string]int{running: 137, failed: 3, saved: 0, t.TempDir(): 137} {
		args := []string{"status", "--code=137", "--log-dir=" + filepath.Dir(dir), "4711"}
		if got := call(t, nil, args...); got.code != want || got.out+got.err != "" {
			t.Errorf("%s: got %+v, want %d", dir, got, want)
		}
	}
}

// TestStatusServe requests the page that the command serves, until a signal ends it.
func TestStatusServe(t *testing.T) {
	command := program(t, "status", "--serve=127.0.0.1:0", runDir(t, 4, 2))
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(strings.TrimSpace(url)) //nolint:noctx // the command ends with the test
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK ||
		!strings.Contains(string(page), "4711.0") || !strings.Contains(string(page), "node0003") {
		t.Errorf("the page is %d, %v: %s", answer.StatusCode, err, page)
	}
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 130 {
		t.Errorf("it has ended with %d, want 130", code)
	}
	for _, args := range [][]string{{"--serve=0.0.0.0:0"}, {"--serve=localhost:9464"},
		{"--serve=:9464"}, {"--serve=127.0.0.1:0", "--json"}} {
		if got := call(t, nil, append([]string{"status"}, args...)...); got.code != 64 {
			t.Errorf("%q ends with %+v", args, got)
		}
	}
}

func TestStatusAwaitsRun(t *testing.T) {
	dir := endedRun(t, "4711.0")
	logs, hidden := filepath.Dir(dir), filepath.Join(filepath.Dir(dir), ".new")
	if err := os.Rename(endedRun(t, "4712.0"), hidden); err != nil {
		t.Fatal(err)
	}
	env := []string{"BRINGUPD_LOG_DIR=" + logs}
	if got := call(t, env, "status", "-w"); got.code != 0 ||
		!strings.Contains(got.err, "run 4711.0 has already ended; to wait for a job") {
		t.Errorf("the newest run, which has ended: %d: %q, %q", got.code, got.out, got.err)
	}
	timer := time.AfterFunc(200*time.Millisecond, func() { _ = os.Rename(hidden, filepath.Join(logs, "4712.0")) })
	defer timer.Stop()
	got := call(t, env, "status", "-w", "4712")
	if want := "waiting for run 4712 in " + logs + ": the newest runs there are 4711.0\n"; got.code != 0 ||
		!strings.Contains(got.out, "FINISHED  4712.0") || !strings.Contains(got.err, want) {
		t.Errorf("after the run has appeared it ended with %d: %q, %q", got.code, got.out, got.err)
	}
}

func TestFlagsFirst(t *testing.T) {
	command := (&invocation{}).statusCommand()
	for args, want := range map[string]string{
		"dir -w":             "-w dir",
		"dir --log-dir x -v": "--log-dir x -v dir",
		"dir --log-dir=x y":  "--log-dir=x dir y",
		"--json dir --wat":   "--json --wat dir",
		"-":                  "-",
		"dir --log-dir":      "--log-dir dir",
		"a b --unknown c":    "--unknown a b c",
	} {
		if got := strings.Join(config.FlagsFirst(command, strings.Fields(args)), " "); got != want {
			t.Errorf("%q becomes %q, not %q", args, got, want)
		}
	}
}
