package mpidetect

import (
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

type dynamicLinker struct {
	path    string // interpreter of the program; empty if the program is linked statically
	environ []string
}

type library struct {
	name string
	path string // empty if the linker does not find the library
}

func linkerOf(program string, environ []string) (dynamicLinker, error) {
	f, err := elf.Open(program)
	if err != nil {
		return dynamicLinker{}, fmt.Errorf("cannot determine the libraries of %s: %v", program, err)
	}
	defer f.Close()
	return dynamicLinker{strings.TrimRight(sectionText(f, ".interp"), "\x00"), environ}, nil
}

var missingLibrary = textutil.CompileLazily(`loading shared librar(?:ies:|y) (\S+): `)

// listLibraries returns the libraries of a file, which is the program or one that it would load, in
// the order in which they would be loaded. If an MPI library is missing, it returns only that.
func (l dynamicLinker) listLibraries(ctx context.Context, file string) (found []library, err error) {
	if l.path == "" {
		return nil, nil
	}
	if !strings.Contains(file, "/") { // the linker would search for it as for a library
		file = "./" + file
	}
	list, reason := &process.HeadBuffer{MaxBytes: 1 << 20}, &process.HeadBuffer{MaxBytes: 1 << 20}
	err = process.Command{Argv: []string{l.path, "--list", file}, Env: l.environ, Stdout: list, Stderr: reason}.Run(ctx)
	if m := missingLibrary().FindStringSubmatch(reason.String()); err != nil && m != nil && isMPILibrary(m[1]) {
		return []library{{name: m[1]}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot determine the libraries of %s: %s --list: %v: %s",
			file, l.path, err, strings.TrimSpace(reason.String()))
	}
	// Each line has the form "name => path (address)" or, for a name with a slash, "path (address)".
	for line := range strings.Lines(list.String()) {
		name, path, isNamed := strings.Cut(strings.TrimSpace(line), " => ")
		if !isNamed {
			path = name
		}
		path, _, _ = strings.Cut(path, " (")
		if filepath.IsAbs(path) { // otherwise it is a part of the kernel
			found = append(found, library{name, filepath.Clean(path)})
		}
	}
	return found, nil
}

func (l dynamicLinker) findFirst(ctx context.Context, program string, names ...string) string {
	l.environ = envlist.With(l.environ, map[string]string{"LD_PRELOAD": strings.Join(names, " ")})
	found, _ := l.listLibraries(ctx, program) // none if they cannot be listed
	for _, lib := range found {
		if slices.Contains(names, lib.name) {
			return lib.path
		}
	}
	return ""
}

var loaderFunctions = []string{
	"dlopen", "dlmopen", "execl", "execle", "execlp", "execv", "execve", "execveat", "execvp",
	"execvpe", "fexecve", "popen", "posix_spawn", "posix_spawnp", "system",
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
		return err != nil || slices.ContainsFunc(symbols, func(s elf.Symbol) bool {
			return slices.Contains(loaderFunctions, s.Name)
		})
	}
	symbols, err := f.ImportedSymbols()
	return err != nil || slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool {
		return slices.Contains(loaderFunctions, s.Name)
	})
}
