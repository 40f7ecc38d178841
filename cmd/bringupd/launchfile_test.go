package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a launcher's variable names is read where it is a file, and never waited for.
func TestReadLaunchFile(t *testing.T) {
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
	if err := os.Truncate(huge, mostLaunchFile+1); err != nil {
		t.Fatal(err)
	}
	if text, err := readLaunchFile(file); err != nil || string(text) != "n1\n" {
		t.Errorf("got %q, %v", text, err)
	}
	for path, says := range map[string]string{fifo: "it is no file", dir: "it is no file", huge: "are the most", filepath.Join(dir, "none"): "no such file", "": "no such file"} {
		if text, err := readLaunchFile(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %q, %v; want %q", path, text, err, says)
		}
	}
}
