package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/test/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReadPipe verifies that a named pipe is read to its end, and not waited for after the end of
// the context.
func TestReadPipe(t *testing.T) {
	pipe, other := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), syscall.Mkfifo(other, 0o600)); err != nil {
		t.Fatal(err)
	}
	late := errors.New("it is late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, late)
	defer cancel()
	if text, err := ReadLimited(ctx, pipe, 10); !errors.Is(err, late) ||
		!strings.Contains(err.Error(), pipe+" is incomplete") {
		t.Errorf("read %q, %v", text, err)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that the abandoned read ends
	if err := errors.Join(err, end.Close()); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(other, []byte("host"), 0) }()
	if text, err := ReadLimited(t.Context(), other, 10); err != nil || string(text) != "host" {
		t.Errorf("read %q, %v", text, err)
	}
}

// TestReadTooMuch verifies that a file above the size limit is refused.
func TestReadTooMuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadLimited(t.Context(), path, 5); err != nil || string(text) != "12345" {
		t.Errorf("read %q, %v", text, err)
	}
	for path, says := range map[string]string{path: "larger than 4 bytes",
		t.TempDir(): "is a directory", "/dev/zero": "larger than 4 bytes"} {
		if text, err := ReadLimited(t.Context(), path, 4); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("read %q, %v; want %s", text, err, says)
		}
	}
}

// TestReplace verifies that a file has the requested mode, whatever existed before and whatever the
// umask.
func TestReplace(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	for _, before := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(path, []byte("something longer"), 0o666) },
	} {
		_ = os.Remove(path)
		if err := errors.Join(before(), ReplaceFile(path, []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		text, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || info.Mode() != 0o600 || string(text) != "text" {
			t.Errorf("wrote %q with mode %v, %v", text, info.Mode(), errors.Join(err, readErr))
		}
	}
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Remove(path), os.Symlink(other, path),
		ReplaceFile(path, []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "text" {
		t.Errorf("wrote %q through the user's own link, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left %v, %v", entries, err)
	}
	if err := ReplaceFile("/dev/null", []byte("text"), 0o600); err != nil {
		t.Error(err)
	}
}

// TestReplaceStrangersLink verifies that a link or a pipe that another user has put into a shared
// directory is not written through.
func TestReplaceStrangersLink(t *testing.T) {
	users.Need(t)
	dir := users.Project(t)
	private := filepath.Join(t.TempDir(), "private")
	if err := os.WriteFile(private, []byte("private"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]string{"link": "ln -s " + private + " link", "pipe": "mkfifo -m 666 pipe"} {
		if out, err := users.Stranger.Command(t.Context(), dir, "sh", "-c", plant).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		path := filepath.Join(dir, name)
		if err := ReplaceFile(path, []byte("text"), 0o600); err != nil {
			t.Error(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("the stranger's %s is there with mode %v, %v", name, info.Mode(), err)
		}
	}
	if text, err := os.ReadFile(private); err != nil || string(text) != "private" {
		t.Errorf("the file behind the link has %q, %v", text, err)
	}
}
