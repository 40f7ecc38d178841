// Package faults runs complete jobs of the built bringupd on this machine, each daemon with its own
// mount of a file system with injected faults (test/hostile), and breaks the mounts in every phase.
// The table in README.md contains the outcomes; go test ./test/faults -update writes it.
package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/hostile"
	"github.com/bringupd/bringupd/test/jobtest"
)

var (
	update = flag.Bool("update", false, "write the table in README.md")

	server hostile.Program // the program that serves the mounts
)

// memory is a folder whose files are kept in memory.
const memory = "/dev/shm"

// width is the number of jobs that run concurrently. They mostly wait.
const width = 12

// TestMain builds the program and runs the tests if FUSE is available.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := hostile.Available(); err != nil {
		fmt.Fprintln(os.Stderr, "NOT RUN:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(width)); err != nil {
		panic(err)
	}
	jobtest.Main(m, prepare)
}

// prepare builds the server of the mounts, and keeps temporary files off the disk, which may itself
// stall for seconds on a busy machine.
func prepare(bin string) (err error) {
	if server, err = hostile.Build(context.Background(), bin, jobtest.Race); err != nil {
		return err
	}
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return nil
	}
	return os.Setenv("TMPDIR", memory)
}
