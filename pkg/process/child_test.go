package process

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestExitString(t *testing.T) {
	for _, tc := range []struct {
		name string
		exit Exit
		text string
	}{
		{"not ended", Exit{Code: -1}, "not ended"},
		{"core", Exit{Code: -1, Signal: unix.SIGSEGV, CoreDumped: true}, "killed by SIGSEGV (core dumped)"},
		{"KILL that was asked for", Exit{Code: -1, Signal: unix.SIGKILL, Requested: true}, "killed by SIGKILL"},
		{"KILL by somebody", Exit{Code: -1, Signal: unix.SIGKILL},
			"killed by SIGKILL (perhaps out of memory)"},
		{"as a shell says it", Exit{Code: 137}, "exit code 137 (killed by SIGKILL) (perhaps out of memory)"},
		{"a code of KILL that was asked for", Exit{Code: 137, Requested: true}, "exit code 137 (killed by SIGKILL)"},
		{
			"KILL by the kernel", Exit{Code: -1, Signal: unix.SIGKILL,
				OOM: &record.OOMReport{Kills: 1, Limit: 64 << 30, Cgroup: "/sys/fs/cgroup/job_17"}},
			"killed by SIGKILL: the kernel has ended 1 process of this cgroup because memory " +
				"ran out (limit 64 GiB; /sys/fs/cgroup/job_17)",
		},
		{
			"a code, after a loss", Exit{Code: 1,
				OOM: &record.OOMReport{Kills: 2, Cgroup: "/sys/fs/cgroup/job_17"}},
			"exit code 1: the kernel has ended 2 processes of this cgroup because memory ran " +
				"out (no limit; /sys/fs/cgroup/job_17)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.exit.String(); got != tc.text {
				t.Errorf("%q, want %q", got, tc.text)
			}
		})
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	s := newSupervisor(t)
	c := start(t, s, shell(`trap 'echo parent; exit 7' USR1
sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & while :; do wait; done`))
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
			arg := nap(t)
			c := start(t, s, shell(strings.ReplaceAll(tc.script, "%[1]s", arg)))
			other := start(t, s, shell("sleep "+nap(t)))
			sleepers(t, arg, tc.sleepers)
			families, err := observer.ScanFamilies([]int{c.PID(), other.PID()})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range naps(t, arg) {
				has := func(m FamilyMember) bool { return m.PID == p.pid && m.Start == p.start }
				seen := slices.ContainsFunc(families[c.PID()], has) || ctxutil.AwaitDoneFor(c.Ended(), 0)
				owned, other := c.OwnsProcess(p.pid) && seen, other.OwnsProcess(p.pid) ||
					slices.ContainsFunc(families[other.PID()], has)
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
