package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// mainVariable makes the test's binary run the program: cli has a global flag, so one process
// cannot run two calls in parallel.
const mainVariable = "BRINGUPD_TEST_MAIN"

func TestMain(m *testing.M) {
	asksForGPUs := len(os.Args) > 1 && os.Args[1] == gpu.ChildCommand // a call has started this process
	if asksForGPUs || os.Getenv(mainVariable) != "" {
		_ = os.Unsetenv(mainVariable)
		main()
	}
	goleak.VerifyTestMain(m)
}

// program returns a call of the program in a separate process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, args...)
	command.Env = append(os.Environ(), mainVariable+"=1", "GORACE=atexit_sleep_ms=0")
	return command
}

// said is the outcome of one call of the program.
type said struct {
	code     int
	out, err string
}

// call runs the program in a directory of its own, in an environment without a launcher, apart from
// env: NAME=VALUE.
func call(t *testing.T, env []string, args ...string) said {
	t.Helper()
	return callWith(t, make(chan os.Signal), env, args...)
}

// callWith is call in a process with these signals.
func callWith(t *testing.T, signals <-chan os.Signal, env []string, args ...string) said {
	t.Helper()
	forget(t)
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	files := config.Streams{In: open(t, os.DevNull), Out: open(t, filepath.Join(dir, "out")),
		Err: open(t, filepath.Join(dir, "err"))}
	code := runMain(append([]string{"bringupd"}, args...), signals, files)
	return said{code: code, out: content(t, files.Out.Name()), err: content(t, files.Err.Name())}
}

// forget clears the launchers' variables of the test's environment: an empty variable counts as
// unset.
func forget(t *testing.T) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{"BRINGUPD_", "SLURM", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// file creates a file and returns its name, relative to the test's directory from then on.
func file(t *testing.T, name, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// refused checks that a call ended with a code and one sentence, which begins like all errors and
// has these parts, and had no other effect.
func refused(t *testing.T, got said, code int, parts ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(got.err), "\n")
	if got.code != code || !strings.HasPrefix(lines[0], "bringupd: cannot ") || got.out != "" {
		t.Errorf("got code %d, want %d and a sentence\nstdout: %s\nstderr: %s", got.code, code, got.out, got.err)
	}
	for _, part := range parts {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%q is missing in: %s", part, lines[0])
		}
	}
	switch {
	case code == 64 && (len(lines) != 2 || !strings.HasPrefix(lines[1], "See: bringupd help")):
		t.Errorf("want the sentence and a hint, and nothing else: %s", got.err)
	case code != 64 && len(lines) != 1:
		t.Errorf("want one sentence: %s", got.err)
	}
}
