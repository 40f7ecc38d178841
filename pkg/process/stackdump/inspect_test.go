package stackdump

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
)

// begin starts a program that is killed with its whole session at the test's end. Its standard
// input never contains data.
func begin(t *testing.T, argv ...string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// compiled compiles a C source and returns the program.
func compiled(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "planted.c"), filepath.Join(dir, "planted")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O0", "-pthread", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// waitsInVfork makes its parent wait in D state, as it would for a disk.
const waitsInVfork = `#include <unistd.h>
int main(void) { if (vfork() == 0) { sleep(3600); _exit(0); } return 0; }`

// listens waits for connections to port 29993 of the loopback, and connects.
const listens = `#include <arpa/inet.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
	struct sockaddr_in at = {.sin_family = AF_INET};
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof at;
	char byte;
	if (bind(server, (void *)&at, sizeof at) || listen(server, 1)) return 1;
	if (getsockname(server, (void *)&at, &length)) return 1;
	if (argc > 1) { connect(client, (void *)&at, sizeof at); recv(client, &byte, 1, 0); }
	accept(server, 0, 0);
	return 2;
}`

// TestLook verifies that real processes are inspected correctly.
func TestLook(t *testing.T) {
	run := func(argv ...string) func(*testing.T) int { return func(t *testing.T) int { return begin(t, argv...) } }
	build := func(source string, args ...string) func(*testing.T) int {
		return func(t *testing.T) int { return begin(t, append([]string{compiled(t, source)}, args...)...) }
	}
	for _, tc := range []struct {
		name            string
		start           func(t *testing.T) int
		state, call, on string // call may be empty; on is a part of it
	}{
		{"asleep", run("sleep", "3600"), "S", "clock_nanosleep", ""},
		{"reads a pipe", run("cat"), "S", "read", "a pipe"},
		{"waits for a child", run("sh", "-c", "sleep 3600; :"), "S", "wait4", ""},
		{"spins", run("sh", "-c", "while :; do :; done"), "R", "", ""},
		{"stopped", run("sh", "-c", "kill -STOP $$; exit"), "T", "", ""},
		{"in D state", build(waitsInVfork), "D", "vfork", ""},
		{"accepts", build(listens), "S", "accept", "connections to 127.0.0.1:"},
		{"hears nothing of its peer", build(listens, "connect"), "S", "recvfrom", "127.0.0.1:"},
		{"opens a pipe that nobody writes", func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "pipe")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return begin(t, "cat", path)
		}, "S", "openat", ""},
		{"waits for a lock", func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "lock")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
			if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			return begin(t, "flock", path, "true")
		}, "S", "flock", "/lock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pid := tc.start(t)
			for deadline := time.Now().Add(ceiling); ; time.Sleep(5 * time.Millisecond) {
				got := procRoot("/proc").inspectProcess(t.Context(), pid, nil)
				if got.PID == pid && got.State == tc.state && (got.Call == tc.call || tc.call == "") &&
					strings.Contains(got.On, tc.on) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("it is seen as %+v, want %s in %q on %q", got, tc.state, tc.call, tc.on)
				}
			}
		})
	}
}

// fakeTask writes files of the only thread of process 7 below a new root.
func fakeTask(t *testing.T, files map[string]string) procRoot {
	t.Helper()
	dir := t.TempDir()
	task := filepath.Join(dir, "7", "task", "7")
	err := os.MkdirAll(task, 0o700)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(task, name), []byte(text), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return procRoot(dir)
}

// TestLookHangs verifies that a file in /proc that hangs, as may happen if the process's file
// system hangs, is abandoned.
func TestLookHangs(t *testing.T) {
	root := fakeTask(t, map[string]string{"stat": "7 (python3) D 1 7 7"})
	var hung []string
	for _, name := range []string{"syscall", "wchan"} {
		path := filepath.Join(string(root), "7", "task", "7", name)
		if err := unix.Mkfifo(path, 0o600); err != nil { // opening it waits for a writer
			t.Fatal(err)
		}
		hung = append(hung, path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := root.inspectProcess(ctx, 7, nil)
	if got.State != "D" || got.Name != "python3" || !strings.Contains(got.Problem, "hangs") {
		t.Errorf("it is seen as %+v", got)
	}
	for _, path := range hung { // releases the abandoned readers
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
}

func TestFindSocket(t *testing.T) {
	dir := t.TempDir()
	const rest = " 00000000:00000000 00:00000000 00000000     0        0 "
	const any6 = "00000000000000000000000000000000"
	for name, text := range map[string]string{
		"tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
			"   0: 0100007F:7529 00000000:0000 0A" + rest + "11 1\n" +
			"   1: 0100007F:7529 0300000A:C350 01" + rest + "12 1\n" +
			"   2: 0100007F:C352 0300000A:7529 02" + rest + "13 1\n",
		"tcp6": "  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n" +
			"   0: " + any6 + ":0016 " + any6 + ":0000 0A" + rest + "14 1\n" +
			"   1: 0000000000000000FFFF00000100007F:0016 0000000000000000FFFF00000200000A:C001 01" + rest + "15 1\n",
	} {
		path := filepath.Join(dir, "net", name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	for inode, want := range map[uint64]string{
		11: "connections to 127.0.0.1:29993", 12: "10.0.0.3:50000", 13: "10.0.0.3:29993, which has not answered yet",
		14: "connections to [::]:22", 15: "10.0.0.2:49153", 1: "",
	} {
		if got := findSocket(dir, inode); got != want {
			t.Errorf("%d is %q, want %q", inode, got, want)
		}
	}
}

// TestStuck verifies that a thread that waits uninterruptibly is stuck if it has not run since.
func TestStuck(t *testing.T) {
	waiting := map[string]string{"stat": "7 (app) D 1 7 7", "schedstat": "100 5 3"}
	before := fakeTask(t, waiting).waitingThreads(t.Context(), 7)
	for name, tc := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"it waits":              {waiting, true},
		"it has run":            {map[string]string{"stat": "7 (app) D 1 7 7", "schedstat": "100 5 4"}, false},
		"it waits no longer so": {map[string]string{"stat": "7 (app) S 1 7 7", "schedstat": "100 5 3"}, false},
	} {
		if p := fakeTask(t, tc.files).inspectProcess(t.Context(), 7, before); p.isStuck != tc.want {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if len(before) != 1 {
		t.Errorf("%v wait", before)
	}
}

// TestNodeLook verifies that the most informative process of a family is shown: here each child is
// a shell.
func TestNodeLook(t *testing.T) {
	stopped := begin(t, "sh", "-c", "sleep 3600 & kill -STOP $!; wait")
	children := []Child{
		{Name: "rank 0", PID: begin(t, "sh", "-c", "cat; :"), Output: Output{Bytes: 7, AgoS: 3}},
		{Name: "rank 1", PID: begin(t, "sh", "-c", "sh -c 'while :; do :; done'; :")},
		{Name: "rank 2", PID: stopped},
		{Name: "rank 3", PID: 1 << 30},
		{Name: "rank 4", PID: 1, Ended: "exit code 0"},
	}
	want := map[string]func(ChildReport) bool{
		"rank 0": func(s ChildReport) bool {
			return s.Process.Name == "cat" && s.Process.Call == "read" && s.Processes == 2 &&
				s.Output.Bytes == 7 && len(s.Waits) == 1
		},
		"rank 1": func(s ChildReport) bool {
			return s.Process.Cores > 0.05 && s.Cores > 0.05 &&
				s.Process.PID != s.PID
		},
		"rank 2": func(s ChildReport) bool { return s.Process.State == "T" && s.Process.PID != s.PID },
		"rank 3": func(s ChildReport) bool {
			return s.Process == nil &&
				strings.Contains(s.Problem, "cannot see process")
		},
		"rank 4": func(s ChildReport) bool { return s.Ended == "exit code 0" && s.Process == nil },
	}
	node := NodeInspection{Children: children, Duration: 300 * time.Millisecond,
		ListWaits: func(context.Context) ([]Wait, error) {
			return []Wait{{Child: "rank 0", Kind: "fence", Name: "a"}, {Child: "rank 9", Kind: "get", Name: "b"}}, nil
		}}
	for deadline := time.Now().Add(ceiling); ; {
		var wrong []ChildReport
		told := 0
		node.InspectChildren(t.Context(), func(seen ChildReport) {
			if told++; !want[seen.Child](seen) {
				wrong = append(wrong, seen)
			}
		})
		if told == len(want) && len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d were told; not as they are: %+v", told, wrong)
		}
	}
}

func TestTelling(t *testing.T) {
	// Each process has a number, its parent's, its state, its call, and the cores that it uses. One in
	// state D! is stuck.
	parse := func(text string) (family []Process) {
		for line := range strings.SplitSeq(text, "; ") {
			var p Process
			if _, err := fmt.Sscan(line, &p.PID, &p.parent, &p.State, &p.Call, &p.Cores); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			p.State, p.isStuck = strings.CutSuffix(p.State, "!")
			p.State = strings.Trim(p.State, "-")
			family = append(family, p)
		}
		return family
	}
	for _, tc := range []struct {
		name, family string
		want         int
	}{
		{"alone", "1 0 S wait4 0", 1},
		{"a shell and its program", "1 0 S wait4 0; 2 1 S futex 0", 2},
		{"the nearest of many that wait", "1 0 S wait4 0; 2 1 S futex 0; 3 2 S read 0", 2},
		{"the busiest", "1 0 S futex 0; 2 1 R - 0.7; 3 1 R - 0.9", 3},
		{"one that is stuck", "1 0 R - 1; 2 1 D! fsync 0", 2},
		{"not one that a disk keeps for a moment", "1 0 S futex 0; 2 1 D read 0", 1},
		{"not a parent that waits in vfork", "1 0 D! vfork 0; 2 1 S read 0", 2},
		{"one that is stopped", "1 0 S futex 0; 2 1 T - 0", 2},
		{"none that has gone", "1 0 - - 0; 2 1 S read 0", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := mostSignificant(parse(tc.family)); got == nil || got.PID != tc.want {
				t.Errorf("it is %+v, want process %d", got, tc.want)
			}
		})
	}
	if got := mostSignificant(nil); got != nil {
		t.Errorf("of nobody it is %+v", got)
	}
}

func TestCores(t *testing.T) {
	type family = []process.FamilyMember
	m := func(pid int, start uint64, used, waited int) process.FamilyMember {
		return process.FamilyMember{PID: pid, Start: start, CPUTime: time.Duration(used) * time.Second,
			ReapedCPUTime: time.Duration(waited) * time.Second}
	}
	for _, tc := range []struct {
		name          string
		first, second family
		all           float64
		each          []float64
	}{
		{"works", family{m(1, 1, 1, 0)}, family{m(1, 1, 2, 0)}, 0.5, []float64{0.5}},
		{"a child has ended", family{m(1, 1, 0, 0), m(2, 2, 8, 0)}, family{m(1, 1, 0, 9)}, 0.5, []float64{0}},
		{"a child has begun", family{m(1, 1, 0, 0)}, family{m(1, 1, 0, 0), m(2, 2, 1, 0)}, 0.5, []float64{0, 0.5}},
		{"another with its number", family{m(2, 2, 8, 0)}, family{m(2, 3, 1, 0)}, 0, []float64{0.5}},
		{"gone", family{m(1, 1, 1, 0)}, nil, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all, family := coresUsed(tc.first, tc.second, 2*time.Second)
			var each []float64
			for _, member := range family {
				each = append(each, member.cores)
			}
			if all != tc.all || !slices.Equal(each, tc.each) {
				t.Errorf("%g cores, by process %g; want %g, %g", all, each, tc.all, tc.each)
			}
		})
	}
}

// TestCallByWchan verifies that, if Yama hides the number of the system call, the name of the
// kernel function that waits identifies it.
func TestCallByWchan(t *testing.T) {
	for wchan, want := range map[string]string{
		"futex_do_wait": "futex", "hrtimer_nanosleep": "nanosleep", "anon_pipe_read": "read", "rpc_wait_bit": "",
	} {
		root := fakeTask(t, map[string]string{"stat": "7 (app) S 1 7 7", "wchan": wchan})
		if got := root.inspectProcess(t.Context(), 7, nil); got.Call != want ||
			got.Wchan != wchan || got.Problem == "" {
			t.Errorf("in %s it is seen as %+v, want %q", wchan, got, want)
		}
	}
}
