package process

import (
	"context"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAncestors(t *testing.T) {
	var pids []int
	var argvs [][]string
	for pid, argv := range Ancestors(os.Getpid()) {
		pids, argvs = append(pids, pid), append(argvs, argv)
	}
	if len(pids) < 2 || pids[0] != os.Getpid() || pids[1] != os.Getppid() || !slices.Equal(argvs[0], os.Args) {
		t.Errorf("got %v, %q", pids, argvs)
	}
	for pid, argv := range Ancestors(1 << 30) {
		if pid != 1<<30 || argv != nil {
			t.Errorf("a process that is not there: %d, %q", pid, argv)
		}
	}
	if own, other := Environ(os.Getpid()), Environ(1<<30); len(own) == 0 || other != nil {
		t.Errorf("got %d variables of this process, and %q of one that is not there", len(own), other)
	}
}

func TestTree(t *testing.T) {
	s := newSupervisor(t)
	child, err := s.Start(t.Context(), Spec{Name: "tree",
		Argv: []string{"sh", "-c", "(sleep 1000; :) & wait"}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	var found []TreeProcess
	// The third process is a shell, too, until it has executed sleep.
	complete := func() bool { return len(found) == 3 && found[2].Name == "sleep" }
	for end := time.Now().Add(30 * time.Second); !complete() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		found = ProcessTree(child.PID())
	}
	if !complete() || found[0].PID != child.PID() || found[1].Parent != child.PID() || found[2].Parent != found[1].PID {
		t.Errorf("of %d there are %+v", child.PID(), found)
	}
	child.Stop(t.Context(), time.Second, syscall.SIGTERM)
}

// TestWatchTree verifies that what a look says twice in a row is reported once, and what it says now
// and then is not.
func TestWatchTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		began, looked, flapped := time.Now(), 0, 0
		reports := map[string]time.Duration{}
		WatchTree(ctx, func(words string) {
			if _, again := reports[words]; again {
				t.Errorf("%q is reported again", words)
			}
			reports[words] = time.Since(began)
		}, func([]TreeProcess) string {
			flapped++
			return []string{"", "for a moment"}[flapped%2]
		}, func(tree []TreeProcess) string {
			if len(tree) == 0 || tree[0].PID != os.Getpid() {
				t.Errorf("the tree is %v", tree)
			}
			looked++
			return "always"
		}, func([]TreeProcess) string {
			if time.Since(began) < time.Minute {
				return ""
			}
			return "late"
		})
		want := map[string]time.Duration{"always": 3 * time.Second, "late": 91 * time.Second}
		if !maps.Equal(reports, want) || looked != 2 || flapped < 20 {
			t.Errorf("reported %v, want %v, after %d looks and %d", reports, want, looked, flapped)
		}
	})
}
