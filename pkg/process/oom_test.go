package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestOOMOfAChild verifies that a lack of memory explains an exit that was not requested, and no
// other.
func TestOOMOfAChild(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		stop   bool
		kills  int
	}{
		{"killed", "kill -KILL $$", false, 1},
		{"failed", "exit 1", false, 1},
		{"well", "exit 0", false, 0},
		{"asked to end", "exec sleep " + nap(), true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cgroup := Cgroup{Levels: []string{t.TempDir()}, CounterFile: "memory.events"}
			events := filepath.Join(cgroup.Levels[0], cgroup.CounterFile)
			write(t, events, "oom_kill 4\n", 0o600)
			s := newSupervisor(t)
			s.findMemory = func() Cgroup { return cgroup }
			c := start(t, s, shell("until grep -qx 'oom_kill 5' "+events+"; do sleep 0.01; done; "+tc.script))
			write(t, events, "oom_kill 5\n", 0o600)
			if tc.stop {
				until(t, "count that was seen", func() (bool, any) {
					p, err := readStat(c.PID())
					return p.name == "sleep", []any{p, err}
				})
				c.Stop(t.Context(), 0, unix.SIGKILL)
			}
			if exit := finished(t, c); exit.OOM.Kills != tc.kills || exit.Requested != tc.stop {
				t.Errorf("%#v, want %d kills, asked %v", exit, tc.kills, tc.stop)
			}
		})
	}
}

// TestRealOOM makes the kernel kill a child for lack of memory, in a cgroup of this machine's own
// version that has a limit. Without the permission to create one, only the recorded trees are
// tested; root has it, and CI runs as root.
func TestRealOOM(t *testing.T) {
	group := FindMemoryCgroup("/")
	if len(group.Levels) == 0 {
		t.Fatal("cannot find the memory cgroup of this process")
	}
	const limit = 256 << 20
	dir := boundedGroup(t, group, limit)
	for _, tc := range []struct{ name, script, says string }{
		{"the child itself", "exec dd if=/dev/zero of=/dev/null bs=1G count=1", "killed by SIGKILL: the kernel has ended 1 process of this cgroup"},
		{"a child's child", "dd if=/dev/zero of=/dev/null bs=1G count=1", "exit code 137 (killed by SIGKILL): the kernel has ended 1 process"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			daemon := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir, self, tc.script+"; exit $?")
			daemon.Env = append(os.Environ(), helperVariable+"=exit")
			daemon.Stderr = os.Stderr
			out, err := daemon.Output()
			if err != nil {
				t.Fatalf("the stand-in daemon: %v", err)
			}
			var said struct {
				Text string
				OOM  OOMInfo
			}
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatalf("%v: %q", err, out)
			}
			if want := (OOMInfo{Kills: 1, Limit: limit, Cgroup: dir}); said.OOM != want || !strings.HasPrefix(said.Text, tc.says) {
				t.Errorf("%s: %+v, want %s: %+v", said.Text, said.OOM, tc.says, want)
			}
		})
	}
}

// boundedGroup creates a cgroup with a limit for the duration of a test.
func boundedGroup(t *testing.T, group Cgroup, limit int) string {
	t.Helper()
	top := group.Levels[len(group.Levels)-1]
	dir := filepath.Join(top, fmt.Sprintf("bringupd-test-%d", os.Getpid()))
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		unprivileged(t, "cannot make a memory cgroup: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		until(t, "the cgroup removed", func() (bool, any) {
			err := os.Remove(dir)
			return err == nil, err
		})
	})
	if err := os.WriteFile(filepath.Join(dir, group.LimitFile), fmt.Appendln(nil, limit), 0o600); errors.Is(err, fs.ErrPermission) {
		unprivileged(t, "cannot bound a memory cgroup, as %s does not hand the controller down: %v", top, err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unprivileged skips a test that requires root; if root runs the test, it fails instead.
func unprivileged(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tellExit is a daemon that starts one child and prints how it ended.
func tellExit() int {
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := s.Start(context.Background(), Spec{Name: "child", Argv: []string{"/bin/sh", "-c", os.Args[1]}, Env: childEnv()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-c.Done()
	exit := c.Exit()
	if err := s.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"Text": exit.String(), "OOM": exit.OOM})
	return 0
}
