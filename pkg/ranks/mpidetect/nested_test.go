package mpidetect

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// tree returns processes, each given as its PID, its parent's PID and its name.
func tree(rows ...any) (all []process.TreeProcess) {
	for at := 0; at < len(rows); at += 3 {
		all = append(all, process.TreeProcess{PID: rows[at].(int), Parent: rows[at+1].(int), Name: rows[at+2].(string)})
	}
	return all
}

func TestStepless(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []process.TreeProcess
		want []int
	}{
		"waits":              {tree(2, 1, "srun"), []int{2}},
		"has a step":         {tree(2, 1, "srun", 3, 2, "srun"), nil},
		"one of each":        {tree(2, 1, "mpirun", 3, 2, "srun", 4, 3, "srun", 5, 2, "srun"), []int{5}},
		"nothing of Slurm's": {tree(2, 1, "mpirun", 3, 2, "python"), nil},
		"something else":     {tree(2, 1, "srun", 3, 2, "hostname"), []int{2}},
	} {
		var got []int
		for _, p := range srunsWithoutStep(tc.all) {
			got = append(got, p.PID)
		}
		if len(got) != len(tc.want) || len(got) > 0 && got[0] != tc.want[0] {
			t.Errorf("%s: %v wait, not %v", name, got, tc.want)
		}
	}
}

func TestWatchWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		at   func(after time.Duration) []process.TreeProcess
		want int
	}{
		"waits all the time": {func(time.Duration) []process.TreeProcess { return tree(2, 1, "srun") }, 1},
		"gets its step soon": {func(after time.Duration) []process.TreeProcess {
			if after < 3*time.Second {
				return tree(2, 1, "srun")
			}
			return tree(2, 1, "srun", 3, 2, "srun")
		}, 0},
		"a second one, late": {func(after time.Duration) []process.TreeProcess {
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
					look := func() []EndlessWait {
						return SrunWaits(tc.at(time.Since(began)), map[int]string{1: "the driver", 2: "the driver", 9: "the driver"}, driverAdvice)
					}
					ReportWaits(ctx, look, func(words string) {
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

// TestSrunsOfRanks verifies that an srun is reported for the rank that has started it, and not at
// all if no rank has.
func TestSrunsOfRanks(t *testing.T) {
	all := tree(10, 1, "bringupd", 11, 10, "python", 12, 10, "python", 13, 12, "mpirun", 14, 13, "srun", 15, 10, "srun")
	waits := SrunWaits(all, map[int]string{11: "rank 0 on n0", 12: "rank 1 on n0"}, RankAdvice)
	if len(waits) != 1 || waits[0].PID != 14 {
		t.Fatalf("got %+v", waits)
	}
	words := waits[0].Message(4 * time.Second)
	for _, part := range []string{"rank 1 on n0 waits for an srun that has waited for its step for 4s (process 14)", "leave out mpirun", "--overlap"} {
		if !strings.Contains(words, part) {
			t.Errorf("%q is missing in: %s", part, words)
		}
	}
}

// TestSingleton verifies that a driver with an MPI that was started without a launcher gets the
// advice to use --ranks=1, and that a rank of its mpirun does not.
func TestSingleton(t *testing.T) {
	alone := &LoadedMPI{PID: 7, MPIs: []string{"/nowhere/libmpi.so.40"}, Environ: []string{"SLURM_PROCID=0"}}
	waits := singletonWait(alone, 3)
	if len(waits) != 1 || waits[0].PID != 0 {
		t.Fatalf("got %+v", waits)
	}
	if words := waits[0].Message(0); !strings.Contains(words, "the driver (process 7) has loaded an MPI") || !strings.Contains(words, "with --ranks=1 it can spawn ranks on all 3 nodes") {
		t.Error(words)
	}
	for _, launched := range []string{"PMIX_RANK=0", "PMI_RANK=0", "OMPI_COMM_WORLD_RANK=0"} {
		if waits := singletonWait(&LoadedMPI{PID: 7, MPIs: alone.MPIs, Environ: []string{launched}}, 3); waits != nil {
			t.Errorf("%s: %+v", launched, waits)
		}
	}
	if waits := singletonWait(nil, 3); waits != nil {
		t.Errorf("without an MPI: %+v", waits)
	}
}
