package mpidetect

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil/lazyregexp"
	"github.com/bringupd/bringupd/pkg/process"
)

// pythonInstall describes a Python installation, as its files do.
type pythonInstall struct {
	file     string // path of the executable, in its environment if it has one
	prefix   string // prefix of that environment, or base
	base     string // installation prefix of the Python itself
	version  string // such as "3.11"; empty if unknown
	isolated bool   // does not use the packages of its base and its user
	environ  []string
}

// pythonTimeout is the timeout for a Python to report its executable.
const pythonTimeout = 5 * time.Second

// detectPython determines the MPI that mpi4py of a Python would load.
func (l *linker) detectPython(ctx context.Context, file string, environ []string) (LinkedMPI, error) {
	if !isELF(file) { // for example a script of pyenv
		told, err := queryExecutable(ctx, file, environ)
		if err != nil {
			return LinkedMPI{}, fmt.Errorf("cannot determine which MPI %s would load: it is a script, and running it did not show its Python: %v", file, err)
		}
		file = told
	}
	// Find mpi4py and the MPI library that it loads.
	p := inspectPython(file, environ)
	dir := p.findPackage("mpi4py")
	if dir == "" {
		return LinkedMPI{Program: file, Python: file}, nil
	}
	extension, libmpi := l.mpi4pyExtension(p, dir)
	if extension == "" {
		return LinkedMPI{}, fmt.Errorf("cannot determine which MPI %s would load: %s has no extension MPI.*.so", file, dir)
	}
	if libmpi != "" {
		l.preloaded, _ = openObject(libmpi) // loaded by its path; ignored if it cannot be read
	}
	linked, err := l.detectLinked(extension)
	linked.Python, linked.Module = file, strings.TrimSpace("mpi4py "+packageVersion(dir))
	return linked, err
}

// queryExecutable runs a Python to determine its executable.
func queryExecutable(ctx context.Context, file string, environ []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pythonTimeout, fmt.Errorf("it did not answer within %s", pythonTimeout))
	defer cancel()
	said := &process.HeadBuffer{MaxBytes: 4096}
	err := process.Command{Argv: []string{file, "-I", "-S", "-c", "import sys; print(sys.executable)"}, Env: environ, Stdout: said, Stderr: said}.Run(ctx)
	told := strings.TrimSpace(said.String())
	switch {
	case err != nil:
		return "", err
	case !isELF(told):
		return "", fmt.Errorf("it printed %q", told)
	}
	return told, nil
}

// inspectPython reads the configuration of a Python, from which its package directories follow.
func inspectPython(file string, environ []string) pythonInstall {
	p := pythonInstall{file: file, prefix: filepath.Dir(filepath.Dir(file)), environ: environ}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	p.base = filepath.Dir(filepath.Dir(real))
	text, err := os.ReadFile(filepath.Join(p.prefix, "pyvenv.cfg"))
	if err != nil {
		p.prefix = p.base
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "include-system-site-packages":
			p.isolated = value == "false"
		case "version", "version_info":
			p.version = majorMinor(value)
		}
	}
	if p.version == "" {
		p.version = majorMinor(strings.TrimPrefix(filepath.Base(real), "python"))
	}
	return p
}

// majorMinor returns the first two components of a version: 3.11 for 3.11.7. It returns an empty
// string if there are fewer.
func majorMinor(version string) string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// findPackage returns the directory of a package, searched in Python's order; an empty string if it
// is not found.
func (p pythonInstall) findPackage(name string) string {
	for _, place := range p.packageDirs() {
		found, _ := filepath.Glob(filepath.Join(place, name, "__init__.py"))
		if len(found) > 0 {
			return filepath.Dir(found[0])
		}
	}
	return ""
}

// packageDirs returns patterns of the directories that may contain packages, in Python's order.
func (p pythonInstall) packageDirs() []string {
	var dirs []string
	paths, _ := envlist.Lookup(p.environ, "PYTHONPATH")
	dirs = append(dirs, filepath.SplitList(paths)...)
	lib := "python" + cmp.Or(p.version, "3*")
	dirs = append(dirs, filepath.Join(p.prefix, "lib*", lib, "site-packages"))
	if p.isolated {
		return dirs
	}
	if user := p.userPrefix(); user != "" {
		dirs = slices.Insert(dirs, len(dirs)-1, filepath.Join(user, "lib", lib, "site-packages"))
	}
	for _, base := range slices.Compact([]string{p.base, "/usr/local"}) {
		if base == "/usr/local" && p.base != "/usr" {
			continue // only Debian's Python uses both
		}
		dirs = append(dirs, filepath.Join(base, "lib*", lib, "site-packages"), filepath.Join(base, "lib", lib, "dist-packages"))
	}
	if p.base == "/usr" {
		dirs = append(dirs, "/usr/lib/python3/dist-packages")
	}
	return dirs
}

// userPrefix returns the prefix of the user's own packages.
func (p pythonInstall) userPrefix() string {
	if base, set := envlist.Lookup(p.environ, "PYTHONUSERBASE"); set {
		return base
	}
	if home, set := envlist.Lookup(p.environ, "HOME"); set && home != "" {
		return filepath.Join(home, ".local")
	}
	return ""
}

var versionPattern = lazyregexp.CompileLazily(`(?m)^__version__ = ['"]([^'"]+)['"]`)

// packageVersion returns the version of the package in a directory; an empty string if it is
// unknown.
func packageVersion(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "__init__.py"))
	if m := versionPattern().FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// mpi4pyExtension returns the extension module of mpi4py that would be loaded, and the libmpi that
// is loaded before it; empty strings if there is none. The wheels of mpi4py since 4.1 contain one
// module for each ABI, and choose by the first libmpi that they find.
func (l *linker) mpi4pyExtension(p pythonInstall, dir string) (extension, libmpi string) {
	found, _ := filepath.Glob(filepath.Join(dir, "MPI.*.so"))
	if len(found) == 0 {
		return "", ""
	}
	abi, set := envlist.Lookup(p.environ, "MPI4PY_MPIABI")
	if libmpi = l.firstLibmpi(p); !set {
		abi = l.abiName(libmpi)
	}
	abi = strings.NewReplacer("impi", "mpich", " ", "", "-", "", "_", "").Replace(strings.ToLower(abi))
	for _, file := range found {
		if strings.HasPrefix(filepath.Base(file), "MPI."+abi+".") && abi != "" {
			return file, libmpi
		}
	}
	if plain := slices.IndexFunc(found, func(file string) bool { return !isForABI(file) }); plain >= 0 {
		return found[plain], ""
	}
	return found[0], libmpi
}

// isForABI reports whether an extension module is for one of several ABIs.
func isForABI(file string) bool {
	_, rest, _ := strings.Cut(filepath.Base(file), ".")
	abi, _, _ := strings.Cut(rest, ".")
	return slices.Contains([]string{"mpich", "openmpi", "mpiabi", "impi", "msmpi"}, abi)
}

// abiName returns mpi4py's name for the ABI of a libmpi.
func (l *linker) abiName(libmpi string) string {
	if libmpi == "" {
		return ""
	}
	lib, err := l.identifyLibrary(libmpi)
	switch {
	case err != nil:
		return ""
	case lib.Kind == OpenMPI:
		return "openmpi"
	}
	return "mpich"
}

// firstLibmpi returns the first libmpi that mpi4py would find; an empty string if it finds none.
func (l *linker) firstLibmpi(p pythonInstall) string {
	// the first may be a text file for compilers
	names := []string{"libmpi.so", "libmpi.so.12", "libmpi.so.40"}
	var dirs []string
	if own, set := envlist.Lookup(p.environ, "MPI4PY_LIBMPI"); set {
		dirs = filepath.SplitList(own)
	} else {
		for _, prefix := range []string{p.prefix, p.userPrefix(), p.base} {
			if prefix != "/usr" && prefix != "" {
				dirs = append(dirs, filepath.Join(prefix, "lib"))
			}
		}
	}
	for _, dir := range dirs {
		if file := existingFile(dir); file != "" {
			return file
		}
		for _, name := range names {
			if file := existingFile(filepath.Join(dir, name)); file != "" && isELF(file) {
				return file
			}
		}
	}
	for _, name := range names {
		if file := l.findLibrary(name, nil, nil); file != "" && isELF(file) {
			return file
		}
	}
	return ""
}
