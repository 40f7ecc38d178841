package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadPipes verifies that a pipe that the user names is read to its end, and that a signal ends
// the wait for it.
func TestReadPipes(t *testing.T) {
	for _, args := range [][]string{{"hosts", "--dry-run", "--hostfile=PIPE"},
		{"check", "--config=PIPE"}, {"run", "--config=PIPE"}} {
		t.Run(args[0], func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			for at := range args {
				args[at] = strings.ReplaceAll(args[at], "PIPE", pipe)
			}
			command := program(t, args...)
			var said bytes.Buffer
			command.Stderr = &said
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			open, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until the program reads
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = open.Close() }()
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if _ = command.Wait(); command.ProcessState.ExitCode() != 143 ||
				said.String() != "bringupd: ended by SIGTERM\n" {
				t.Errorf("it ended with %v and said %q", command.ProcessState, said.String())
			}
		})
	}
}
