// Package twin runs the executable of a test in a second process.
package twin

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

const variable = "BRINGUPD_TEST_TWIN"

// Main waits for the end of standard input and exits if the process was started by Start. In other
// processes it does nothing. TestMain must call it first.
func Main() {
	if os.Getenv(variable) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

// Start starts a process of the test's executable, which runs as long as the test, and returns its
// process id.
func Start(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"=1")
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return cmd.Process.Pid
}
