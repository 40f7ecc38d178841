package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
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
	cmd   *exec.Cmd
	word  io.WriteCloser
	mark  string
	child int

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (d *daemon) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stderr.Write(b)
}

func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stderr.String()
}

func newDaemon(t *testing.T, script string) *daemon {
	t.Helper()
	d := &daemon{cmd: exec.Command("/proc/self/exe", script)}
	d.cmd.Env = append(os.Environ(), helperVariable+"=daemon")
	d.cmd.Stderr = d
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
		t.Logf("the daemon said: %s", d.said())
	})
	if _, err := fmt.Fscanln(stdout, &d.mark, &d.child); err != nil {
		t.Fatalf("the daemon did not begin: %v", err)
	}
	return d
}

// guarded waits until the guard's code runs, and returns its PID.
func (d *daemon) guarded(t *testing.T) int {
	t.Helper()
	return guardOf(t, d.mark)
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
			arg := nap()
			killNaps(t, arg)
			d := newDaemon(t, fmt.Sprintf(tc.script, arg))
			sleepers(t, arg, tc.sleepers)
			if err := d.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			noneLeft(t, arg)
			until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
		})
	}
}

func TestWaysForADaemonToEnd(t *testing.T) {
	script := strays[3]
	for _, word := range []string{"exit", "panic", "close", "return"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			arg := nap()
			killNaps(t, arg)
			d := newDaemon(t, fmt.Sprintf(script.script, arg))
			sleepers(t, arg, script.sleepers)
			io.WriteString(d.word, word)
			d.word.Close()
			noneLeft(t, arg)
			until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
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
	arg := nap()
	killNaps(t, arg)
	d := newDaemon(t, "exec sleep "+arg)
	if err := errors.Join(change(), d.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
	noneLeft(t, arg)
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
		arg := nap()
		killNaps(t, arg)
		d := newDaemon(t, fmt.Sprintf(`(setsid sleep %[1]s &) ; exec sleep %[1]s`, arg))
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		d.cmd.Wait()
		until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
		noneLeft(t, arg)
	}
}

// TestGuardComesWithTheFirstChild verifies that a daemon without children has no guard, even if it
// has files to remove.
func TestGuardComesWithTheFirstChild(t *testing.T) {
	s := newSupervisor(t)
	s.OwnPath(files.OwnedPath{Path: t.TempDir()})
	if ctxutil.AwaitDoneFor(s.guardLink.firstForked, 50*time.Millisecond) {
		t.Error("there is a guard, and nobody to guard against")
	}
	c := start(t, s, shell("exit 0"))
	until(t, "guard", func() (bool, any) { now := guards(t, s.markPrefix); return len(now) == 1, now })
	finished(t, c)
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
	arg := nap()
	killNaps(t, arg)
	d := newDaemon(t, fmt.Sprintf(strays[3].script, arg))
	sleepers(t, arg, strays[3].sleepers)
	first := d.guarded(t)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another guard", func() (bool, any) {
		now := guards(t, d.mark)
		return len(now) == 1 && now[0] != first, now
	})
	if err := unix.Kill(d.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	noneLeft(t, arg)
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
}

func TestGuardIsDeafToRequests(t *testing.T) {
	arg := nap()
	killNaps(t, arg)
	d := newDaemon(t, fmt.Sprintf(`exec sleep %s`, arg))
	sleepers(t, arg, 1)
	guard := d.guarded(t)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGCHLD} {
		if err := unix.Kill(guard, sig); err != nil {
			t.Fatal(err)
		}
	}
	if now := d.guarded(t); now != guard {
		t.Errorf("the guard was lost: it is pid %d, and was %d", now, guard)
	}
	d.cmd.Process.Kill()
	noneLeft(t, arg)
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
}

// TestChildDiesWithoutTheGuard verifies that the kernel itself ends the child at once, without the
// guard.
func TestChildDiesWithoutTheGuard(t *testing.T) {
	arg := nap()
	killNaps(t, arg)
	d := newDaemon(t, fmt.Sprintf("exec sleep %s", arg))
	sleepers(t, arg, 1)
	guard := d.guarded(t)
	t.Cleanup(func() { unix.Kill(guard, unix.SIGCONT) })
	if err := unix.Kill(guard, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.cmd.Process.Kill()
	noneLeft(t, arg)
	if err := unix.Kill(guard, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
}

// TestGuardNoticesWithoutThePipe covers a pipe that does not close with the daemon's death, because
// a fork that hangs in its exec holds it open.
func TestGuardNoticesWithoutThePipe(t *testing.T) {
	arg, stranger := nap(), nap()
	killNaps(t, arg)
	killNaps(t, stranger)
	t.Setenv(holdVariable, stranger)
	d := newDaemon(t, fmt.Sprintf(strays[3].script, arg))
	sleepers(t, arg, strays[3].sleepers)
	sleepers(t, stranger, 1)
	unix.Kill(d.cmd.Process.Pid, unix.SIGKILL)
	noneLeft(t, arg)
	until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
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
	c := start(t, s, shell("sleep "+nap()))
	until(t, "guard", func() (bool, any) { now := guards(t, s.markPrefix); return len(now) == 1, now })
	first := guards(t, s.markPrefix)[0]
	unix.Kill(first, unix.SIGSTOP)
	until(t, "stop of the guard", func() (bool, any) { p, err := readStat(first); return err == nil && p.state == 'T', p })
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

// TestDaemonWithinADaemon verifies that, if a daemon is the child of another daemon, ending that
// child also ends the inner daemon's children.
func TestDaemonWithinADaemon(t *testing.T) {
	arg := nap()
	killNaps(t, arg)
	s := newSupervisor(t)
	spec := helper("daemon", fmt.Sprintf(strays[3].script, arg))
	stdin, word, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer word.Close()
	defer stdin.Close()
	spec.Stdin = stdin
	c := start(t, s, spec)
	sleepers(t, arg, strays[3].sleepers)
	c.Stop(t.Context(), 0, unix.SIGKILL)
	if left := naps(t, arg); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestInnerDaemonsDirectoryGoes verifies that ending a daemon within a daemon, by Stop or by the outer
// daemon's guard, leaves the inner daemon's guard the time to remove its directory.
func TestInnerDaemonsDirectoryGoes(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own")
	fill := func() {
		for sub := range 10 {
			dir := filepath.Join(own, fmt.Sprint(sub))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for file := range 100 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(file)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	gone := func() bool { _, err := os.Lstat(own); return errors.Is(err, os.ErrNotExist) }
	arg := nap()
	killNaps(t, arg)
	// The inner daemon reads its standard input, which does not end.
	inner := fmt.Sprintf("sleep %s | %s=daemon %s=%s /proc/%d/exe 'sleep %s'", arg, helperVariable, ownVariable, own, os.Getpid(), arg)
	t.Run("by Stop", func(t *testing.T) {
		s := newSupervisor(t)
		c := start(t, s, shell(inner))
		sleepers(t, arg, 2)
		fill()
		c.Stop(t.Context(), 0, unix.SIGKILL)
		if !gone() {
			t.Error("the directory is still there")
		}
		if left := naps(t, arg); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("by the guard", func(t *testing.T) {
		d := newDaemon(t, inner)
		sleepers(t, arg, 2)
		fill()
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		until(t, "end of the guard", func() (bool, any) { left := guards(t, d.mark); return len(left) == 0, left })
		noneLeft(t, arg)
		if !gone() {
			t.Error("the directory is still there")
		}
	})
}

func TestGuardState(t *testing.T) {
	dir, file := files.OwnedPath{Path: "/tmp/a b\n", Device: 1 << 63, Inode: 2}, files.OwnedPath{Path: "/tmp/c"}
	for _, tc := range []struct {
		name  string
		lines []string
		want  map[int]familySession
		bye   bool
		owned []files.OwnedPath
	}{
		{"a child", []string{"+ 12 100 0"}, map[int]familySession{12: {sid: 12, start: 100}}, false, nil},
		{"a child that ended", []string{"+ 12 100 0", "+ 12 100 200"}, map[int]familySession{12: {sid: 12, start: 100, lastOwned: 200}}, false, nil},
		{"a child whose family ended", []string{"+ 12 100 0", "+ 12 100 200", "- 12"}, map[int]familySession{}, false, nil},
		{"the same number again", []string{"+ 12 100 0", "- 12", "+ 12 300 0"}, map[int]familySession{12: {sid: 12, start: 300}}, false, nil},
		{"one of several", []string{"+ 12 100 0", "+ 13 101 0", "- 12"}, map[int]familySession{13: {sid: 13, start: 101}}, false, nil},
		{"the end of an unknown", []string{"- 13"}, map[int]familySession{}, false, nil},
		{"nonsense", []string{"", "+", "+ 1", "+ x y z", "-", "- x", "byebye"}, map[int]familySession{}, false, nil},
		{"goodbye", []string{"bye"}, map[int]familySession{}, true, nil},
		{"paths", []string{ownPathLine(dir), ownPathLine(file)}, map[int]familySession{}, false, []files.OwnedPath{dir, file}},
		{"nonsense of paths", []string{"own", "own /tmp/d", `own 1 2 "/tmp/e`, `own -1 2 "/tmp/f"`}, map[int]familySession{}, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := guardState{sessions: make(map[int]familySession)}
			bye := false
			for _, line := range tc.lines {
				bye = state.applyLine(line)
			}
			if diff := cmp.Diff(tc.want, state.sessions, cmp.AllowUnexported(familySession{})); diff != "" || bye != tc.bye {
				t.Errorf("bye %v, want %v; roots (-want +got):\n%s", bye, tc.bye, diff)
			}
			if !slices.Equal(state.owned, tc.owned) {
				t.Errorf("paths %v, want %v", state.owned, tc.owned)
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
