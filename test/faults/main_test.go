// Package faults runs complete jobs of the built bringupd on this machine, each daemon with its own
// mount of a file system with injected faults (test/hostile), and breaks the mounts in every phase.
// The table in docs/reliability.md contains the outcomes; go test ./test/faults -update writes it.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/hostile"
)

const command = "../../cmd/bringupd"

var (
	update = flag.Bool("update", false, "write the table in docs/reliability.md")

	bringupd string          // the program under test
	server   hostile.Program // the program that serves the mounts
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
	code, err := runBuilt(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M) (code int, err error) {
	if err := flag.Set("test.parallel", strconv.Itoa(width)); err != nil {
		return 1, err
	}
	bin, err := os.MkdirTemp("", "bringupd-faults-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if err := noteSources(); err != nil {
		return 1, err
	}
	bringupd = filepath.Join(bin, "bringupd")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo",
		"-race="+strconv.FormatBool(race), "-o", bringupd, command)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	if server, err = hostile.Build(context.Background(), bin, race); err != nil {
		return 1, err
	}
	// Do not use a disk, which may itself stall for seconds on a busy machine.
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	if err := goleak.Find(); err != nil {
		return 1, err
	}
	return code, nil
}

// noteSources opens the sources that are not reached by an import. go test then knows that the
// result depends on them.
func noteSources() error {
	sources, err := filepath.Glob(command + "/*.go")
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("cannot find the sources in %s: %v", command, err)
	}
	for _, source := range sources {
		if _, err := os.ReadFile(source); err != nil {
			return err
		}
	}
	return nil
}
