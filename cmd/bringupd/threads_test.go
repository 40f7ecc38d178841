//go:build cgo

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestNoThreads starts the program as a user who may have no thread besides it.
func TestNoThreads(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Open(path) // its folder may be closed to the other user
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	limited := exec.Command("prlimit", "--nproc=1", "/proc/self/fd/3", "-test.run=^$")
	limited.ExtraFiles = []*os.File{binary}
	if os.Getuid() == 0 { // root has no such limit
		limited.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	}
	limited.Dir = "/"
	out, err := limited.CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	if !ended || exit.ExitCode() != 65 ||
		!strings.HasPrefix(string(out), "bringupd: cannot start: the limit of 1 processes ") {
		t.Errorf("it ended with %v: %s", err, out)
	}
}
