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
	"flag"
	"os"
	"testing"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/jobtest"
)

var (
	runsFlag = flag.Int("runs", 24, "how many runs to draw")
	sideFlag = flag.Int("side", 2,
		"how many of them go on side by side: they mostly wait, but for their times 1 is right")
	seedFlag = flag.Uint64("seed", 0, "the first seed; given without -runs, the only one. 0: 1")
)

// TestMain builds the program and runs the tests, or is a rank of a job.
func TestMain(m *testing.M) {
	if dir := os.Getenv(ringVariable); dir != "" {
		os.Exit(runRank(dir))
	}
	flag.Parse()
	jobtest.Main(m, nil)
}
