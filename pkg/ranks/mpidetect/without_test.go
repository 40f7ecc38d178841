package mpidetect

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWithoutPMIx verifies that only programs that are known not to use PMIx are classified so. All
// others may use it.
func TestWithoutPMIx(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	compiled(t, at("open/libmpi.so.40"), openmpi)
	compiled(t, at("bin/plain"), empty)
	compiled(t, at("bin/static"), empty, "-static")
	compiled(t, at("bin/stripped"), empty, "-static", "-s")
	compiled(t, at("bin/execs"), "#include <unistd.h>\nint main(int n, char **a) { return execvp(a[1], a + 1); }")
	const loads = "#include <dlfcn.h>\nint main(int n, char **a) { return dlopen(a[1], 1) == 0; }"
	compiled(t, at("bin/loads"), loads, "-ldl")
	compiled(t, at("lib/libplugins.so"), "#include <dlfcn.h>\nvoid *load(char *f) { return dlopen(f, 1); }", "-ldl")
	compiled(t, at("bin/plugins"), empty, "-Wl,--no-as-needed", at("lib/libplugins.so"), "-Wl,-rpath,"+at("lib"))
	compiled(t, at("bin/solver"), empty, at("open/libmpi.so.40"), "-Wl,-rpath,"+at("open"))
	compiled(t, at("mpich/libmpi.so.12"), mpich)
	compiled(t, at("bin/mpich"), empty, at("mpich/libmpi.so.12"), "-Wl,-rpath,"+at("mpich"))
	compiled(t, at("bin/mpich-loads"), loads, "-ldl", "-Wl,--no-as-needed", at("mpich/libmpi.so.12"),
		"-Wl,-rpath,"+at("mpich"))
	compiled(t, at("pmix/libpmix.so.2"), "int pmix;")
	compiled(t, at("pmix/libmpi.so.12"), mpich, "-Wl,--no-as-needed", at("pmix/libpmix.so.2"), "-Wl,-rpath,"+at("pmix"))
	compiled(t, at("bin/mpich-pmix"), empty, at("pmix/libmpi.so.12"), "-Wl,-rpath,"+at("pmix"))
	compiled(t, at("bin/lacks"), empty, at("open/libmpi.so.40"), "-Wl,-rpath-link,"+at("open"))
	write(t, at("bin/script"), "#!/bin/sh\nexec plain\n")
	goBinary, err := exec.LookPath("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		argv    []string
		environ []string
		without bool
	}{
		"a program without an MPI": {[]string{"plain"}, nil, true},
		// Its C library contains dlopen.
		"linked statically":                      {[]string{"static"}, nil, false},
		"stripped":                               {[]string{"stripped"}, nil, false},
		"it may start others, as env does":       {[]string{"execs"}, nil, false},
		"it may load plugins":                    {[]string{"loads"}, nil, false},
		"its library may":                        {[]string{"plugins"}, nil, false},
		"linked with an MPI":                     {[]string{"solver"}, nil, false},
		"linked with one that has only PMI-1":    {[]string{"mpich"}, nil, true},
		"the same, which may load another":       {[]string{"mpich-loads"}, nil, false},
		"the same MPI, built with PMIx":          {[]string{"mpich-pmix"}, nil, false},
		"linked with one that does not exist":    {[]string{"lacks"}, nil, false},
		"a library is loaded before it":          {[]string{"plain"}, []string{"LD_PRELOAD=/lib/libtool.so"}, false},
		"a shell script":                         {[]string{"script"}, nil, false},
		"a shell":                                {[]string{"sh", "-c", "plain"}, nil, false},
		"a program of Go, as apptainer is":       {[]string{goBinary}, nil, false},
		"not there":                              {[]string{"nothing"}, nil, false},
		"conda run, whatever its command may be": {[]string{"conda", "run", "python"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			environ := append([]string{"PATH=" + at("bin") + ":/usr/bin:/bin"}, tc.environ...)
			got := WithoutPMIx(t.Context(), tc.argv, environ)
			if (got != "") != tc.without || got != "" && !strings.HasPrefix(got, UnneededPrefix) {
				t.Errorf("the reason is %q", got)
			}
		})
	}
}

// TestPythonsWithoutPMIx verifies that a Python is classified by the MPIs that it could load.
func TestPythonsWithoutPMIx(t *testing.T) {
	const site = "lib/python3.11/site-packages/"
	const torch, torchLib = site + "torch/", site + "torch/lib/libtorch_cpu.so"
	for name, tc := range map[string]struct {
		files map[string]string // in the environment, by their kind
		finds bool
	}{
		"bare":                       {nil, false},
		"a package of another kind":  {map[string]string{site + "numpy/__init__.py": ""}, false},
		"mpi4py":                     {map[string]string{site + "mpi4py/__init__.py": ""}, true},
		"horovod":                    {map[string]string{site + "horovod/__init__.py": ""}, true},
		"an MPI in the environment":  {map[string]string{"lib/libmpi.so.40": openmpi}, true},
		"torch":                      {map[string]string{torch + "__init__.py": "", torchLib: "int torch;"}, false},
		"torch with its backend mpi": {map[string]string{torch + "__init__.py": "", torchLib: "needs MPI"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			link := venv(t, root, "", nil)
			env := filepath.Join(root, "venv")
			if err := os.RemoveAll(filepath.Join(env, "lib")); err != nil {
				t.Fatal(err)
			}
			for file, content := range tc.files {
				switch path := filepath.Join(env, file); {
				case content == "needs MPI":
					compiled(t, path, "int torch;", "-Wl,--no-as-needed",
						compiled(t, filepath.Join(t.TempDir(), "libmpi.so.40"), "int mpi;"))
				case content != "":
					compiled(t, path, content)
				default:
					write(t, path, "")
				}
			}
			reason := WithoutPMIx(t.Context(), []string{link}, []string{"HOME=/nonexistent"})
			if (reason == "") != tc.finds {
				t.Errorf("the reason is %q", reason)
			}
		})
	}
}
