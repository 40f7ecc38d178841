package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
)

// TestOrphansEnd verifies that a process that forks twice, begins a session, and clears its environment
// and its limit ends with a daemon that closes.
func TestOrphansEnd(t *testing.T) {
	takesSeconds(t)
	arg := nap(t)
	d := newDaemon(t, fmt.Sprintf(`env -i prlimit --locks=unlimited setsid sh -c '(sleep %s & setsid sleep %[1]s &)'
exec sleep %s`, arg, nap(t)))
	sleepers(t, arg, 2)
	until(t, "adopted orphans", func() (bool, any) {
		found := naps(t, arg)
		isOther := func(p procStat) bool { return p.name == "sleep" && p.ppid != d.cmd.Process.Pid }
		return !slices.ContainsFunc(found, isOther), found
	})
	_, err := io.WriteString(d.word, "close")
	if err := errors.Join(err, d.word.Close(), d.cmd.Wait()); err != nil {
		t.Errorf("the daemon: %v", err)
	}
	noneLeft(t, arg)
}

// TestOrphansAreReaped verifies that orphans that end are reaped while their daemon lives, and that
// the exits of its own children stay known.
func TestOrphansAreReaped(t *testing.T) {
	takesSeconds(t)
	d := newDaemon(t, fmt.Sprintf(`for i in 1 2 3; do (env -i setsid sleep 0.1 &); done; exec sleep %s`, nap(t)))
	seen := 0
	until(t, "end of all orphans", func() (bool, any) {
		all, err := newProcScanner(0).scanProcesses()
		if err != nil {
			t.Fatal(err)
		}
		var left []procStat
		for _, p := range all {
			if p.ppid == d.cmd.Process.Pid && p.pid != d.child && p.name == "sleep" {
				left = append(left, p)
			}
		}
		seen = max(seen, len(left))
		return seen > 0 && len(left) == 0, left
	})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", d.child)); err != nil {
		t.Errorf("the child is gone: %v", err)
	}
}
