//go:build testbed

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/test/testbed"
)

const (
	// nodes is the number of nodes in the first lane's testbed.
	nodes = 8
	// fewNodes is the number of nodes in each other lane's testbed, which is enough for most tests.
	fewNodes = 4
)

// lane is a testbed that one test uses exclusively. Its nodes are n0, n1, … as on every testbed.
// Tests on different lanes share nothing but the machine.
type lane struct {
	*testbed.Bed
	env []string // variables of its commands, in addition to this process's
}

// claim marks the test as parallel and returns a lane of at least the given number of nodes for its
// exclusive use until it ends. A test whose subtests claim lanes must not hold one itself.
func claim(t *testing.T, atLeast int) *lane {
	t.Helper()
	return claimBy(t, request{atLeast: atLeast})
}

// claimEarly is like claim, for a test that takes long on any machine because it waits for a
// timeout. It gets a lane before other tests, so that it does not run alone at the end.
func claimEarly(t *testing.T, atLeast int) *lane {
	t.Helper()
	return claimBy(t, request{atLeast: atLeast, early: true})
}

func claimBy(t *testing.T, r request) *lane {
	t.Helper()
	t.Parallel()
	asked := time.Now()
	bed := beds.take(r)
	had := time.Now()
	t.Cleanup(func() {
		t.Logf("it had a bed of %d nodes for %.1f s, after a wait of %.1f s", bed.Nodes(),
			time.Since(had).Seconds(), had.Sub(asked).Seconds())
		beds.giveBack(bed)
	})
	return &lane{Bed: bed}
}

// setenv sets a variable for the commands that the lane runs from now on. srun and sbatch pass it
// to the job.
func (bed *lane) setenv(name, value string) { bed.env = append(bed.env, name+"="+value) }

// prependPath makes the lane's commands search these folders for programs first.
func (bed *lane) prependPath(folders ...string) {
	bed.setenv("PATH", strings.Join(append(folders, os.Getenv("PATH")), ":"))
}

// Command is like [testbed.Bed.Command], but adds the variables that were set.
func (bed *lane) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := bed.Bed.Command(ctx, name, args...)
	cmd.Env = append(cmd.Env, bed.env...)
	return cmd
}

// request is a claim that waits for a testbed.
type request struct {
	atLeast int // minimum number of nodes
	early   bool
	granted chan *testbed.Bed // capacity 1
}

// bedPool contains the testbeds of all lanes. One of them has more nodes than the others.
type bedPool struct {
	all []*testbed.Bed // the large one first

	mu      sync.Mutex
	idle    []*testbed.Bed // guarded by mu
	waiting []request      // in the order of service; guarded by mu
}

// startBeds starts count testbeds. All must exist before the first test: an MPI on a node reads the
// host's links in /sys/class/net, and fails if one of them vanishes meanwhile.
func startBeds(ctx context.Context, count int, config testbed.Config) (*bedPool, error) {
	p := &bedPool{all: make([]*testbed.Bed, count)}
	group, ctx := errgroup.WithContext(ctx)
	for i := range p.all {
		of := config
		of.Nodes = fewNodes
		if i == 0 {
			of.Nodes = nodes
		}
		group.Go(func() (err error) {
			p.all[i], err = testbed.Start(ctx, of)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.idle = slices.Clone(p.all)
	return p, nil
}

// take waits for an idle testbed.
func (p *bedPool) take(r request) *testbed.Bed {
	r.granted = make(chan *testbed.Bed, 1)
	p.mu.Lock()
	place := slices.IndexFunc(p.waiting, func(other request) bool {
		return r.early && !other.early
	})
	if place < 0 {
		place = len(p.waiting)
	}
	p.waiting = slices.Insert(p.waiting, place, r)
	p.serve()
	p.mu.Unlock()
	return <-r.granted
}

func (p *bedPool) giveBack(bed *testbed.Bed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, bed)
	p.serve()
}

// serve grants idle testbeds to waiting requests. The caller holds p.mu.
func (p *bedPool) serve() {
	large := slices.ContainsFunc(p.waiting, func(r request) bool { return r.atLeast > fewNodes })
	var left []request
	for _, r := range p.waiting {
		i := p.pick(r.atLeast, large)
		if i < 0 {
			left = append(left, r)
			continue
		}
		r.granted <- p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.waiting = left
}

// pick returns the index of an idle testbed for a request, or -1. It prefers a small one, and while
// requests wait for the large one it leaves that to them. The caller holds p.mu.
func (p *bedPool) pick(atLeast int, large bool) int {
	best := -1
	for i, bed := range p.idle {
		small := bed.Nodes() < nodes
		switch {
		case bed.Nodes() < atLeast, !small && atLeast <= fewNodes && large:
		case small:
			return i
		default:
			best = i
		}
	}
	return best
}

// bin returns a folder for programs that all nodes of all testbeds see.
func (p *bedPool) bin() string { return p.all[0].Bin() }

// close closes all testbeds.
func (p *bedPool) close() error {
	var group errgroup.Group
	for _, bed := range p.all {
		if bed != nil {
			group.Go(bed.Close)
		}
	}
	return group.Wait()
}
