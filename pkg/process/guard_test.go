package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/test/users"
)

type stray struct {
	name     string
	script   string
	sleepers int
}

// strays are scripts, whose %s is the argument of sleep, with the number of sleeping processes that
// each creates. All scripts run until they are ended.
var strays = []stray{
	{"the child alone", `exec sleep %[1]s`, 1},
	{"in its group", `sleep %[1]s & sleep %[1]s & wait`, 2},
	{"in another group", `timeout 3600 sleep %[1]s & wait`, 1},
	{"forked twice, in its own session", `(setsid sleep %[1]s &) ; exec sleep %[1]s`, 2},
	{"forked twice, the child has gone", `(setsid sleep %[1]s &)`, 1},
	{"without environment, its parent there", `setsid sh -c 'env -i sleep %[1]s; :' & wait`, 1},
	{"without environment, in its own session, its parent there", `sh -c 'env -i setsid sleep %[1]s; :' & wait`, 1},
	{"without environment, its parent gone, its session's leader there",
		`setsid sh -c '(env -i sleep %[1]s &); exec sleep %[1]s' & wait`, 2},
	{"without environment, its parent gone, in the child's session", `(env -i sleep %[1]s &); exec sleep %[1]s`, 2},
	{"without environment, the child gone too", `(env -i sleep %[1]s &)`, 1},
	{"without environment, in its own session, its parent gone", `(env -i setsid sleep %[1]s &); exec sleep %[1]s`, 2},
	{"without environment, in its own session, the child gone", `(env -i setsid sleep %[1]s &)`, 1},
	{"with another node's environment, in its own session, the child gone",
		`(BRINGUPD_GUARD=0123456789.7 setsid sleep %[1]s &)`, 1},
	{"deaf to TERM", `trap '' TERM HUP INT; setsid sleep %[1]s & sleep %[1]s & wait`, 2},
	{"stopped", `sleep %[1]s & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!; kill -STOP $$`, 1},
}

// daemon is a stand-in daemon that a test runs.
type daemon struct {
	cmd    *exec.Cmd
	word   io.WriteCloser
	stderr *HeadBuffer
	mark   string
	child  int
	arg    string // of the processes that sleep; see [nap]
}

func newDaemon(t *testing.T, script string) *daemon {
	t.Helper()
	d := &daemon{cmd: exec.Command("/proc/self/exe", script), stderr: &HeadBuffer{MaxBytes: 64 << 10}}
	d.cmd.Env = append(os.Environ(), helperVariable+"=daemon")
	d.cmd.Stderr = d.stderr
	var err error
	if d.word, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		t.Logf("the daemon said: %s", d.stderr)
	})
	if _, err := fmt.Fscanln(stdout, &d.mark, &d.child); err != nil {
		t.Fatalf("the daemon did not begin: %v", err)
	}
	return d
}

// daemonOf starts a daemon whose child is a stray, and waits until all of that sleep.
func daemonOf(t *testing.T, child stray) *daemon {
	t.Helper()
	arg := nap(t)
	d := newDaemon(t, fmt.Sprintf(child.script, arg))
	d.arg = arg
	sleepers(t, arg, child.sleepers)
	return d
}

// kill kills the daemon, and waits until nothing of it is left.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	send(t, d.cmd.Process.Pid, unix.SIGKILL)
	d.ends(t)
}

// ends waits until nothing of the daemon is left, its guard included.
func (d *daemon) ends(t *testing.T) {
	t.Helper()
	noneLeft(t, d.arg)
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
}

// guarded waits until the guard's code runs, and returns its PID.
func (d *daemon) guarded(t *testing.T) int {
	t.Helper()
	return guardOf(t, d.mark)
}

// send sends a signal to a process.
func send(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// guardOf waits until the code of the only guard of a mark runs, and returns its PID.
func guardOf(t *testing.T, mark string) int {
	t.Helper()
	pid := 0
	until(t, "guard that ignores TERM", func() (bool, any) {
		pids := guards(t, mark)
		if len(pids) != 1 {
			return false, pids
		}
		pid = pids[0]
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		var ignored uint64
		_, rest, _ := strings.Cut(string(status), "SigIgn:")
		fmt.Sscanf(rest, "%x", &ignored)
		return err == nil && ignored&(1<<(unix.SIGTERM-1)) != 0, rest
	})
	return pid
}

func TestNothingOutlivesTheDaemon(t *testing.T) {
	for _, tc := range strays {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			daemonOf(t, tc).kill(t)
		})
	}
}

func TestWaysForADaemonToEnd(t *testing.T) {
	for _, word := range []string{"exit", "panic", "close", "return"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			d := daemonOf(t, strays[3])
			io.WriteString(d.word, word)
			d.word.Close()
			d.ends(t)
		})
	}
}

// TestTheDaemonsDirectoryGoes verifies that the files of a killed daemon are removed, and that the
// target of a link among them stays.
func TestTheDaemonsDirectoryGoes(t *testing.T) {
	own, other := filepath.Join(t.TempDir(), "own dir"), t.TempDir()
	killOwning(t, own, func() error { return os.Symlink(other, filepath.Join(own, "link")) })
	if _, err := os.Lstat(own); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("what a link in it leads to has gone: %v", err)
	}
}

// killOwning kills a daemon that owns the directory, after it has been changed, and waits for the end
// of its guard.
func killOwning(t *testing.T, own string, change func() error) {
	t.Helper()
	t.Setenv(ownVariable, own)
	d := daemonOf(t, strays[0])
	if err := change(); err != nil {
		t.Fatal(err)
	}
	d.kill(t)
}

// TestGuardKeepsAnotherDirectory verifies that the guard of a killed daemon does not remove another
// directory of the user, which a member of a group has moved to the path of the daemon's.
func TestGuardKeepsAnotherDirectory(t *testing.T) {
	users.Need(t)
	project := users.Project(t)
	own, data := filepath.Join(project, "bu-1"), filepath.Join(project, "data")
	err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "kept"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	killOwning(t, own, func() error {
		exchange := "mv bu-1 aside && mv data bu-1"
		return users.Stranger.Command(t.Context(), project, "sh", "-c", exchange).Run()
	})
	if _, err := os.Lstat(filepath.Join(own, "kept")); err != nil {
		t.Errorf("a file of the user has gone: %v", err)
	}
}

// TestDaemonKilledAtOnce covers a daemon that is killed, by the kernel or scancel, before its
// guard's code has run.
func TestDaemonKilledAtOnce(t *testing.T) {
	for range 10 {
		arg := nap(t)
		d := newDaemon(t, fmt.Sprintf(strays[3].script, arg))
		d.arg = arg
		d.kill(t)
	}
}

// TestGuardStartsEarly verifies the order of initialisation. The guard runs when this package
// initialises, and should not wait for the many packages that import one of the listed ones: Go
// initialises them later as long as this package does not import those.
func TestGuardStartsEarly(t *testing.T) {
	needed, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []string{"net", "net/netip"} {
		if slices.Contains(strings.Fields(string(needed)), late) {
			t.Errorf("this package needs %s", late)
		}
	}
}

func TestGuardIsReplaced(t *testing.T) {
	takesSeconds(t)
	d := daemonOf(t, strays[3])
	first := d.guarded(t)
	send(t, first, unix.SIGKILL)
	until(t, "another guard", func() (bool, any) {
		now := guards(t, d.mark)
		return len(now) == 1 && now[0] != first, now
	})
	d.kill(t)
}

func TestGuardIsDeafToRequests(t *testing.T) {
	d := daemonOf(t, strays[0])
	guard := d.guarded(t)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGCHLD} {
		send(t, guard, sig)
	}
	if now := d.guarded(t); now != guard {
		t.Errorf("the guard was lost: it is pid %d, and was %d", now, guard)
	}
	d.kill(t)
}

// TestChildDiesWithoutTheGuard verifies that the kernel itself ends the child at once, without the
// guard.
func TestChildDiesWithoutTheGuard(t *testing.T) {
	d := daemonOf(t, strays[0])
	guard := d.guarded(t)
	t.Cleanup(func() { unix.Kill(guard, unix.SIGCONT) })
	send(t, guard, unix.SIGSTOP)
	send(t, d.cmd.Process.Pid, unix.SIGKILL)
	noneLeft(t, d.arg)
	send(t, guard, unix.SIGCONT)
	d.ends(t)
}

// TestGuardNoticesWithoutThePipe covers a pipe that does not close with the daemon's death, because
// a fork that hangs in its exec holds it open.
func TestGuardNoticesWithoutThePipe(t *testing.T) {
	stranger := nap(t)
	t.Setenv(holdVariable, stranger)
	d := daemonOf(t, strays[3])
	sleepers(t, stranger, 1)
	d.kill(t)
	sleepers(t, stranger, 1)
}

// TestGuardThatDoesNotRead verifies that a stopped guard, which reads no lines, is replaced when
// its pipe is full.
func TestGuardThatDoesNotRead(t *testing.T) {
	takesSeconds(t)
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		t.Fatal(err)
	}
	defer closeSupervisor(t, s)
	c := start(t, s, shell("sleep "+nap(t)))
	until(t, "guard", func() (bool, any) { now := guards(t, s.markPrefix); return len(now) == 1, now })
	first := guards(t, s.markPrefix)[0]
	unix.Kill(first, unix.SIGSTOP)
	until(t, "stop of the guard", func() (bool, any) {
		p, err := readStat(first)
		return err == nil && p.state == 'T', p
	})
	for pid := range 50000 {
		s.guardLink.sendLine(addLine(familySession{sid: 1<<30 + pid}))
		s.guardLink.sendLine(removeLine(1<<30 + pid))
	}
	until(t, "another guard", func() (bool, any) {
		now := guards(t, s.markPrefix)
		return len(now) == 1 && now[0] != first, now
	})
	c.Stop(t.Context(), 0, unix.SIGKILL)
}

// TestInnerDaemon verifies that ending a daemon within a daemon, by Stop or by the outer daemon's
// guard, ends the inner daemon's children too, and leaves the inner daemon's guard the time to remove
// its directory.
func TestInnerDaemon(t *testing.T) {
	for _, byStop := range []bool{true, false} {
		t.Run(fmt.Sprintf("by Stop: %v", byStop), func(t *testing.T) {
			own, arg := filepath.Join(t.TempDir(), "own"), nap(t)
			// The inner daemon reads its standard input, which does not end.
			inner := fmt.Sprintf("sleep %s | %s=daemon %s=%s /proc/%d/exe '%s'", arg, helperVariable,
				ownVariable, own, os.Getpid(), fmt.Sprintf(strays[3].script, arg))
			fill := func() {
				sleepers(t, arg, 3)
				for file := range 1000 {
					write(t, filepath.Join(own, fmt.Sprint(file%10), fmt.Sprint(file)), "", 0o600)
				}
			}
			if byStop {
				c := start(t, newSupervisor(t), shell(inner))
				fill()
				c.Stop(t.Context(), 0, unix.SIGKILL)
				if left := naps(t, arg); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			} else {
				d := newDaemon(t, inner)
				d.arg = arg
				fill()
				d.kill(t)
			}
			if _, err := os.Lstat(own); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

func TestGuardState(t *testing.T) {
	dir, file := files.OwnedPath{Path: "/tmp/a b\n", Device: 1 << 63, Inode: 2}, files.OwnedPath{Path: "/tmp/c"}
	for _, tc := range []struct {
		name  string
		lines []string
		want  string // sessions by their number: it, its start and when it was last owned
		bye   bool
		owned []files.OwnedPath
	}{
		{"a child", []string{"+ 12 100 0"}, "map[12:{12 100 0}]", false, nil},
		{"a child that ended", []string{"+ 12 100 0", "+ 12 100 200"}, "map[12:{12 100 200}]", false, nil},
		{"a family that ended", []string{"+ 12 100 0", "+ 12 100 200", "- 12"}, "map[]", false, nil},
		{"the same number again", []string{"+ 12 100 0", "- 12", "+ 12 300 0"}, "map[12:{12 300 0}]", false, nil},
		{"one of several", []string{"+ 12 100 0", "+ 13 101 0", "- 12"}, "map[13:{13 101 0}]", false, nil},
		{"nonsense", []string{"", "+", "+ 1", "+ x y z", "-", "- x", "- 13", "byebye"}, "map[]", false, nil},
		{"goodbye", []string{"bye"}, "map[]", true, nil},
		{"paths", []string{ownPathLine(dir), ownPathLine(file)}, "map[]", false, []files.OwnedPath{dir, file}},
		{"no paths", []string{"own", "own /tmp/d", `own 1 2 "/tmp/e`, `own -1 2 "/tmp/f"`}, "map[]", false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := guardState{sessions: make(map[int]familySession)}
			bye := false
			for _, line := range tc.lines {
				bye = state.applyLine(line)
			}
			got := fmt.Sprint(state.sessions)
			if got != tc.want || bye != tc.bye || !slices.Equal(state.owned, tc.owned) {
				t.Errorf("%s, bye %v, paths %v; want %s, %v, %v", got, bye, state.owned, tc.want, tc.bye, tc.owned)
			}
		})
	}
}

// TestGuardLearnsOfAnEnd verifies that the guard is informed of a child's end: its number may be
// another session's later.
func TestGuardLearnsOfAnEnd(t *testing.T) {
	s := newSupervisor(t)
	c := start(t, s, shell("exit 0"))
	finished(t, c)
	s.guardLink.mu.Lock()
	defer s.guardLink.mu.Unlock()
	if r, known := s.guardLink.state.sessions[c.PID()]; !known || r.lastOwned == 0 {
		t.Errorf("it knows %+v (%v), want when it was gone", r, known)
	}
}
