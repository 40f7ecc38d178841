// Package standin builds substitutes of NVIDIA's libraries for tests, which need no NVIDIA driver.
// The real bringupd loads them like NVIDIA's own, and they give the answers that the test sets. See
// lib/answers.c for the mechanism and for the answers that all libraries support.
package standin

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed lib/answers.c
var answers string

// Kind describes the library that is replaced.
type Kind struct {
	Name    string // file name, such as libnvidia-ml.so.1
	Exports string // prefix of its functions' names
	Source  string // in C; appended to the source of this package
}

// variable names the folder that contains the answers of all libraries.
const variable = "FAKE_NVIDIA_DIR"

// Fake is a library and its answers.
type Fake struct {
	Library string // path of the file
	dir     string // folder of the answers, one file per host
}

// Build makes a library in dir, which must exist, with additional flags of gcc. The library lacks
// the given symbols, like the library of an older driver.
func (k Kind) Build(dir string, flags []string, without ...string) (Fake, error) {
	f := Fake{Library: filepath.Join(dir, k.Name), dir: dir}
	exported := filepath.Join(dir, "exported")
	script := "{ global: " + k.Exports + "*; local: *; " +
		strings.Join(append(without, ""), "; ") + "};\n"
	if err := os.WriteFile(exported, []byte(script), 0o600); err != nil {
		return Fake{}, err
	}
	gcc := exec.Command("gcc",
		append(flags, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
			`-DVARIABLE="`+variable+`"`, "-Wl,--version-script="+exported, "-o", f.Library,
			"-x", "c", "-")...)
	gcc.Stdin = strings.NewReader(answers + "#line 1 \"fake.c\"\n" + k.Source)
	if out, err := gcc.CombinedOutput(); err != nil {
		return Fake{}, fmt.Errorf("cannot build %s: gcc: %v: %s", f.Library, err, out)
	}
	return f, nil
}

// In returns the same library with separate answers, in dir.
func (f Fake) In(dir string) Fake {
	f.dir = dir
	return f
}

// Env returns the variable by which the library finds its answers.
func (f Fake) Env() string { return variable + "=" + f.dir }

// Environ returns the environment of a process that loads the library.
func (f Fake) Environ() []string {
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(f.Library), f.Env())
}

// Answer sets the library's answers on that host from now on. Everything is healthy except for what
// the lines say.
func (f Fake) Answer(host string, lines ...string) error {
	path := f.path(host)
	if err := os.WriteFile(path+".new", []byte(text(lines)), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Add adds lines, such as an event, to the library's answers on that host.
func (f Fake) Add(host string, lines ...string) error {
	file, err := os.OpenFile(f.path(host), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text(lines))
	return err
}

func (f Fake) path(host string) string { return filepath.Join(f.dir, host+".conf") }

func text(lines []string) string { return strings.Join(append(lines, ""), "\n") }
