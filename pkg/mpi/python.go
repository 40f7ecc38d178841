package mpi

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pattern"
	"github.com/bringupd/bringupd/pkg/process"
)

// python is one as its files tell.
type python struct {
	file     string // it, in its environment
	prefix   string // of that environment
	base     string // where the Python itself is
	version  string // "3.11"; empty: not told
	isolated bool   // it does not see what its base and its user have
	environ  []string
}

// pythonTime is for how long a Python may take to tell where it is.
const pythonTime = 5 * time.Second

// ofPython looks for what mpi4py of a Python would load.
func (l *linker) ofPython(ctx context.Context, file string, environ []string) (Linked, error) {
	if !isELF(file) { // as pyenv's are
		told, err := tells(ctx, file, environ)
		if err != nil {
			return Linked{}, fmt.Errorf("cannot tell which MPI %s would load: it is a script, which has not told its Python: %v", file, err)
		}
		file = told
	}
	p := pythonAt(file, environ)
	dir := p.find("mpi4py")
	if dir == "" {
		return Linked{Program: file, Python: file}, nil
	}
	extension, libmpi := l.extension(p, dir)
	if extension == "" {
		return Linked{}, fmt.Errorf("cannot tell which MPI %s would load: %s has no extension MPI.*.so", file, dir)
	}
	if libmpi != "" {
		l.own, _ = openObject(libmpi) // mpi4py loads it by its path; one that can't be read is none
	}
	linked, err := l.of(extension)
	linked.Python, linked.By = file, strings.TrimSpace("mpi4py "+versionIn(dir))
	return linked, err
}

// tells has a Python tell its own file.
func tells(ctx context.Context, file string, environ []string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pythonTime, fmt.Errorf("there was no answer within %s", pythonTime))
	defer cancel()
	said := &process.Beginning{Most: 4096}
	err := process.Command{Argv: []string{file, "-I", "-S", "-c", "import sys; print(sys.executable)"}, Env: environ, Stdout: said, Stderr: said}.Run(ctx)
	told := strings.TrimSpace(said.String())
	switch {
	case err != nil:
		return "", err
	case !isELF(told):
		return "", fmt.Errorf("it says %q", told)
	}
	return told, nil
}

// pythonAt reads where a Python has what it imports.
func pythonAt(file string, environ []string) python {
	p := python{file: file, prefix: filepath.Dir(filepath.Dir(file)), environ: environ}
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
			p.version = twoParts(value)
		}
	}
	if p.version == "" {
		p.version = twoParts(strings.TrimPrefix(filepath.Base(real), "python"))
	}
	return p
}

// twoParts is the version of which libraries are: 3.11 of 3.11.7; empty for what has no two parts.
func twoParts(version string) string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// find returns the directory of a package, which is looked for as Python does; empty: there is none.
func (p python) find(name string) string {
	for _, place := range p.places() {
		found, _ := filepath.Glob(filepath.Join(place, name, "__init__.py"))
		if len(found) > 0 {
			return filepath.Dir(found[0])
		}
	}
	return ""
}

// places are where packages may be, as patterns, in Python's order.
func (p python) places() []string {
	var dirs []string
	paths, _ := process.LookupEnv(p.environ, "PYTHONPATH")
	dirs = append(dirs, filepath.SplitList(paths)...)
	lib := "python" + cmp.Or(p.version, "3*")
	dirs = append(dirs, filepath.Join(p.prefix, "lib*", lib, "site-packages"))
	if p.isolated {
		return dirs
	}
	if user := p.user(); user != "" {
		dirs = slices.Insert(dirs, len(dirs)-1, filepath.Join(user, "lib", lib, "site-packages"))
	}
	for _, base := range slices.Compact([]string{p.base, "/usr/local"}) {
		if base == "/usr/local" && p.base != "/usr" {
			continue // it is Debian's that has both
		}
		dirs = append(dirs, filepath.Join(base, "lib*", lib, "site-packages"), filepath.Join(base, "lib", lib, "dist-packages"))
	}
	if p.base == "/usr" {
		dirs = append(dirs, "/usr/lib/python3/dist-packages")
	}
	return dirs
}

// user is where a user's own packages are below.
func (p python) user() string {
	if base, set := process.LookupEnv(p.environ, "PYTHONUSERBASE"); set {
		return base
	}
	if home, set := process.LookupEnv(p.environ, "HOME"); set && home != "" {
		return filepath.Join(home, ".local")
	}
	return ""
}

var dunderVersion = pattern.New(`(?m)^__version__ = ['"]([^'"]+)['"]`)

// versionIn is the version that a package tells; empty: it tells none.
func versionIn(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "__init__.py"))
	if m := dunderVersion().FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// extension returns the extension of mpi4py that would be loaded, and the libmpi that is loaded before it; empty: there is none. The wheels of
// mpi4py from 4.1 on have one for each ABI, and choose by the libmpi that they find first.
func (l *linker) extension(p python, dir string) (extension, libmpi string) {
	found, _ := filepath.Glob(filepath.Join(dir, "MPI.*.so"))
	if len(found) == 0 {
		return "", ""
	}
	abi, set := process.LookupEnv(p.environ, "MPI4PY_MPIABI")
	if libmpi = l.firstLibmpi(p); !set {
		abi = l.abiOf(libmpi)
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

// isForABI tells whether an extension is for one ABI among others.
func isForABI(file string) bool {
	_, rest, _ := strings.Cut(filepath.Base(file), ".")
	abi, _, _ := strings.Cut(rest, ".")
	return slices.Contains([]string{"mpich", "openmpi", "mpiabi", "impi", "msmpi"}, abi)
}

// abiOf is the word that mpi4py has for the ABI of a libmpi.
func (l *linker) abiOf(libmpi string) string {
	if libmpi == "" {
		return ""
	}
	lib, err := l.identify(libmpi)
	switch {
	case err != nil:
		return ""
	case lib.Kind == OpenMPI:
		return "openmpi"
	}
	return "mpich"
}

// firstLibmpi is the libmpi that mpi4py finds first; empty: it finds none.
func (l *linker) firstLibmpi(p python) string {
	names := []string{"libmpi.so", "libmpi.so.12", "libmpi.so.40"} // the first of which may be a text for compilers
	var dirs []string
	if own, set := process.LookupEnv(p.environ, "MPI4PY_LIBMPI"); set {
		dirs = filepath.SplitList(own)
	} else {
		for _, prefix := range []string{p.prefix, p.user(), p.base} {
			if prefix != "/usr" && prefix != "" {
				dirs = append(dirs, filepath.Join(prefix, "lib"))
			}
		}
	}
	for _, dir := range dirs {
		if file := isThere(dir); file != "" {
			return file
		}
		for _, name := range names {
			if file := isThere(filepath.Join(dir, name)); file != "" && isELF(file) {
				return file
			}
		}
	}
	for _, name := range names {
		if file := l.find(name, nil, nil); file != "" && isELF(file) {
			return file
		}
	}
	return ""
}
