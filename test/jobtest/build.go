// Package jobtest has what the tests of complete jobs on this machine share: it builds the program
// under test, runs jobs of it, reads their records, and finds the processes that they leave behind.
package jobtest

import (
	"errors"
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

// command is the directory of the program under test, as seen from a directory below test.
const command = "../../cmd/bringupd"

// Bringupd is the path of the program under test while Main runs.
var Bringupd string

// Environ returns the variables that a program under test needs: the race detector's default exit
// code could be mistaken for one of bringupd's, and by default it makes every process sleep for a
// second before it exits.
func Environ() []string { return []string{"GORACE=exitcode=199 atexit_sleep_ms=0"} }

// Main builds the program under test, runs prepare (which may be nil) with the directory of the
// built programs, and runs the tests. It ends the process, with 1 if goroutines are left. sources
// are patterns of further files on which the results depend.
func Main(m *testing.M, prepare func(bin string) error, sources ...string) {
	code, err := runBuilt(m, prepare, append(sources, command+"/*.go"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M, prepare func(string) error, sources []string) (code int, err error) {
	bin, err := os.MkdirTemp("", "bringupd-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if err := noteSources(sources); err != nil {
		return 1, err
	}
	Bringupd = filepath.Join(bin, "bringupd")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo",
		"-race="+strconv.FormatBool(Race), "-o", Bringupd, command)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	if prepare != nil {
		if err := prepare(bin); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	return code, goleak.Find()
}

// noteSources opens the sources that are not reached by an import. go test then knows that the
// result depends on them.
func noteSources(patterns []string) error {
	for _, pattern := range patterns {
		sources, err := filepath.Glob(pattern)
		if err != nil || len(sources) == 0 {
			return fmt.Errorf("cannot find the sources in %s: %v", pattern, err)
		}
		for _, source := range sources {
			if _, err := os.ReadFile(source); err != nil {
				return err
			}
		}
	}
	return nil
}
