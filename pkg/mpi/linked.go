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

// Linked is what a program would load for MPI.
type Linked struct {
	// Program is the file that was looked at: the program itself, or the extension that mpi4py is.
	Program string `json:"program"`
	// Python is whose mpi4py it is; empty: it is no Python.
	Python string   `json:"python,omitempty"`
	By     string   `json:"by,omitempty"`  // mpi4py with its version; empty: it is no Python, or one without
	MPI    *Library `json:"mpi,omitempty"` // nil: none
	// Missing is the MPI that it needs and the linker would not find.
	Missing string `json:"missing,omitempty"`
}

// String says it in a few words.
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

func (l Linked) subject() string {
	if l.By != "" {
		return fmt.Sprintf("%s of %s", l.By, l.Python)
	}
	return l.Program
}

// Of looks for the MPI of a command with an environment: of a program by what the linker would load, of a Python by its mpi4py. The program is
// not run, but for a Python that hides behind a script. What is neither, such as a shell script, is an error.
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

// of looks for what a program or a library needs.
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

// hasWithin tells whether a program has MPI within itself.
func hasWithin(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	symbols, _ := f.Symbols() // those of a program that was stripped tell nothing
	return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "MPI_Init" && s.Section != elf.SHN_UNDEF })
}

func isELF(file string) bool { return bytes.HasPrefix(beginning(file), []byte(elf.ELFMAG)) }

// isPython tells whether a program of that name is one: python, python3, python3.11.
func isPython(name string) bool {
	return strings.HasPrefix(name, "python") && strings.Trim(name, "python0123456789.") == ""
}

// interpreter is the program that a script names in its first line; empty: it is none.
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

// beginning is what a file begins with; nothing where it can't be read.
func beginning(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(bufio.NewReader(f), 256))
	return head
}
