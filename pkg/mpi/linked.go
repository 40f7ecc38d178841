package mpi

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Linked describes the MPI that a program would load.
type Linked struct {
	// Program is the file that was examined: the program itself, or the extension module of mpi4py.
	Program string `json:"program"`
	// Python is the interpreter whose mpi4py was examined; empty if the program is not Python.
	Python string   `json:"python,omitempty"`
	By     string   `json:"by,omitempty"`  // "mpi4py" with its version; empty without mpi4py
	MPI    *Library `json:"mpi,omitempty"` // nil if none
	// Missing is the MPI library that the program needs and the linker does not find.
	Missing string `json:"missing,omitempty"`
}

// String describes the result in a few words.
func (l Linked) String() string {
	switch {
	case l.Missing != "":
		return fmt.Sprintf("%s needs %s, which is not found", l.subject(), l.Missing)
	case l.MPI != nil:
		return fmt.Sprintf("%s loads %s (%s)", l.subject(), l.MPI, l.MPI.Path)
	case l.Python != "":
		return l.Python + " has no mpi4py"
	}
	return l.Program + " is linked with no MPI"
}

// subject returns the name of the program in the description.
func (l Linked) subject() string {
	if l.By != "" {
		return fmt.Sprintf("%s of %s", l.By, l.Python)
	}
	return l.Program
}

// Of determines the MPI of a command in an environment. For a program, it follows the linker; for a
// Python, it examines mpi4py. It does not run the program, except a Python that is started by a
// script, to determine its executable. It returns an error if the command is neither, for example
// if it is a shell script.
func Of(ctx context.Context, argv, environ []string) (Linked, error) {
	file, err := process.Which(argv[0], environ)
	if err != nil {
		return Linked{}, fmt.Errorf("cannot tell which MPI %s is linked with: %v", argv[0], err)
	}
	name := filepath.Base(argv[0])
	if program := interpreter(file, environ); isPython(filepath.Base(program)) && !isPython(name) {
		file, name = program, filepath.Base(program)
	}
	l := newLinker("/", environ)
	if isPython(name) {
		return l.ofPython(ctx, file, environ)
	}
	if !isELF(file) {
		return Linked{}, fmt.Errorf("cannot tell which MPI %s is linked with: it is a script, which may start anything", file)
	}
	return l.of(file)
}

// of determines the MPI that a program or library needs.
func (l *linker) of(file string) (linked Linked, err error) {
	linked.Program = file
	var at string
	err = l.load(file, func(name, where string) bool {
		if !isMPI(name) {
			return true
		}
		if at = where; at == "" {
			linked.Missing = name
		}
		return false
	})
	switch {
	case err != nil:
		return linked, fmt.Errorf("cannot tell which MPI %s is linked with: %v", file, err)
	case at == "" && linked.Missing == "" && hasWithin(file):
		at = file
	case at == "":
		return linked, nil
	}
	lib, err := l.identify(at)
	linked.MPI = &lib
	return linked, err
}

// hasWithin reports whether a program contains an MPI, linked statically.
func hasWithin(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	symbols, _ := f.Symbols() // stripped programs have none
	return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "MPI_Init" && s.Section != elf.SHN_UNDEF })
}

// isELF reports whether a file begins with the magic number of ELF.
func isELF(file string) bool { return bytes.HasPrefix(beginning(file), []byte(elf.ELFMAG)) }

// isPython reports whether a program name is that of a Python: python, python3, python3.11.
func isPython(name string) bool {
	return strings.HasPrefix(name, "python") && strings.Trim(name, "python0123456789.") == ""
}

// interpreter returns the program that a script names in its first line; an empty string if the
// file is not a script.
func interpreter(file string, environ []string) string {
	line, _, _ := strings.Cut(string(beginning(file)), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		found, err := process.Which(words[len(words)-1], environ)
		if err != nil {
			return ""
		}
		return found
	}
	return words[0]
}

// beginning returns the first 256 bytes of a file; nil if it cannot be read.
func beginning(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(bufio.NewReader(f), 256))
	return head
}
