package mpidetect

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/process"
)

// LinkedMPI describes the MPI that a program would load.
type LinkedMPI struct {
	Program string `json:"program"`
	// Python is the interpreter whose mpi4py was examined; empty if the program is not Python.
	Python string   `json:"python,omitempty"`
	MPI    *Library `json:"mpi,omitempty"` // nil if none
	// Missing is the MPI library that the program needs and the linker does not find.
	Missing string `json:"missing,omitempty"`
}

// String describes the result in a few words.
func (l LinkedMPI) String() string {
	program := l.Program
	if l.Python != "" {
		program = "mpi4py of " + l.Python
	}
	switch {
	case l.Missing != "":
		return fmt.Sprintf("%s needs %s, which was not found", program, l.Missing)
	case l.MPI != nil:
		return fmt.Sprintf("%s loads %s (%s)", program, l.MPI, l.MPI.Path)
	case l.Python != "":
		return l.Python + " has no mpi4py"
	}
	return program + " is not linked with an MPI"
}

// DetectLinked determines the MPI of a command in an environment, without running the command: for
// a program, the MPI that it is linked with; for a Python, that of its mpi4py. It returns an error if
// the command is neither, for example if it is a shell script.
func DetectLinked(ctx context.Context, argv, environ []string) (LinkedMPI, error) {
	file, isPython, err := resolveProgram(argv, environ)
	if err != nil {
		return LinkedMPI{}, err
	}
	if isPython {
		p, err := inspectPython(file, environ)
		if err != nil {
			return LinkedMPI{}, err
		}
		return p.detectMPI4Py(ctx)
	}
	l, err := linkerOf(file, environ)
	if err != nil {
		return LinkedMPI{}, err
	}
	return l.detectMPI(ctx, file)
}

func (l dynamicLinker) detectMPI(ctx context.Context, file string) (LinkedMPI, error) {
	linked := LinkedMPI{Program: file}
	libraries, err := l.listLibraries(ctx, file)
	if err != nil {
		return linked, err
	}
	at := slices.IndexFunc(libraries, func(lib library) bool { return isMPILibrary(lib.name) })
	switch {
	case at < 0:
		return linked, nil
	case libraries[at].path == "":
		linked.Missing = libraries[at].name
		return linked, nil
	}
	lib, err := identifyLibrary(libraries[at].path)
	linked.MPI = &lib
	return linked, err
}

// resolveProgram returns the program that is executed for a command: the Python for a script of a
// Python. It returns an error for other scripts.
func resolveProgram(argv, environ []string) (file string, isPython bool, err error) {
	file, err = process.ResolveProgram(argv[0], environ)
	if err != nil {
		return "", false, fmt.Errorf("cannot determine which MPI %s is linked with: %v", argv[0], err)
	}
	name := filepath.Base(argv[0])
	if program := scriptInterpreter(file, environ); isPythonName(filepath.Base(program)) && !isPythonName(name) {
		file, name = program, filepath.Base(program)
	}
	if !isELF(file) { // such as a python of pyenv
		return "", false, fmt.Errorf("cannot determine which MPI %s is linked with: it is a script, which may "+
			"start any program", file)
	}
	return file, isPythonName(name), nil
}

func isELF(file string) bool { return bytes.HasPrefix(process.ReadHead(file), []byte(elf.ELFMAG)) }

func isPythonName(name string) bool {
	return strings.HasPrefix(name, "python") && strings.Trim(name, "python0123456789.") == ""
}

func scriptInterpreter(file string, environ []string) string {
	line, _, _ := strings.Cut(string(process.ReadHead(file)), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		found, _ := process.ResolveProgram(words[len(words)-1], environ) // empty if there is none
		return found
	}
	return words[0]
}

// UnneededPrefix is the prefix of the reason why a program is not served PMIx because it is known
// not to use it.
const UnneededPrefix = "the program seems not to use PMIx: "

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
	file, isPython, err := resolveProgram(argv, environ)
	if err != nil {
		return ""
	}
	if isPython {
		if p, err := inspectPython(file, environ); err != nil || p.mayLoadMPI(ctx) {
			return ""
		}
		return UnneededPrefix + file + " finds no MPI"
	}
	l, err := linkerOf(file, environ)
	if err != nil || usesLoader(file) {
		return ""
	}
	libraries, err := l.listLibraries(ctx, file)
	if err != nil || slices.ContainsFunc(libraries, func(lib library) bool {
		return lib.path == "" ||
			isPMILibrary(lib.name)
	}) {
		return ""
	}
	for _, lib := range libraries {
		if isMPILibrary(lib.name) {
			return reasonOnlyPMI1(file, lib.path, environ)
		}
	}
	if slices.ContainsFunc(libraries, func(lib library) bool { return usesLoader(lib.path) }) {
		return ""
	}
	return UnneededPrefix + file + " is not linked with an MPI"
}

func reasonOnlyPMI1(program, libmpi string, environ []string) string {
	mpi, err := identifyLibrary(libmpi)
	other, _ := envlist.Lookup(environ, "I_MPI_PMI_LIBRARY")
	if err != nil || !slices.Contains([]Kind{MPICH, MVAPICH, Intel}, mpi.Kind) || mpi.Kind == Intel && other != "" {
		return ""
	}
	return fmt.Sprintf("%s%s is linked with %s (%s), which has only PMI-1", UnneededPrefix, program, mpi, libmpi)
}
