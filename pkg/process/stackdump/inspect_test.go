package stackdump

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	if (bind(server, (void *)&at, sizeof at) || listen(server, 1) || getsockname(server, (void *)&at, &length)) return 1;
	if (argc > 1) { connect(client, (void *)&at, sizeof at); recv(client, &byte, 1, 0); }
	accept(server, 0, 0);
	return 2;
}`

// TestLook verifies that real processes are inspected correctly.
func TestLook(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) int
		want  Process // without the fields that differ between processes
		on    string  // contained in On
	}{
		{"asleep", func(t *testing.T) int { return begin(t, "sleep", "3600") }, Process{State: "S", Call: "clock_nanosleep"}, ""},
		{"reads a pipe", func(t *testing.T) int { return begin(t, "cat") }, Process{State: "S", Call: "read"}, "a pipe"},
		{"waits for a child", func(t *testing.T) int { return begin(t, "sh", "-c", "sleep 3600; :") }, Process{State: "S", Call: "wait4"}, ""},
		{"spins", func(t *testing.T) int { return begin(t, "sh", "-c", "while :; do :; done") }, Process{State: "R"}, ""},
		{"stopped", func(t *testing.T) int {
			pid := begin(t, "sleep", "3600")
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return pid
		}, Process{State: "T"}, ""},
		{"in D state", func(t *testing.T) int { return begin(t, compiled(t, waitsInVfork)) }, Process{State: "D", Call: "vfork"}, ""},
		{"accepts", func(t *testing.T) int { return begin(t, compiled(t, listens)) }, Process{State: "S", Call: "accept"}, "connections to 127.0.0.1:"},
		{"hears nothing of its peer", func(t *testing.T) int { return begin(t, compiled(t, listens), "connect") },
			Process{State: "S", Call: "recvfrom"}, "127.0.0.1:"},
		{"opens a pipe that nobody writes", func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "pipe")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return begin(t, "cat", path)
		}, Process{State: "S", Call: "openat"}, ""},
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
		}, Process{State: "S", Call: "flock"}, "/lock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pid := tc.start(t)
			for deadline := time.Now().Add(ceiling); ; time.Sleep(5 * time.Millisecond) {
				got := procRoot("/proc").inspectProcess(t.Context(), pid, nil)
				if got.PID == pid && got.State == tc.want.State && (got.Call == tc.want.Call || tc.want.Call == "") && strings.Contains(got.On, tc.on) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("it is seen as %+v, want %+v on %q", got, tc.want, tc.on)
				}
			}
		})
	}
}

// TestLookHangs verifies that a file in /proc that hangs, as may happen if the process's file
// system hangs, is abandoned.
func TestLookHangs(t *testing.T) {
	dir := t.TempDir()
	task := filepath.Join(dir, "7", "task", "7")
	if err := os.MkdirAll(task, 0o700); err != nil {
		t.Fatal(err)
	}
	var hung []string
	for _, name := range []string{"syscall", "wchan"} {
		path := filepath.Join(task, name)
		if err := unix.Mkfifo(path, 0o600); err != nil { // opening it waits for a writer
			t.Fatal(err)
		}
		hung = append(hung, path)
	}
	if err := os.WriteFile(filepath.Join(task, "stat"), []byte("7 (python3) D 1 7 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := procRoot(dir).inspectProcess(ctx, 7, nil)
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
	if err := os.Mkdir(filepath.Join(dir, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"tcp": `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7529 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0000000000000000 100 0 0 10 0
   1: 0100007F:7529 0300000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:C352 0300000A:7529 02 00000001:00000000 01:00000000 00000000     0        0 13 1 0000000000000000 20 4 30 10 -1
`,
		"tcp6": `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1
   1: 0000000000000000FFFF00000100007F:0016 0000000000000000FFFF00000200000A:C001 01 00000000:00000000 00:00000000 00000000     0        0 15 1
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "net", name), []byte(text), 0o600); err != nil {
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
	dir := t.TempDir()
	task := filepath.Join(dir, "7", "task", "7")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(task, 0o700), os.WriteFile(filepath.Join(task, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "7 (app) D 1 7 7")
	write("schedstat", "100 5 3")
	waiting := procRoot(dir).waitingThreads(t.Context(), 7)
	if p := procRoot(dir).inspectProcess(t.Context(), 7, waiting); !p.isStuck || p.State != stateStuck {
		t.Errorf("it is %+v", p)
	}
	write("schedstat", "100 5 4")
	if p := procRoot(dir).inspectProcess(t.Context(), 7, waiting); p.isStuck {
		t.Errorf("it has run: %+v", p)
	}
	write("stat", "7 (app) S 1 7 7")
	if p := procRoot(dir).inspectProcess(t.Context(), 7, waiting); p.isStuck || len(procRoot(dir).waitingThreads(t.Context(), 7)) > 0 {
		t.Error("it is not stuck")
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
			return s.Process.Name == "cat" && s.Process.Call == "read" && s.Processes == 2 && s.Output.Bytes == 7 && len(s.Waits) == 1
		},
		"rank 1": func(s ChildReport) bool { return s.Process.Cores > 0.05 && s.Cores > 0.05 && s.Process.PID != s.PID },
		"rank 2": func(s ChildReport) bool { return s.Process.State == "T" && s.Process.PID != s.PID },
		"rank 3": func(s ChildReport) bool { return s.Process == nil && strings.Contains(s.Problem, "cannot see process") },
		"rank 4": func(s ChildReport) bool { return s.Ended == "exit code 0" && s.Process == nil },
	}
	node := NodeInspection{Children: children, Duration: 300 * time.Millisecond, ListWaits: func(context.Context) ([]Wait, error) {
		return []Wait{{PID: children[0].PID, Kind: "fence", Name: "a"}, {PID: 1, Kind: "get", Name: "b"}}, nil
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
	c := func(pid, parent int, state, call string, cores, still float64) Process {
		return Process{PID: pid, State: state, Call: call, Cores: cores, parent: parent, isStuck: state == "D" && still > 1}
	}
	for _, tc := range []struct {
		name   string
		family []Process
		want   int
	}{
		{"alone", []Process{c(1, 0, "S", callWait4, 0, 0)}, 1},
		{"a shell and its program", []Process{c(1, 0, "S", callWait4, 0, 0), c(2, 1, "S", "futex", 0, 9)}, 2},
		{"the nearest of many that wait", []Process{c(1, 0, "S", callWait4, 0, 0), c(2, 1, "S", "futex", 0, 9), c(3, 2, "S", "read", 0, 9)}, 2},
		{"the busiest", []Process{c(1, 0, "S", "futex", 0, 0), c(2, 1, "R", "", 0.7, 0), c(3, 1, "R", "", 0.9, 0)}, 3},
		{"one that is stuck", []Process{c(1, 0, "R", "", 1, 0), c(2, 1, "D", "fsync", 0, 30)}, 2},
		{"not one that a disk keeps for a moment", []Process{c(1, 0, "S", "futex", 0, 0), c(2, 1, "D", "read", 0, 0.1)}, 1},
		{"not a parent that waits in vfork", []Process{c(1, 0, "D", "vfork", 0, 9), c(2, 1, "S", "read", 0, 9)}, 2},
		{"one that is stopped", []Process{c(1, 0, "S", "futex", 0, 0), c(2, 1, "T", "", 0, 9)}, 2},
		{"none that has gone", []Process{c(1, 0, "", "", 0, 0), c(2, 1, "S", "read", 0, 0)}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := mostSignificant(tc.family); got == nil || got.PID != tc.want {
				t.Errorf("it is %+v, want process %d", got, tc.want)
			}
		})
	}
	if got := mostSignificant(nil); got != nil {
		t.Errorf("of nobody it is %+v", got)
	}
}

func TestCores(t *testing.T) {
	m := func(pid int, start uint64, used, waited time.Duration) process.FamilyMember {
		return process.FamilyMember{PID: pid, Start: start, CPUTime: used, ReapedCPUTime: waited}
	}
	for _, tc := range []struct {
		name          string
		first, second []process.FamilyMember
		all           float64
		each          []float64
	}{
		{"works", []process.FamilyMember{m(1, 1, time.Second, 0)}, []process.FamilyMember{m(1, 1, 2*time.Second, 0)}, 0.5, []float64{0.5}},
		{"a child has ended", []process.FamilyMember{m(1, 1, 0, 0), m(2, 2, 8*time.Second, 0)}, []process.FamilyMember{m(1, 1, 0, 9*time.Second)}, 0.5, []float64{0}},
		{"a child has begun", []process.FamilyMember{m(1, 1, 0, 0)}, []process.FamilyMember{m(1, 1, 0, 0), m(2, 2, time.Second, 0)}, 0.5, []float64{0, 0.5}},
		{"another with its number", []process.FamilyMember{m(2, 2, 8*time.Second, 0)}, []process.FamilyMember{m(2, 3, time.Second, 0)}, 0, []float64{0.5}},
		{"gone", []process.FamilyMember{m(1, 1, time.Second, 0)}, nil, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all, family := coresUsed(tc.first, tc.second, 2*time.Second)
			var each []float64
			for _, member := range family {
				each = append(each, member.cores)
			}
			if all != tc.all || len(each) != len(tc.each) || len(each) > 0 && each[len(each)-1] != tc.each[len(each)-1] {
				t.Errorf("%g cores, by process %g; want %g, %g", all, each, tc.all, tc.each)
			}
		})
	}
}

// TestCallByWchan verifies that, if Yama hides the number of the system call, the name of the
// kernel function that waits identifies it.
func TestCallByWchan(t *testing.T) {
	for wchan, want := range map[string]string{"futex_do_wait": "futex", "hrtimer_nanosleep": "nanosleep", "anon_pipe_read": "read", "rpc_wait_bit": ""} {
		dir := t.TempDir()
		task := filepath.Join(dir, "7", "task", "7")
		if err := os.MkdirAll(task, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": "7 (app) S 1 7 7", "wchan": wchan} {
			if err := os.WriteFile(filepath.Join(task, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := procRoot(dir).inspectProcess(t.Context(), 7, nil); got.Call != want || got.Wchan != wchan || got.Problem == "" {
			t.Errorf("in %s it is seen as %+v, want %q", wchan, got, want)
		}
	}
}
