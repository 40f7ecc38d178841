// Package roleruns runs drawn files of roles with the built bringupd on this machine, and injects
// faults into them: kill -9 of a process of an instance, of the shell around it, of all instances of
// a role, or of a daemon that the roles need or can do without, with and without spare nodes; a
// process that hangs, closes its port, exits with 0 or with a code, and starts that fail; the loss
// of two nodes of an instance, a full share, a daemon that is frozen, and bringupd stop. A model,
// which is a pure function of the roles and the faults, predicts the exit code, the cause, the
// generations of each instance, the lists of endpoints and the order of the end. The processes hold
// locks, by which a second copy of an instance is found. The package contains only tests.
//
//	go test ./test/roleruns -v -run TestDrawn -runs=200 -timeout=40m
//	go test ./test/roleruns -v -run TestDrawn -seed=17      # one run again
//	go test ./test/roleruns -v -run TestDrawn -runs=20 -kind=full
package roleruns

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/jobtest"
)

var (
	runsFlag = flag.Int("runs", 12, "how many runs to draw")
	kindFlag = flag.String("kind", "", "draw only first faults whose kinds have this in their names")
	sideFlag = flag.Int("side", 3, "how many of them go on side by side: they mostly wait")
	seedFlag = flag.Uint64("seed", 0, "the first seed; given without -runs, the only one. 0: 1")
)

// TestMain builds the program and runs the tests, or is a process of an instance.
func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" && os.Getenv("BRINGUPD_ROLE") != "" {
		if program := topologyPrograms[filepath.Base(os.Args[0])]; program != nil {
			os.Exit(newStandIn(dir).runTopologyProgram(program))
		}
		os.Exit(newStandIn(dir).run())
	}
	flag.Parse()
	// Runs mostly wait: without this, only as many go on side by side as there are processors.
	if err := flag.Set("test.parallel", fmt.Sprint(max(*sideFlag, 1))); err != nil {
		panic(err)
	}
	jobtest.Main(m, nil)
}
