package process

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

func TestExits(t *testing.T) {
	s := newSupervisor(t)
	for _, tc := range []struct {
		name   string
		script string
		status int
		text   string
	}{
		{"success", "exit 0", 0, "exit code 0"},
		{"a code", "exit 3", 3, "exit code 3"},
		{"the highest code", "exit 255", 255, "exit code 255"},
		{"TERM by itself", "kill -TERM $$", 143, "killed by SIGTERM"},
		{"KILL by somebody", "kill -KILL $$", 137, "killed by SIGKILL (perhaps out of memory: see dmesg)"},
		{"a real-time signal", "kill -40 $$", 168, "killed by SIGRTMIN+6"},
		{"as a shell says it", "sh -c 'kill -KILL $$'; exit $?", 137, "exit code 137 (killed by SIGKILL) (perhaps out of memory: see dmesg)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := start(t, s, shell(tc.script))
			exit := finished(t, c)
			if exit.ShellStatus() != tc.status || exit.String() != tc.text || exit.Requested || exit.Err != nil {
				t.Errorf("%v (%#v), status %d; want %s, status %d, not asked", exit, exit, exit.ShellStatus(), tc.text, tc.status)
			}
			if again := c.Stop(t.Context(), time.Minute, unix.SIGTERM); again.ShellStatus() != tc.status || again.Requested || again.Err != nil {
				t.Errorf("after Stop: %+v", again)
			}
			if err := c.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("Signal after the end: %v", err)
			}
		})
	}
}

func TestExitString(t *testing.T) {
	for _, tc := range []struct {
		name string
		exit Exit
		text string
	}{
		{"not ended", Exit{Code: -1}, "not ended"},
		{"core", Exit{Code: -1, Signal: unix.SIGSEGV, CoreDumped: true}, "killed by SIGSEGV (core dumped)"},
		{"KILL that was asked for", Exit{Code: -1, Signal: unix.SIGKILL, Requested: true}, "killed by SIGKILL"},
		{"a code of KILL that was asked for", Exit{Code: 137, Requested: true}, "exit code 137 (killed by SIGKILL)"},
		{
			"KILL by the kernel", Exit{Code: -1, Signal: unix.SIGKILL, OOM: OOMInfo{Kills: 1, Limit: 64 << 30, Cgroup: "/sys/fs/cgroup/job_17"}},
			"killed by SIGKILL: the kernel has ended 1 process of this cgroup because memory ran out (limit 64 GiB; /sys/fs/cgroup/job_17)",
		},
		{
			"a code, after a loss", Exit{Code: 1, OOM: OOMInfo{Kills: 2, Cgroup: "/sys/fs/cgroup/job_17"}},
			"exit code 1: the kernel has ended 2 processes of this cgroup because memory ran out (no limit; /sys/fs/cgroup/job_17)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.exit.String(); got != tc.text {
				t.Errorf("%q, want %q", got, tc.text)
			}
		})
	}
}

func TestWasAsked(t *testing.T) {
	signals := func(list ...syscall.Signal) map[syscall.Signal]bool {
		sent := make(map[syscall.Signal]bool)
		for _, sig := range list {
			sent[sig] = true
		}
		return sent
	}
	for _, tc := range []struct {
		name     string
		exit     Exit
		stopping bool
		sent     map[syscall.Signal]bool
		want     bool
	}{
		{"by itself", Exit{Code: 1}, false, nil, false},
		{"Stop", Exit{Code: 1}, true, nil, true},
		{"TERM, and a code of its own", Exit{Code: 1}, false, signals(unix.SIGTERM), true},
		{"USR1, and a code of its own", Exit{Code: 1}, false, signals(unix.SIGUSR1), false},
		{"ended by our USR1", Exit{Signal: unix.SIGUSR1}, false, signals(unix.SIGUSR1), true},
		{"our USR1, and then a crash", Exit{Signal: unix.SIGSEGV}, false, signals(unix.SIGUSR1), false},
		{"KILL by somebody else", Exit{Signal: unix.SIGKILL}, false, signals(unix.SIGUSR1), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isRequestedExit(tc.exit, tc.stopping, tc.sent); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	s := newSupervisor(t)
	c := start(t, s, shell(`trap 'echo parent; exit 7' USR1; sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & while :; do wait; done`))
	until(t, "ready", func() (bool, any) { return len(c.LastLines()) == 1, c.LastLines() })
	// The outer shell's trap may not be set yet when the inner shell is ready, but the outer shell ran
	// first.
	if err := c.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if exit := finished(t, c); exit.Code != 7 || exit.Requested {
		t.Errorf("%#v, want code 7, not asked", exit)
	}
	until(t, "both lines", func() (bool, any) {
		all := strings.Join(c.LastLines(), " ")
		return strings.Contains(all, "parent") && strings.Contains(all, "child"), all
	})
}

// TestCrashBeforeStop verifies that an exit before Stop does not count as requested, even if it was
// not noticed before.
func TestCrashBeforeStop(t *testing.T) {
	s := newSupervisor(t)
	for range 20 {
		c := start(t, s, shell("exit 9"))
		until(t, "zombie, or the end", func() (bool, any) {
			p, err := readStat(c.PID())
			return err != nil || p.dead, p
		})
		if exit := c.Stop(t.Context(), time.Minute, unix.SIGTERM); exit.Code != 9 || exit.Requested {
			t.Fatalf("%#v, want code 9, not asked", exit)
		}
	}
}

// TestOwns verifies that a family is found by the daemon and by an observer, and that two families
// are distinguished. An observer need not find a family whose child has ended.
func TestOwns(t *testing.T) {
	s, observer := newSupervisor(t), NewFamilyScanner()
	for _, tc := range strays {
		t.Run(tc.name, func(t *testing.T) {
			arg := nap()
			killNaps(t, arg)
			c := start(t, s, shell(strings.ReplaceAll(tc.script, "%[1]s", arg)))
			other := start(t, s, shell("sleep "+nap()))
			sleepers(t, arg, tc.sleepers)
			families, err := observer.ScanFamilies([]int{c.PID(), other.PID()})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range naps(t, arg) {
				has := func(m FamilyMember) bool { return m.PID == p.pid && m.Start == p.start }
				seen := slices.ContainsFunc(families[c.PID()], has) || ctxutil.AwaitDoneFor(c.Ended(), 0)
				owned, other := c.OwnsProcess(p.pid) && seen, other.OwnsProcess(p.pid) || slices.ContainsFunc(families[other.PID()], has)
				if now, err := readStat(p.pid); err != nil || now.dead {
					continue // a short-lived process of the script
				}
				if !owned || other {
					t.Errorf("%v: owned %v, by another child %v; want true, false: %+v", p, owned, other, families)
				}
			}
			for _, pid := range []int{0, 1, os.Getpid(), os.Getppid(), other.PID()} {
				if c.OwnsProcess(pid) {
					t.Errorf("owns %d", pid)
				}
			}
			for _, child := range []*Child{c, other} {
				if exit := child.Stop(t.Context(), 0, unix.SIGKILL); exit.Err != nil {
					t.Error(exit.Err)
				}
			}
		})
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	spec := Spec{Name: "env", Argv: []string{"sh", "-c", "echo $A $B; pwd; cat"}, Dir: dir,
		Env: []string{"PATH=/usr/bin:/bin", "A=1", "B=2", "A=3"}}
	c := start(t, s, spec)
	finished(t, c)
	if got := strings.Join(c.LastLines(), "|"); got != "3 2|"+dir {
		t.Errorf("%q, want %q", got, "3 2|"+dir)
	}
}
