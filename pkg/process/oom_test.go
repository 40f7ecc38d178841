package process

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
		{"asked to end", "exec sleep " + nap(t), true, 0},
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
			exit := finished(t, c)
			if (exit.OOM != nil) != (tc.kills > 0) || tc.kills > 0 && exit.OOM.Kills != tc.kills ||
				exit.Requested != tc.stop {
				t.Errorf("%#v, want %d kills, asked %v", exit, tc.kills, tc.stop)
			}
		})
	}
}
