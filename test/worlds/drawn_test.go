package worlds

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
)

// TestDrawn injects the faults of the drawn schedules into worlds and checks the outcomes.
func TestDrawn(t *testing.T) {
	kinds := []kind{killRank, crashRank, exitRank, abortRank, killDaemon, killNode}
	cgroup, err := limited(t)
	if err != nil {
		t.Logf("no rank runs out of memory: %v", err)
		if os.Getenv("CI") == "true" {
			t.Error("it must in CI")
		}
	} else {
		kinds = append(kinds, outOfMemory)
	}
	first, runs := max(*seedFlag, 1), *runsFlag
	if *seedFlag > 0 && !given("runs") {
		runs = 1
	}
	times := make(map[kind][]time.Duration)
	var mu sync.Mutex
	t.Run("runs", func(t *testing.T) {
		turns := make(chan struct{}, *sideFlag)
		for seed := first; seed < first+uint64(runs); seed++ {
			s := draw(seed, kinds)
			t.Run(fmt.Sprintf("%d %s", seed, strings.ReplaceAll(string(s.kind), " ", "-")),
				func(t *testing.T) {
					t.Parallel()
					turns <- struct{}{}
					defer func() { <-turns }()
					took := one(t, beginRing(t), s, cgroup)
					mu.Lock()
					defer mu.Unlock()
					times[s.kind] = append(times[s.kind], took)
				})
		}
	})
	for _, k := range kinds {
		t.Log(spread(k, times[k]))
	}
}

// one runs a schedule, and returns the time from the fault to the last exit.
func one(t *testing.T, j *job, s schedule, cgroup string) time.Duration {
	t.Helper()
	struck := j.strike(s, cgroup)
	j.AwaitEnd(jobtest.Ceiling)
	took := time.Since(struck)
	if wrong := judge(s, j.await()); len(wrong) > 0 {
		t.Errorf("%v:\n%s\nit said:\n%s", s, strings.Join(wrong, "\n"), &j.Said)
	}
	return took
}

// spread summarises the durations of all runs of a kind.
func spread(k kind, times []time.Duration) string {
	if len(times) == 0 {
		return fmt.Sprintf("%s: never", k)
	}
	slices.Sort(times)
	at := func(part float64) time.Duration {
		return times[min(len(times)-1, int(part*float64(len(times))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%s: %d runs, from the fault to the last exit p50 %v, p99 %v, at most %v", k,
		len(times), at(0.5), at(0.99), at(1))
}

// memoryLimit is the limit for a rank that allocates memory. The Go runtime alone needs a tenth of
// it.
const memoryLimit = 64 << 20

// limited returns a memory cgroup with a limit for this test, in version 1 or 2 of cgroups.
func limited(t *testing.T) (dir string, err error) {
	dir = filepath.Join("/sys/fs/cgroup/memory", fmt.Sprintf("bringupd-worlds-%d", os.Getpid()))
	limit := "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), limit)); err != nil {
		dir, limit = filepath.Join("/sys/fs/cgroup", filepath.Base(dir)), "memory.max"
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir, write(filepath.Join(dir, limit), memoryLimit)
}

// given reports whether a flag was set.
func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}
