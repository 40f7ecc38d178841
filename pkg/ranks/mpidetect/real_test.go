//go:build mpi

package mpidetect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealMPIs distinguishes the five MPIs that this machine must have, by the mpi4py of each and
// by a program.
func TestRealMPIs(t *testing.T) {
	for _, tc := range []struct {
		variable string // of the environment: a Python
		kind     Kind
		major    string
	}{
		{"BRINGUPD_TEST_OPENMPI4", OpenMPI, "4."},
		{"BRINGUPD_TEST_OPENMPI", OpenMPI, "5."},
		{"BRINGUPD_TEST_MPICH", MPICH, "5."},
		{"BRINGUPD_TEST_INTEL", Intel, "2021."},
	} {
		t.Run(tc.variable, func(t *testing.T) {
			python := os.Getenv(tc.variable)
			if python == "" {
				t.Fatalf("%s must be a python that has mpi4py for %s", tc.variable, tc.kind)
			}
			got, err := DetectLinked(t.Context(), []string{python, "-m", "mpi4py"}, os.Environ())
			if err != nil || got.MPI == nil || got.MPI.Kind != tc.kind ||
				!strings.HasPrefix(got.MPI.Version, tc.major) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	t.Run("MPICH of Debian", func(t *testing.T) {
		files, _ := filepath.Glob("/usr/lib/*/libmpich.so.12")
		if len(files) == 0 {
			t.Fatal("there is no libmpich.so.12")
		}
		program := compiled(t, filepath.Join(t.TempDir(), "ring"), empty, files[0])
		got, err := DetectLinked(t.Context(), []string{program}, os.Environ())
		if err != nil || got.MPI == nil || got.MPI.Kind != MPICH || !strings.HasPrefix(got.MPI.Version, "4.") {
			t.Errorf("%v, %v", got, err)
		}
	})
}
