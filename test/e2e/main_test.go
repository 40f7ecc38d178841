//go:build testbed

// Package e2e runs the built bringupd on a real Slurm of several nodes, each
// with its own network, host name and mount of the share.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/test/testbed"
)

// share is the kind of share to run on. The default is the worst: each mount
// goes on saying for 20 s that a name is missing.
var share = flag.String("share", string(testbed.StaleSSHFS), "kind of share that the testbed's nodes see")

// bed is the testbed that all tests here run on, one after the other.
var bed *testbed.Bed

// nodes is how many nodes the bed has.
const nodes = 8

// withGridEngine has the bed run a Grid Engine, too.
var withGridEngine bool

// program is the bringupd under test, as every node sees it.
var program string

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
	if err := testbed.Install(ctx); err != nil {
		return 1, err
	}
	bed, err = testbed.Start(ctx, testbed.Config{Nodes: nodes, Share: testbed.Share(*share), GridEngine: withGridEngine})
	if err != nil {
		return 1, err
	}
	defer func() {
		if closeErr := bed.Close(); err == nil {
			err = closeErr
		}
	}()
	program = filepath.Join(bed.Bin(), "bringupd")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-o", program, "github.com/bringupd/bringupd/cmd/bringupd")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	return m.Run(), nil
}
