//go:build mpi

package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/jobtest"
)

// TestAlone checks ranks of real MPIs that each form a world of one, which must be reported with
// the reason, and ranks that form one world, for which nothing must be reported.
func TestAlone(t *testing.T) {
	script := filepath.Join(t.TempDir(), "rank.py")
	if err := os.WriteFile(script,
		[]byte("import sys, time\nfrom mpi4py import "+
			"MPI\nprint(MPI.COMM_WORLD.size)\ntime.sleep(float(sys.argv[1]))\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, mpi, flag string
		wrapper         []string
		seconds         string
		size            string
		warns           string
	}{
		{"as it should be", "MPICH", "", nil, "0", "2", ""},
		{"without its environment, shortly", "MPICH", "", []string{"env", "-i"}, "1", "1",
			"has MPICH 5.0.2 loaded|to its end|not of 2; the likely reason: the program that " +
				"started it removed PMI_FD"},
		// Use separate TMPDIRs: two independent processes of Open MPI 4 fail if both create the same
		// directory at the same time.
		{"without a hint", "OPENMPI4", "",
			[]string{"sh", "-c", `TMPDIR=$(mktemp -d -p "$BRINGUPD_RUN_DIR") exec "$@"`, "sh",
				"env", "-u", "JSM_JSRUN_PORT"}, "8", "1",
			"has Open MPI 4.|not of 2; the likely reason: Open MPI 4 did not recognise its launcher"},
		{"without PMIx", "OPENMPI", "--pmix=off", nil, "8", "1",
			"has Open MPI 5.|the likely reason: Open MPI supports only PMIx, and --pmix=off was " +
				"given; to fix it: leave out --pmix=off"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			python := os.Getenv("BRINGUPD_TEST_" + tc.mpi)
			if python == "" {
				t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has "+
					"it (make test installs it)", tc.mpi, tc.mpi)
			}
			args := []string{"local", "--nodes=2", "--ranks-per-node=1", "--log-dir=" + t.TempDir()}
			if tc.flag != "" {
				args = append(args, tc.flag)
			}
			args = append(append(append(args, "--"), tc.wrapper...), python, script, tc.seconds)
			job := exec.CommandContext(t.Context(), jobtest.Bringupd, args...)
			var said strings.Builder
			job.Stderr = &said
			out, err := job.Output()
			if err != nil || string(out) != tc.size+"\n"+tc.size+"\n" {
				t.Fatalf("%v, and they said %q\n%s", err, out, said.String())
			}
			if tc.warns == "" && strings.Contains(said.String(), "the likely reason") {
				t.Errorf("they are reported:\n%s", said.String())
			}
			for part := range strings.SplitSeq(tc.warns, "|") {
				if !strings.Contains(said.String(), part) {
					t.Errorf("it does not say %q\n%s", part, said.String())
				}
			}
		})
	}
}
