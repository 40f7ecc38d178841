//go:build testbed

// Package e2e runs the built bringupd on a real Slurm of several nodes, each with its own network,
// host name and mount of the share.
package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/test/testbed"
)

// share is the kind of shared file system. The default is the worst: each mount caches missing
// names for 20 s.
var share = flag.String("share", string(testbed.StaleSSHFS),
	"kind of share that the testbed's nodes see")

// siteUser is the name of the user who runs the jobs.
var siteUser = flag.String("user", "", "user of this machine who runs the jobs; empty means root")

// lanes is the number of tests that run concurrently.
var lanes = flag.Int("lanes", 0, "how many tests run at the same time, each on a bed of its own; "+
	"0: 4, or 1 with a real Ray, torch or MPI")

// usualLanes is the default of lanes.
var usualLanes = 4

// beds contains the testbeds of the lanes.
var beds *bedPool

// program is the path of the bringupd under test on every node of every testbed.
var program string

// configureBed sets further properties of the testbeds.
var configureBed = func(*testbed.Config) {}

// TestMain builds the program and runs the tests on the testbeds.
func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runOnBed(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runOnBed(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if *lanes < 0 {
		return 1, fmt.Errorf("cannot run the tests in %d lanes: give 1 or more", *lanes)
	}
	count := cmp.Or(*lanes, usualLanes)
	// Let all tests wait for a lane at the same time, so that the pool decides their order.
	if err := flag.Set("test.parallel", "1000"); err != nil {
		return 1, err
	}
	config := testbed.Config{Share: testbed.Share(*share), User: *siteUser}
	configureBed(&config)
	beds, err = startBeds(ctx, count, config)
	if err != nil {
		return 1, err
	}
	defer func() {
		if closeErr := beds.close(); err == nil {
			err = closeErr
		}
	}()
	program = filepath.Join(beds.bin(), "bringupd")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-o", program,
		"github.com/bringupd/bringupd/cmd/bringupd")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	return m.Run(), nil
}
