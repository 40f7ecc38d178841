package mpidetect

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process/execfile"
)

// LinkedMPI describes the MPI that a program would load.
type LinkedMPI struct {
	// Program is the file that was examined: the program itself, or the extension module of mpi4py.
	Program string `json:"program"`
	// Python is the interpreter whose mpi4py was examined; empty if the program is not Python.
	Python string   `json:"python,omitempty"`
	Module string   `json:"by,omitempty"`  // "mpi4py" with its version; empty without mpi4py
	MPI    *Library `json:"mpi,omitempty"` // nil if none
	// Missing is the MPI library that the program needs and the linker does not find.
	Missing string `json:"missing,omitempty"`
}

// String describes the result in a few words.
func (l LinkedMPI) String() string {
	switch {
	case l.Missing != "":
		return fmt.Sprintf("%s needs %s, which was not found", l.describeProgram(), l.Missing)
	case l.MPI != nil:
		return fmt.Sprintf("%s loads %s (%s)", l.describeProgram(), l.MPI, l.MPI.Path)
	case l.Python != "":
		return l.Python + " has no mpi4py"
	}
	return l.Program + " is not linked with an MPI"
}

// describeProgram returns the name of the program in the description.
func (l LinkedMPI) describeProgram() string {
	if l.Module != "" {
		return fmt.Sprintf("%s of %s", l.Module, l.Python)
	}
	return l.Program
}

// DetectLinked determines the MPI of a command in an environment. For a program, it follows the
// linker; for a Python, it examines mpi4py. It does not run the program, except a Python that is
// started by a script, to determine its executable. It returns an error if the command is neither,
// for example if it is a shell script.
func DetectLinked(ctx context.Context, argv, environ []string) (LinkedMPI, error) {
	return newLinker("/", environ).detectCommand(ctx, argv, environ)
}

// detectCommand implements [DetectLinked] with a linker for this environment.
func (l *linker) detectCommand(ctx context.Context, argv, environ []string) (LinkedMPI, error) {
	file, err := execfile.Resolve(argv[0], environ)
	if err != nil {
		return LinkedMPI{}, fmt.Errorf("cannot determine which MPI %s is linked with: %v", argv[0], err)
	}
	name := filepath.Base(argv[0])
	if program := scriptInterpreter(file, environ); isPython(filepath.Base(program)) && !isPython(name) {
		file, name = program, filepath.Base(program)
	}
	if isPython(name) {
		return l.detectPython(ctx, file, environ)
	}
	if !isELF(file) {
		return LinkedMPI{}, fmt.Errorf("cannot determine which MPI %s is linked with: it is a script, which may start any program", file)
	}
	return l.detectLinked(file)
}

// detectLinked determines the MPI that a program or library needs.
func (l *linker) detectLinked(file string) (linked LinkedMPI, err error) {
	linked.Program = file
	var at string
	err = l.walkLibraries(file, func(name, where string) bool {
		if !isMPILibrary(name) {
			return true
		}
		if at = where; at == "" {
			linked.Missing = name
		}
		return false
	})
	switch {
	case err != nil:
		return linked, fmt.Errorf("cannot determine which MPI %s is linked with: %v", file, err)
	case at == "" && linked.Missing == "" && hasStaticMPI(file):
		at = file
	case at == "":
		return linked, nil
	}
	lib, err := l.identifyLibrary(at)
	linked.MPI = &lib
	return linked, err
}

// hasStaticMPI reports whether a program contains an MPI, linked statically.
func hasStaticMPI(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	symbols, _ := f.Symbols() // stripped programs have none
	return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "MPI_Init" && s.Section != elf.SHN_UNDEF })
}

// isELF reports whether a file begins with the magic number of ELF.
func isELF(file string) bool { return bytes.HasPrefix(fileHead(file), []byte(elf.ELFMAG)) }

// isPython reports whether a program name is that of a Python: python, python3, python3.11.
func isPython(name string) bool {
	return strings.HasPrefix(name, "python") && strings.Trim(name, "python0123456789.") == ""
}

// scriptInterpreter returns the program that a script names in its first line; an empty string if
// the file is not a script.
func scriptInterpreter(file string, environ []string) string {
	line, _, _ := strings.Cut(string(fileHead(file)), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		found, err := execfile.Resolve(words[len(words)-1], environ)
		if err != nil {
			return ""
		}
		return found
	}
	return words[0]
}

// fileHead returns the first 256 bytes of a file; nil if it cannot be read.
func fileHead(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // shorter files have less
	return head[:n]
}
