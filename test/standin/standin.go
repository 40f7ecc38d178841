// Package standin builds libraries of NVIDIA's without a driver, for tests: the
// real bringupd loads one as it loads NVIDIA's, and is told what the test wants.
// How a library is told, and what all of them know, is in lib/answers.c.
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

// Kind is what a library stands in for.
type Kind struct {
	Name    string // of its file: libnvidia-ml.so.1
	Exports string // how its functions' names begin
	Source  string // in C, behind that of this package
}

// variable names the folder that all libraries find their answers in.
const variable = "FAKE_NVIDIA_DIR"

// Fake is a library, and what it answers.
type Fake struct {
	Library string // the file
	dir     string // of the answers, a file a host
}

// Build makes a library in dir, which must be there, with those flags of gcc. It
// lacks the functions whose symbols are given, as that of an older driver does.
func (k Kind) Build(dir string, flags []string, without ...string) (Fake, error) {
	f := Fake{Library: filepath.Join(dir, k.Name), dir: dir}
	exported := filepath.Join(dir, "exported")
	script := "{ global: " + k.Exports + "*; local: *; " + strings.Join(append(without, ""), "; ") + "};\n"
	if err := os.WriteFile(exported, []byte(script), 0o600); err != nil {
		return Fake{}, err
	}
	gcc := exec.Command("gcc", append(flags, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
		`-DVARIABLE="`+variable+`"`, "-Wl,--version-script="+exported, "-o", f.Library, "-x", "c", "-")...)
	gcc.Stdin = strings.NewReader(answers + "#line 1 \"fake.c\"\n" + k.Source)
	if out, err := gcc.CombinedOutput(); err != nil {
		return Fake{}, fmt.Errorf("cannot build %s: gcc: %v: %s", f.Library, err, out)
	}
	return f, nil
}

// In returns the same library with answers of its own, in dir.
func (f Fake) In(dir string) Fake {
	f.dir = dir
	return f
}

// Env is the variable that the library finds its answers by.
func (f Fake) Env() string { return variable + "=" + f.dir }

// Answer sets what the library says on that host, from now on: nothing is wrong
// but for what the lines say.
func (f Fake) Answer(host string, lines ...string) error {
	path := f.path(host)
	if err := os.WriteFile(path+".new", []byte(text(lines)), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Add adds to what the library says on that host: an event, say.
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
