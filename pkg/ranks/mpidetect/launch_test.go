package mpidetect

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

func TestCheckPool(t *testing.T) {
	for name, tc := range map[string]struct {
		argv  []string
		ranks int
		fails bool
	}{
		"a program":              {[]string{"python", "ring.py"}, 1, false},
		"a pool of many":         {[]string{"python", "-m", "mpi4py.futures", "pool.py"}, 4, false},
		"a pool of who knows":    {[]string{"python", "-m", "mpi4py.futures", "pool.py"}, 0, false},
		"a pool of one":          {[]string{"python", "-u", "-m", "mpi4py.futures", "pool.py"}, 1, true},
		"a pool of one's script": {[]string{"python", "pool.py"}, 1, false},
		"an argument of its own": {[]string{"python", "pool.py", "mpi4py.futures"}, 1, false},
	} {
		if err := CheckPool(tc.argv, tc.ranks); (err != nil) != tc.fails {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestLookForLone verifies that a driver with an MPI that was started without a launcher is reported once,
// after two checks, with the advice to use --ranks=1, and that a rank of its mpirun is not.
func TestLookForLone(t *testing.T) {
	alone := &LoadedMPI{PID: 7, MPIs: []string{"/nowhere/libmpi.so.40"}, Environ: []string{"SLURM_PROCID=0"}}
	rank := func(variable string) func(time.Duration) *LoadedMPI {
		return func(time.Duration) *LoadedMPI {
			return &LoadedMPI{PID: 7, MPIs: alone.MPIs, Environ: []string{variable}}
		}
	}
	for name, tc := range map[string]struct {
		loaded func(after time.Duration) *LoadedMPI
		want   time.Duration // of the report; 0 if there is none
	}{
		"at once":     {func(time.Duration) *LoadedMPI { return alone }, 3 * time.Second},
		"without MPI": {func(time.Duration) *LoadedMPI { return nil }, 0},
		"PMIx":        {rank("PMIX_RANK=0"), 0},
		"PMI-1":       {rank("PMI_RANK=0"), 0},
		"Open MPI's":  {rank("OMPI_COMM_WORLD_RANK=0"), 0},
		"for a moment": {func(after time.Duration) *LoadedMPI {
			return map[time.Duration]*LoadedMPI{3 * time.Second: alone}[after]
		}, 0},
		"late": {func(after time.Duration) *LoadedMPI {
			if after < time.Hour {
				return nil
			}
			return alone
		}, time.Hour + 62*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				began, at := time.Now(), time.Duration(0)
				look := LookForLone(func() *LoadedMPI { return tc.loaded(time.Since(began)) }, 3)
				process.WatchTree(ctx, func(words string) {
					at = time.Since(began)
					if !strings.Contains(words, "(process 7) has loaded an MPI") ||
						!strings.Contains(words, "--ranks=1") {
						t.Error(words)
					}
				}, look)
				if (at > 0) != (tc.want > 0) || at > tc.want {
					t.Errorf("it is reported after %s", at)
				}
			})
		})
	}
}
