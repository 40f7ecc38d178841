//go:build mpi

package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/jobtest"
)

// TestOwnMPIRun checks that a driver's mpirun finds the nodes of a local run, which are all this
// machine, with the slots of all nodes.
func TestOwnMPIRun(t *testing.T) {
	beside := func(name string) string {
		return filepath.Join(filepath.Dir(os.Getenv("BRINGUPD_TEST_"+name)), "mpirun")
	}
	for name, launcher := range map[string]string{"OPENMPI4": "mpirun.openmpi",
		"OPENMPI": beside("OPENMPI"), "MPICH": beside("MPICH")} {
		t.Run(name, func(t *testing.T) {
			python := os.Getenv("BRINGUPD_TEST_" + name)
			if python == "" {
				t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has "+
					"it (make test installs it)", name, name)
			}
			job := exec.CommandContext(t.Context(), jobtest.Bringupd, "local",
				"--nodes=2", "--slots-per-node=2", "--log-dir="+t.TempDir(),
				"--", launcher, "-n", "2", python, "../e2e/testdata/mpirun_ring.py", "3")
			job.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1",
				"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			var said strings.Builder
			job.Stderr = &said
			out, err := job.Output()
			if code := job.ProcessState.ExitCode(); code != 3 ||
				!strings.HasPrefix(string(out), "ring of 2 on ") {
				t.Errorf("it ended with %d (%v) and said %q\n%s", code, err, out, said.String())
			}
		})
	}
}

// TestDriverWithMPI checks that a driver with an MPI that was not started by a launcher, and so
// forms a world of one, causes a hint to --ranks=1. A driver that its own mpirun has started must
// not.
func TestDriverWithMPI(t *testing.T) {
	for name, launcher := range map[string]string{"OPENMPI": "", "MPICH": "",
		"MPICH below its mpirun": "mpirun"} {
		t.Run(name, func(t *testing.T) {
			mpi, _, _ := strings.Cut(name, " ")
			python := os.Getenv("BRINGUPD_TEST_" + mpi)
			if python == "" {
				t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has "+
					"it (make test installs it)", mpi, mpi)
			}
			driver := []string{python, "-c", "import time; from mpi4py import MPI; time.sleep(8)"}
			if launcher != "" {
				driver = append([]string{filepath.Join(filepath.Dir(python), launcher), "-n", "1"},
					driver...)
			}
			argv := append([]string{"local", "--nodes=3", "--log-dir=" + t.TempDir(), "--"},
				driver...)
			job := exec.CommandContext(t.Context(), jobtest.Bringupd, argv...)
			var said strings.Builder
			job.Stderr = &said
			if err := job.Run(); err != nil {
				t.Fatalf("%v\n%s", err, said.String())
			}
			const words = "but no MPI launcher started it: it is a world of 1 rank"
			if want := 1 - min(len(launcher), 1); strings.Count(said.String(), words) != want ||
				strings.Count(said.String(),
					"with --ranks=1 it can spawn ranks on all 3 nodes") != want {
				t.Errorf("it was reported %d times, want %d\n%s",
					strings.Count(said.String(), words), want, said.String())
			}
		})
	}
}

// TestStartedByMPIRun checks an mpirun that starts the daemons itself, one on each of three nodes
// that are all this machine. An agent runs its remote commands locally. Open MPI 4 is omitted: it
// sometimes hangs if several of its daemons run on one machine.
func TestStartedByMPIRun(t *testing.T) {
	dir := t.TempDir()
	agent, hosts := filepath.Join(dir, "agent"), filepath.Join(dir, "hosts")
	for path, text := range map[string]string{agent: "#!/bin/sh\nshift\nexec /bin/sh -c \"$*\"\n",
		hosts: "n1\nn2\nn3\n"} {
		//nolint:gosec // one of them is run
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	openMPI := []string{"--hostfile", hosts, "--map-by", "ppr:1:node"}
	hydra := []string{"-launcher", "rsh", "-launcher-exec", agent, "-f", hosts, "-ppn",
		"1", "-n", "3"}
	beside := func(name string) string {
		return filepath.Join(filepath.Dir(os.Getenv("BRINGUPD_TEST_"+name)), "mpiexec")
	}
	for _, tc := range []struct {
		name, mpirun string
		argv, flags  []string
		run          string // prefix of the run's name
	}{
		{"OPENMPI", beside("OPENMPI"), openMPI, nil, "prterun-"},
		{"MPICH4", "mpiexec.hydra", hydra, []string{"--job-id=a17"}, "a17"},
		{"MPICH", beside("MPICH"), hydra, []string{"--job-id=a17"}, "a17"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs := t.TempDir()
			argv := slices.Concat(tc.argv,
				[]string{jobtest.Bringupd, "--gpu-check=off", "--log-dir=" + logs},
				tc.flags,
				[]string{"--", "sh", "-c",
					"echo $BRINGUPD_NODE_COUNT nodes in $BRINGUPD_RUN; exit 3"})
			job := exec.CommandContext(t.Context(), tc.mpirun, argv...)
			job.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1",
				"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
				"PRTE_MCA_plm=ssh", "PRTE_MCA_plm_ssh_agent="+agent)
			var said strings.Builder
			job.Stderr = &said
			out, err := job.Output()
			if code := job.ProcessState.ExitCode(); code != 3 ||
				!strings.Contains(string(out), "3 nodes in "+tc.run) {
				t.Errorf("it ended with %d (%v) and said %q\n%s", code, err, out, said.String())
			}
		})
	}
}
