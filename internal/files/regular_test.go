package files

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadRegular verifies that a file is read if it is regular and not too large, and never waited
// for.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	file, fifo, huge := filepath.Join(dir, "hosts"), filepath.Join(dir, "fifo"), filepath.Join(dir, "huge")
	if err := os.WriteFile(file, []byte("n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 101); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadRegular(file, 100); err != nil || string(text) != "n1\n" {
		t.Errorf("got %q, %v", text, err)
	}
	for path, says := range map[string]string{fifo: "it is not a regular file",
		dir: "it is not a regular file", huge: "the maximum is",
		filepath.Join(dir, "none"): "no such file", "": "no such file"} {
		if text, err := ReadRegular(path, 100); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %q, %v; want %q", path, text, err, says)
		}
	}
}
