package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"go.uber.org/goleak"
)

const (
	// ceiling limits every wait. It is far longer than any wait takes.
	ceiling = 60 * time.Second
	step    = time.Millisecond
	// long is longer than any test that checks a cache.
	long = time.Hour
)

var program Program

// helperVariable makes this binary a helper process of a test: see helper.
const helperVariable = "HOSTILE_TEST_HELPER"

// TestMain runs the tests if FUSE is available, or is a helper process of one.
func TestMain(m *testing.M) {
	if what := os.Getenv(helperVariable); what != "" {
		if err := helper(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := Available(); err != nil {
		fmt.Fprintln(os.Stderr, "NOT RUN:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		return
	}
	code, err := runBuilt(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M) (code int, err error) {
	bin, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if program, err = Build(context.Background(), bin, jobtest.Race); err != nil {
		return 1, err
	}
	code = m.Run()
	if err := goleak.Find(); err != nil {
		return 1, err
	}
	return code, nil
}

// helper is the main function of a process that a test starts. It creates a mount, stalls it, and
// waits to be killed.
func helper(what string) error {
	args := strings.Split(what, ":")
	built, at, kind := Program{args[0]}, args[1], StallKind(args[2])
	m, err := built.Mount(context.Background(), filepath.Dir(at), at, Knobs{})
	if err != nil {
		return err
	}
	if err := m.Stall(kind); err != nil {
		return err
	}
	fmt.Println(m.Pid())
	select {}
}

// two returns two mounts of one folder, like those of two nodes.
func two(t *testing.T, knobs Knobs) (a, b *Mount, folder string) {
	t.Helper()
	folder = t.TempDir()
	return mounted(t, folder, knobs), mounted(t, folder, Knobs{}), folder
}

func mounted(t *testing.T, folder string, knobs Knobs) *Mount {
	t.Helper()
	m, err := program.Mount(t.Context(), folder, t.TempDir(), knobs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *Mount) path(name string) string { return filepath.Join(m.at, name) }

func set(t *testing.T, m *Mount, knobs Knobs) {
	t.Helper()
	if err := m.Set(knobs); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails checks that a call returned the given error.
func fails(t *testing.T, what string, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func put(t *testing.T, path, data string) {
	t.Helper()
	ok(t, os.WriteFile(path, []byte(data), 0o600))
}

// has checks a file's content.
func has(t *testing.T, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%s has %q (%v), want %q", path, data, err, want)
	}
}

// lists checks the names that a listing shows.
func lists(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	ok(t, err)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	if got := strings.Join(names, " "); got != strings.Join(want, " ") {
		t.Errorf("%s lists %q, want %q", path, got, want)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it was not so: %s", ceiling, what)
		}
	}
}

// caller starts a process that calls stat on a path, and returns when the process waits for the
// mount's answer.
func caller(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	stat := exec.Command("stat", path)
	ok(t, stat.Start())
	until(t, "the call waits for an answer", func() bool {
		where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", stat.Process.Pid))
		return err == nil && strings.HasPrefix(string(where), "request_wait")
	})
	return stat
}
