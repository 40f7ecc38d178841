package mpidetect

import (
	"strings"
	"testing"
)

func TestRanked(t *testing.T) {
	for name, tc := range map[string]struct {
		argv  []string
		ranks int
		says  string
	}{
		"a program":              {[]string{"python", "ring.py"}, 1, ""},
		"mpirun":                 {[]string{"mpirun", "-n", "4", "./ring"}, 0, "cannot run mpirun in each rank: each would start a separate world; leave it out"},
		"Debian's":               {[]string{"/usr/bin/mpirun.openmpi", "./ring"}, 8, "cannot run mpirun.openmpi in each rank"},
		"Intel's":                {[]string{"mpiexec.hydra", "./ring"}, 1, "cannot run mpiexec.hydra in each rank"},
		"named like one":         {[]string{"./mpirunner"}, 4, ""},
		"a pool of many":         {[]string{"python", "-m", "mpi4py.futures", "pool.py"}, 4, ""},
		"a pool of who knows":    {[]string{"python", "-m", "mpi4py.futures", "pool.py"}, 0, ""},
		"a pool of one":          {[]string{"python", "-u", "-m", "mpi4py.futures", "pool.py"}, 1, "cannot run mpi4py.futures with 1 rank: "},
		"a pool of one's script": {[]string{"python", "pool.py"}, 1, ""},
		"an argument of its own": {[]string{"python", "pool.py", "mpi4py.futures"}, 1, ""},
	} {
		err := CheckRankCommand(tc.argv, tc.ranks)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		}
	}
	if IsLauncher(nil) {
		t.Error("nothing launches")
	}
}
