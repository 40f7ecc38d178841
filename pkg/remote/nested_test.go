package remote

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// tree is processes, each as its pid, its parent's and its name.
func tree(rows ...any) (all []process.Relative) {
	for at := 0; at < len(rows); at += 3 {
		all = append(all, process.Relative{PID: rows[at].(int), Parent: rows[at+1].(int), Name: rows[at+2].(string)})
	}
	return all
}

func TestStepless(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []process.Relative
		want []int
	}{
		"waits":              {tree(2, 1, "srun"), []int{2}},
		"has a step":         {tree(2, 1, "srun", 3, 2, "srun"), nil},
		"one of each":        {tree(2, 1, "mpirun", 3, 2, "srun", 4, 3, "srun", 5, 2, "srun"), []int{5}},
		"nothing of Slurm's": {tree(2, 1, "mpirun", 3, 2, "python"), nil},
		"something else":     {tree(2, 1, "srun", 3, 2, "hostname"), []int{2}},
	} {
		var got []int
		for _, p := range stepless(tc.all) {
			got = append(got, p.PID)
		}
		if len(got) != len(tc.want) || len(got) > 0 && got[0] != tc.want[0] {
			t.Errorf("%s: %v wait, not %v", name, got, tc.want)
		}
	}
}

func TestWatchSruns(t *testing.T) {
	for name, tc := range map[string]struct {
		at   func(after time.Duration) []process.Relative
		want int
	}{
		"waits all the time": {func(time.Duration) []process.Relative { return tree(2, 1, "srun") }, 1},
		"gets its step soon": {func(after time.Duration) []process.Relative {
			if after < 3*time.Second {
				return tree(2, 1, "srun")
			}
			return tree(2, 1, "srun", 3, 2, "srun")
		}, 0},
		"a second one, late": {func(after time.Duration) []process.Relative {
			if after < time.Hour {
				return tree(2, 1, "srun")
			}
			return tree(9, 1, "srun")
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				began := time.Now()
				var told []string
				var watching sync.WaitGroup
				watching.Go(func() {
					WatchSruns(ctx, func() []process.Relative { return tc.at(time.Since(began)) }, func(words string) {
						told = append(told, words)
						if len(told) == 1 && time.Since(began) > 5*time.Second {
							t.Errorf("told after %s", time.Since(began))
						}
					})
				})
				watching.Wait()
				if len(told) != tc.want || len(told) > 0 && !strings.Contains(told[0], "give --overlap to that srun") {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}
