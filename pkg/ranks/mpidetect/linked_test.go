package mpidetect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const empty = "int main(void) { return 0; }"

// TestPrograms inspects programs that find their MPI in each way that the linker supports.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	compiled(t, at("open/libpmix.so.2"), "int PMIx_Init(void) { return 0; }")
	compiled(t, at("open/libmpi.so.40"), openmpi, at("open/libpmix.so.2"), "-Wl,-rpath,$ORIGIN")
	compiled(t, at("mpich/libmpi.so.12"), mpich)
	compiled(t, at("intel/libmpi.so.12"), intel)
	open5 := &Library{Kind: OpenMPI, Version: "5.0.11", Path: at("open/libmpi.so.40")}
	intel2021 := &Library{Kind: Intel, Version: "2021.18.1", Path: at("intel/libmpi.so.12")}
	mpich5 := &Library{Kind: MPICH, Version: "5.0.2", Path: at("mpich/libmpi.so.12")}
	compiled(t, at("bin/nothing"), empty)
	compiled(t, at("bin/runpath"), empty, at("open/libmpi.so.40"), "-Wl,-rpath,$ORIGIN/../open,--enable-new-dtags")
	compiled(t, at("bin/rpath"), empty, at("mpich/libmpi.so.12"), "-Wl,-rpath,"+at("mpich")+",--disable-new-dtags")
	compiled(t, at("bin/bare"), empty, at("mpich/libmpi.so.12"), "-Wl,-rpath-link,"+at("mpich"))
	compiled(t, at("lib/libsolver.so"), "int solve(void) { return 0; }", at("intel/libmpi.so.12"),
		"-Wl,-rpath,"+at("intel"))
	compiled(t, at("bin/indirect"), empty, at("lib/libsolver.so"), "-Wl,-rpath,"+at("lib"))
	for _, tc := range []struct {
		name, program string
		libraryPath   string
		want          LinkedMPI
	}{
		{"without", "nothing", "", LinkedMPI{}},
		{"by RUNPATH", "runpath", "", LinkedMPI{MPI: open5}},
		{"LD_LIBRARY_PATH goes before RUNPATH", "runpath", at("other"), LinkedMPI{MPI: open5}},
		{"by RPATH", "rpath", "", LinkedMPI{MPI: mpich5}},
		{"RPATH goes before LD_LIBRARY_PATH", "rpath", at("intel"), LinkedMPI{MPI: mpich5}},
		{"nowhere", "bare", "", LinkedMPI{Missing: "libmpi.so.12"}},
		{"by LD_LIBRARY_PATH", "bare", at("none") + ":" + at("intel"), LinkedMPI{MPI: intel2021}},
		{"by a library of its own", "indirect", "", LinkedMPI{MPI: intel2021}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.Program = at("bin/" + tc.program)
			got, err := DetectLinked(t.Context(), []string{tc.program},
				[]string{"PATH=" + at("bin"), "LD_LIBRARY_PATH=" + tc.libraryPath})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProgramHere inspects a program of the working directory.
func TestProgramHere(t *testing.T) {
	t.Chdir(t.TempDir())
	compiled(t, "here", empty)
	got, err := DetectLinked(t.Context(), []string{"./here"}, []string{"PATH=/none"})
	if err != nil || got.MPI != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestUnknownPrograms(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "script"), "#!/bin/sh\nmpirun x\n")
	write(t, filepath.Join(dir, "broken"), "\x7fELF and no more")
	for name, want := range map[string]string{"script": "it is a script", "broken": "broken", "absent": "not found"} {
		_, err := DetectLinked(t.Context(), []string{name}, []string{"PATH=" + dir})
		if err == nil || !strings.HasPrefix(err.Error(), "cannot determine ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// venv creates a virtual environment whose mpi4py has these extensions, each with the libmpi that
// it needs, and returns its Python.
func venv(t *testing.T, dir string, libmpi string, extensions map[string]string) string {
	t.Helper()
	// The linker of this Python finds no libmpi of this machine.
	linker := write(t, filepath.Join(dir, "ld.so"), "#!/bin/sh\n"+
		"case $LD_LIBRARY_PATH in '') unset LD_PRELOAD ;; esac\nexec /lib64/ld-linux-x86-64.so.2 \"$@\"\n")
	python := compiled(t, filepath.Join(dir, "base/bin/python3.11"), empty, "-Wl,--dynamic-linker="+linker)
	if err := os.MkdirAll(filepath.Join(dir, "venv/bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "venv/bin/python")
	if err := os.Symlink(python, link); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "venv/pyvenv.cfg"),
		"home = "+filepath.Dir(python)+"\ninclude-system-site-packages = false\nversion = 3.11.7\n")
	package_ := filepath.Join(dir, "venv/lib/python3.11/site-packages/mpi4py")
	write(t, filepath.Join(package_, "__init__.py"), "")
	for name, needs := range extensions {
		made := compiled(t, filepath.Join(t.TempDir(), needs), "int mpi;")
		compiled(t, filepath.Join(package_, name), "int module;", made)
	}
	if libmpi != "" {
		compiled(t, filepath.Join(dir, "venv/lib", libmpi),
			map[string]string{"libmpi.so.40": openmpi, "libmpi.so.12": mpich}[libmpi])
	}
	return link
}

const (
	forOpenMPI = "MPI.openmpi.cpython-311-x86_64-linux-gnu.so"
	forMPICH   = "MPI.mpich.cpython-311-x86_64-linux-gnu.so"
	forOne     = "MPI.cpython-311-x86_64-linux-gnu.so"
)

// TestPythons inspects the mpi4py of environments.
func TestPythons(t *testing.T) {
	wheel := map[string]string{forOpenMPI: "libmpi.so.40", forMPICH: "libmpi.so.12"}
	others := t.TempDir()
	compiled(t, filepath.Join(others, "libmpi.so.12"), intel)
	// Otherwise a library of this machine is found first.
	if err := os.Symlink("libmpi.so.12", filepath.Join(others, "libmpi.so")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name       string
		libmpi     string // in the environment
		extensions map[string]string
		environ    string
		kind       Kind
		missing    string
	}{
		{"a wheel beside Open MPI", "libmpi.so.40", wheel, "", OpenMPI, ""},
		{"a wheel beside MPICH", "libmpi.so.12", wheel, "", MPICH, ""},
		{"the environment before LD_LIBRARY_PATH", "libmpi.so.12", wheel, "LD_LIBRARY_PATH=" + others, MPICH, ""},
		{"a wheel without an MPI beside it", "", wheel, "LD_LIBRARY_PATH=" + others, Intel, ""},
		{"a wheel without an MPI", "", wheel, "", "", "libmpi.so"},
		{"MPI4PY_LIBMPI", "libmpi.so.40", wheel, "MPI4PY_LIBMPI=" + filepath.Join(others, "libmpi.so.12"), Intel, ""},
		{"built for one that does not exist", "", map[string]string{forOne: "libmpi.so.77"}, "", "", "libmpi.so.77"},
		{"built for one", "", map[string]string{forOne: "libmpi.so.12"}, "LD_LIBRARY_PATH=" + others, Intel, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			python := venv(t, t.TempDir(), tc.libmpi, tc.extensions)
			script := write(t, filepath.Join(t.TempDir(), "ring"), "#!"+python+"\nimport mpi4py\n")
			for _, argv := range [][]string{{python, "ring.py"}, {script}} {
				got, err := DetectLinked(t.Context(), argv, []string{tc.environ, "HOME=/nonexistent"})
				if err != nil {
					t.Fatal(err)
				}
				var kind Kind
				if got.MPI != nil {
					kind = got.MPI.Kind
				}
				if kind != tc.kind || got.Missing != tc.missing || got.Python != python {
					t.Errorf("%+v: %v", got, got)
				}
			}
		})
	}
	python := venv(t, t.TempDir(), "", nil)
	if _, err := DetectLinked(t.Context(), []string{python}, nil); err == nil {
		t.Error("an mpi4py without an extension module is accepted")
	}
	if err := os.RemoveAll(filepath.Join(filepath.Dir(filepath.Dir(python)), "lib")); err != nil {
		t.Fatal(err)
	}
	if got, err := DetectLinked(t.Context(), []string{python}, nil); err != nil ||
		got.String() != python+" has no mpi4py" {
		t.Errorf("without mpi4py: %v, %v", got, err)
	}
}
