package stepwatch

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newMonitor returns the monitor of a node whose ranks report steps.
func newMonitor(node, size int) *Monitor {
	cfg := new(deps.Config)
	cfg.Identity.NodeIndex, cfg.Identity.Size, cfg.World.PerNode = node, size, "1"
	return New(cfg)
}

// lateErrors is a file system on which one rename of a mark succeeds and reports an error, as with a
// server whose reply is lost.
type lateErrors struct {
	signal.SharedFS
	left int
}

// ChangeName implements signal.SharedFS.
func (e *lateErrors) ChangeName(how signal.Op, from, to string) error {
	err := e.SharedFS.ChangeName(how, from, to)
	if err == nil && how == signal.OpRename && strings.Contains(to, ".step-") && e.left > 0 {
		e.left--
		return syscall.ETIMEDOUT
	}
	return err
}

// TestUncertainRename verifies that the steps of a node go on after a rename that has succeeded and
// reported an error.
func TestUncertainRename(t *testing.T) {
	disk := &lateErrors{SharedFS: signal.NewDiskFS(new(signal.CallMeter)), left: 1}
	place := signal.Location{LogDir: filepath.Join(t.TempDir(), "logs"), Run: "j", Key: "facts",
		Size: 2, Host: "n", Access: signal.Access{FS: disk}}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	m := newMonitor(1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := 0
	m.Run(ctx, Store{Dir: dir.ForNode(1), WriteTimeout: time.Minute, OnWriteError: func(error) { failed++ }})
	for step := range 4 {
		m.ReportStep(5, float64(step))
		m.Flush(t.Context())
	}
	names, err := dir.ListNames(t.Context(), signal.NodesDir)
	if err != nil || failed != 1 || !slices.Equal(names, []string{"0001.step-5.003000"}) {
		t.Errorf("after %d errors the names are %q, error %v", failed, names, err)
	}
}

// TestChanges verifies which steps count as changes.
func TestChanges(t *testing.T) {
	m := newMonitor(0, 3)
	if got := m.NodesWithSteps(signal.Listing{}, signal.NoInstance, 0); len(got) > 0 {
		t.Errorf("nodes %v have steps", got)
	}
	for i, report := range []struct {
		rank    int
		step    float64
		changes int64
	}{{0, 0, 1}, {0, 0, 1}, {1, 0, 2}, {0, 10, 3}, {0, 10, 3}, {0, 3, 4}, {1, 1, 5}} {
		m.ReportStep(report.rank, report.step)
		if got := m.CountChanges(signal.NoInstance, 0); got != report.changes {
			t.Errorf("after report %d there are %d changes, want %d", i, got, report.changes)
		}
	}
}

func TestPublishPause(t *testing.T) {
	for _, tc := range []struct {
		size          int
		elapsed, want time.Duration
	}{
		{4, 0, minPublishInterval},
		{4, 4 * time.Second, time.Second},
		{4, time.Hour, publishInterval},
		{4000, time.Hour, 40 * time.Second},
	} {
		if got := publishPause(tc.size, tc.elapsed); got != tc.want {
			t.Errorf("%d nodes, after %s: %s", tc.size, tc.elapsed, got)
		}
	}
}
