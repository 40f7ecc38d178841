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

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// TestDrawn strikes worlds as the seeds have it.
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
			t.Run(fmt.Sprintf("%d %s", seed, strings.ReplaceAll(string(s.kind), " ", "-")), func(t *testing.T) {
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

// one goes through a schedule, and returns how long it took from the fault to the
// last exit.
func one(t *testing.T, j *job, s schedule, cgroup string) time.Duration {
	t.Helper()
	struck := j.strike(s, cgroup)
	ctxutil.AwaitDoneFor(j.ended, ceiling) // await fails if it has not
	took := time.Since(struck)
	if wrong := judge(s, j.await()); len(wrong) > 0 {
		t.Errorf("%v:\n%s\nit said:\n%s", s, strings.Join(wrong, "\n"), &j.said)
	}
	return took
}

// spread says how long the runs of a kind have taken.
func spread(k kind, times []time.Duration) string {
	if len(times) == 0 {
		return fmt.Sprintf("%s: never", k)
	}
	slices.Sort(times)
	at := func(part float64) time.Duration {
		return times[min(len(times)-1, int(part*float64(len(times))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%s: %d runs, from the fault to the last exit p50 %v, p99 %v, at most %v", k, len(times), at(0.5), at(0.99), at(1))
}

// memoryLimit is what a rank that grows may have; the Go runtime alone takes a
// tenth of it.
const memoryLimit = 64 << 20

// limited returns a memory cgroup of this test's with a limit, of the first or the
// second version.
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

// given tells whether a flag was.
func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}
