// Package worlds runs worlds of ranks with the built bringupd on this machine, and injects a fault
// into each that a seed determines: the rank, the kind of fault and the time. The ranks are
// connected in a ring, so that the death of one immediately affects others, in all the ways in
// which programs react to the loss of a peer. After each run it checks that the job has named the
// rank that was struck, has ended with its code, and has left nothing behind, and prints the time
// from the fault to the last exit. The package contains only tests.
//
//	go test ./test/worlds -v -run TestDrawn -runs=200 -timeout=30m
//	go test ./test/worlds -v -run TestDrawn -seed=17      # one run again
package worlds

import (
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
)

var (
	runsFlag = flag.Int("runs", 24, "how many runs to draw")
	sideFlag = flag.Int("side", 2,
		"how many of them go on side by side: they mostly wait, but for their times 1 is right")
	seedFlag = flag.Uint64("seed", 0, "the first seed; given without -runs, the only one. 0: 1")
)

const command = "../../cmd/bringupd"

// bringupd is the program under test.
var bringupd string

// TestMain builds the program and runs the tests, or is a rank of a job.
func TestMain(m *testing.M) {
	if dir := os.Getenv(ringVariable); dir != "" {
		os.Exit(runRank(dir))
	}
	flag.Parse()
	code, err := runBuilt(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M) (code int, err error) {
	bin, err := os.MkdirTemp("", "bringupd-worlds-")
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
