// Package nvml is a libnvidia-ml.so.1 without a driver, for tests: the real
// bringupd loads it as it loads NVIDIA's, and is told what the test wants. See
// lib/fake.c for what can be told.
package nvml

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed lib/fake.c
var source []byte

// Variable names the folder that the library finds its answers in.
const Variable = "FAKE_NVML_DIR"

// Fake is a library, and what it answers.
type Fake struct {
	Library string // the file
	dir     string // of the answers, a file a host
}

// Build makes a library in dir, which must be there. It lacks the functions
// whose symbols are given, as that of an older driver does.
func Build(dir string, without ...string) (Fake, error) {
	f := Fake{Library: filepath.Join(dir, "libnvidia-ml.so.1"), dir: dir}
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return Fake{}, fmt.Errorf("cannot find nvml.h: go list: %v", err)
	}
	exported := filepath.Join(dir, "exported")
	script := "{ global: nvml*; local: *; " + strings.Join(append(without, ""), "; ") + "};\n"
	if err := os.WriteFile(exported, []byte(script), 0o600); err != nil {
		return Fake{}, err
	}
	gcc := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
		"-I"+strings.TrimSpace(string(header)), "-Wl,--version-script="+exported, "-o", f.Library, "-x", "c", "-")
	gcc.Stdin = strings.NewReader(string(source))
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
func (f Fake) Env() string { return Variable + "=" + f.dir }

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
