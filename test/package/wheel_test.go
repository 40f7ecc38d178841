//go:build packages

package packages

import (
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/nvml"
)

// maxGlibc is the glibc that the wheels require, 2.17, as a minor version.
const maxGlibc = 17

// TestWheelPrograms checks that the programs in the wheels need nothing but the C library, in no
// newer version than the names of the wheels say.
func TestWheelPrograms(t *testing.T) {
	for suffix, machine := range map[string]elf.Machine{
		"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64,
	} {
		file, err := elf.Open(unpackProgram(t, suffix))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if file.Machine != machine {
			t.Errorf("%s: the program is for %v", suffix, file.Machine)
		}
		libraries, err := file.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, library := range libraries {
			if !regexp.MustCompile(`^(libc|libdl|libpthread|ld-linux-aarch64)\.so\.`).MatchString(library) {
				t.Errorf("%s: the program needs %s", suffix, library)
			}
		}
		symbols, err := file.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, symbol := range symbols {
			_, minor, _ := strings.Cut(symbol.Version, "GLIBC_2.")
			minor, _, _ = strings.Cut(minor, ".")
			if version, _ := strconv.Atoi(minor); version > maxGlibc {
				t.Errorf("%s: the program needs %s of %s", suffix, symbol.Name, symbol.Version)
			}
		}
	}
}

// TestWheelOnARM runs the program for aarch64 in an emulator.
func TestWheelOnARM(t *testing.T) {
	want := command(t, "", unpackProgram(t, "x86_64"), "version")
	out := command(t, "", "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu",
		unpackProgram(t, "aarch64"), "version")
	if out != want {
		t.Errorf("it printed %q: want %q", out, want)
	}
}

// TestWheelSeesGPUs checks that the program calls NVIDIA's library, and that it names a function
// that the library lacks.
func TestWheelSeesGPUs(t *testing.T) {
	child := gpu.Child{Program: unpackProgram(t, "x86_64"), Timeout: time.Minute}
	probe := func(without ...string) gpu.Facts {
		fake, err := nvml.Build(t.TempDir(), without...)
		if err != nil {
			t.Fatal(err)
		}
		child.Env = fake.Environ()
		facts, err := child.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return facts
	}
	if facts := probe(); facts.Init != gpu.Success || len(facts.GPUs) != 8 {
		t.Errorf("the facts are %+v, want 8 GPUs", facts)
	}
	if facts := probe("nvmlInit_v2"); !strings.Contains(facts.Detail, "undefined symbol: nvmlInit") {
		t.Errorf("the facts are %+v, want the name of the missing function", facts)
	}
}

// TestWheelInPythons installs the wheel without a network in new virtual environments of the oldest
// and the newest Python, and runs the tests of the Python package there.
func TestWheelInPythons(t *testing.T) {
	pythons := findPythons(t)
	for _, python := range slices.Compact([]string{pythons[0], pythons[len(pythons)-1]}) {
		t.Log(python)
		dir := t.TempDir()
		venv := filepath.Join(dir, "venv")
		bin := filepath.Join(venv, "bin")
		command(t, "", python, "-m", "venv", venv)
		before := files(t, venv)
		pip(t, bin, "install", "bringupd")
		command(t, "", "cp", "-r", repository+"/python/tests", dir) // away from the sources of the package
		const print = "import bringupd; print(bringupd.find_program())"
		if out := command(t, dir, bin+"/python", "-c", print); out != bin+"/bringupd\n" {
			t.Errorf("%s: the package uses the program %s", python, out)
		}
		command(t, dir, bin+"/python", "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
		if _, err := os.Stat(filepath.Join(venv, "share/man/man1/bringupd.1.gz")); err != nil {
			t.Error(err)
		}

		// pip install --target puts the program into a folder of its own.
		target := filepath.Join(dir, "target")
		pip(t, bin, "install", "--target="+target, "bringupd")
		if out := command(t, dir, "env", "PYTHONPATH="+target, python, "-c", print); out != target+"/bin/bringupd\n" {
			t.Errorf("%s: the package in %s uses the program %s", python, target, out)
		}

		pip(t, bin, "uninstall", "--yes", "bringupd")
		compareFiles(t, before, files(t, venv))
	}
}

// TestPythonTypes checks the types of the Python package, of its tests and of the samples in its
// documentation, as for the oldest Python.
func TestPythonTypes(t *testing.T) {
	page, err := os.ReadFile(repository + "/docs/python.md")
	if err != nil {
		t.Fatal(err)
	}
	samples := t.TempDir()
	for i, sample := range regexp.MustCompile(`(?m)^    import bringupd\n(?:(?: {4}.*)?\n)+`).FindAll(page, -1) {
		sample = regexp.MustCompile(`(?m)^    `).ReplaceAll(sample, nil)
		if err := os.WriteFile(fmt.Sprintf("%s/sample%d.py", samples, i), sample, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command(t, repository+"/python", os.Getenv("BRINGUPD_TEST_MYPY"), "--strict", "--python-version=3.9",
		"--cache-dir="+t.TempDir(), ".", samples)
}

// unpackProgram returns the path of the program in the wheel for the machine.
func unpackProgram(t *testing.T, machine string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, "", "python3", "-m", "zipfile", "--extract", only(t, "*_"+machine+".whl"), dir)
	program := glob(t, dir+"/*/scripts/bringupd")
	if err := os.Chmod(program, 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	return program
}

// pip runs the pip in bin, which finds packages only in dist. It would take a tarball for sources.
func pip(t *testing.T, bin, verb string, args ...string) {
	t.Helper()
	if verb == "install" {
		args = append([]string{"--no-index", "--only-binary=:all:", "--find-links=" + dist}, args...)
	}
	command(t, "", bin+"/python", append([]string{"-m", "pip", verb, "--quiet"}, args...)...)
}

// findPythons returns the Pythons of this machine that the package supports, the oldest first: one
// for each version, in PATH or installed by pyenv.
func findPythons(t *testing.T) []string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	byVersion := make(map[int]string)
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), home+"/.pyenv/versions/*/bin") {
		found, err := filepath.Glob(filepath.Join(dir, "python3*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, python := range found {
			// Scripts such as python3-config and Pythons without venv or pip print nothing.
			out, _ := exec.CommandContext(t.Context(), python, "-c",
				"import sys, venv, ensurepip; print(sys.version_info.minor)").Output()
			minor, err := strconv.Atoi(strings.TrimSpace(string(out)))
			if err == nil && minor >= 9 {
				byVersion[minor] = cmp.Or(byVersion[minor], python)
			}
		}
	}
	if len(byVersion) == 0 {
		t.Fatal("cannot find a Python from 3.9 on with venv and pip, in PATH or in ~/.pyenv")
	}
	var pythons []string
	for _, minor := range slices.Sorted(maps.Keys(byVersion)) {
		pythons = append(pythons, byVersion[minor])
	}
	return pythons
}
