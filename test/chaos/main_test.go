//go:build testbed

// Package chaos runs jobs of the built bringupd on a real Slurm and injects faults that a seed
// determines: the kind of fault, the node, the phase and the time. After each job it checks the
// blamed node, the exit codes, how soon all daemons ended, and that nothing is left behind. The
// package contains only tests.
//
//	go test -tags testbed ./test/chaos -v -seed=7          # one schedule again
//	go test -tags testbed ./test/chaos -v -runs=300 -timeout=1h
//	go test -tags testbed ./test/chaos -v -runs=9 -of=lifelines
package chaos

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bringupd/bringupd/test/testbed"
)

var (
	seedFlag = flag.Uint64("seed", 0,
		"go through this schedule alone, or through so many from it on; 0: through those of CI")
	runsFlag = flag.Int("runs", 0,
		"how many schedules to go through; 0: as many as CI does, or the one of -seed")
	ofFlag = flag.String("of", "",
		"go only through schedules whose fault has this in its name")
	nodesFlag = flag.Int("nodes", 4, "how many nodes a job has")
	lanesFlag = flag.Int("lanes", 3,
		"how many jobs run at the same time, each on nodes of its own")
	shareFlag = flag.String("share", string(testbed.Hostile),
		"kind of share that the testbed's nodes see; faults of the share itself need hostile")
	lifelineFlag = flag.String("lifeline", "",
		"on or off for all schedules; empty: as the seed says")
)

// mostSeeds is the size of the range from which seeds are drawn.
const mostSeeds = 100_000

// diskAt is the mount point of each node's private disk, which can be made unresponsive.
const diskAt = "/tmp/chaos-disk"

// arena is a testbed on which several jobs run concurrently.
type arena struct {
	bed     *testbed.Bed
	world   world
	program string // path of the bringupd under test on every node
	looks   *looks
}

// TestChaos runs the schedules that the flags select, and checks the outcome of each.
func TestChaos(t *testing.T) {
	results := &table{rows: make(map[string]map[bool]*cell)}
	first, count := *seedFlag, *runsFlag
	switch {
	case first == 0 && count == 0:
		first, count = 1, ciRuns
	case first == 0:
		first = 1
	case count == 0:
		count = 1
	}
	if *nodesFlag < 2 || *lanesFlag < 1 || count < 1 ||
		!slices.Contains([]string{"", "on", "off"}, *lifelineFlag) {
		t.Fatalf("cannot go through %d schedules in %d lanes of %d nodes, -lifeline=%s: give 2 "+
			"nodes or more, and on, off or nothing",
			count, *lanesFlag, *nodesFlag, *lifelineFlag)
	}
	a := newArena(t, min(*lanesFlag, count))
	seeds := make(chan uint64, count)
	for seed := first; len(seeds) < count && seed < first+mostSeeds; seed++ {
		if strings.Contains(string(named(planOf(seed, a.world))), *ofFlag) {
			seeds <- seed
		}
	}
	close(seeds)
	if len(seeds) == 0 {
		t.Fatalf("no fault has %q in its name", *ofFlag)
	}
	var lanes sync.WaitGroup
	for i := range min(*lanesFlag, count) {
		l := &lane{arena: a, first: i * *nodesFlag, size: *nodesFlag}
		lanes.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					l.run(t, planOf(seed, a.world), results)
				})
			}
		})
	}
	lanes.Wait()
	t.Logf("what came of the faults:\n%s", results)
}

// newArena starts the testbed and builds the programs that run on it.
func newArena(t *testing.T, lanes int) *arena {
	t.Helper()
	bed, err := testbed.Start(t.Context(), testbed.Config{
		Nodes: lanes * *nodesFlag, Share: testbed.Share(*shareFlag), Log: t.Output(),
		// Keep slurmctld from querying nodes while a fault is active: it would not give an unresponsive
		// node any job for minutes.
		SlurmConf: []string{"SlurmdTimeout=3600", "TCPTimeout=5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{bed: bed, program: filepath.Join(bed.Bin(), "bringupd")}
	t.Cleanup(func() { must(t, bed.Close()) })
	must(t, a.build(t.Context(), t.TempDir()))
	for node := range bed.Nodes() {
		must(t, a.setClock(t.Context(), node, 0))
	}
	a.checkClock(t)
	a.world = world{nodes: *nodesFlag, lifeline: *lifelineFlag}
	switch testbed.Share(*shareFlag) {
	case testbed.Hostile:
		a.world.knobs = true
		for node := range bed.Nodes() {
			must(t, bed.MountDisk(t.Context(), node, diskAt+"-behind", diskAt))
		}
	case testbed.Local:
	default:
		a.world.wired = true
	}
	a.looks = watch(bed)
	t.Cleanup(a.looks.end)
	return a
}

// build builds the bringupd under test, with an adjustable clock and an optional calm mode (see
// calmVariable).
func (a *arena) build(ctx context.Context, dir string) error {
	replaced, err := overlay(ctx, dir)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-tags", "netgo,osusergo",
		"-overlay="+replaced, "-o", a.program, "github.com/bringupd/bringupd/cmd/bringupd")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
