package stepwatch

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJobOfThreeNodes verifies that the head learns the steps of the slowest rank of each node, and
// publishes the progress of the job.
func TestJobOfThreeNodes(t *testing.T) {
	const size = 3
	place := signal.Location{LogDir: filepath.Join(t.TempDir(), "logs"), Run: "j", Key: "facts", Size: size, Host: "n"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := progress.ParsePattern(`step (\d+)`)
	if err != nil {
		t.Fatal(err)
	}
	watch := dir.NewWatch(signal.NodesDir, signal.Pace{MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond, Divisor: 2})
	var tasks sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() { watch.Run(ctx) })
	var monitors []*Monitor
	for node := range size {
		m := New(Config{Pattern: pattern, NodeIndex: node, Size: size})
		store := Store{Dir: dir.ForNode(node), WriteTimeout: time.Minute, OnWriteError: func(err error) { t.Error(err) }}
		if node == 0 {
			store.Nodes = watch
		}
		monitors = append(monitors, m)
		tasks.Go(func() { m.Run(ctx, store) })
	}
	if p := monitors[0].Summary(); p != nil {
		t.Errorf("without a step there is progress: %+v", p)
	}
	// Two ranks on each node; rank 3 is slow.
	for rank := range 2 * size {
		lines := monitors[rank/2].WatchLines("rank " + string(rune('0'+rank)))
		lines([]byte("step 10\nstep 20\n"))
		if rank != 3 {
			lines([]byte("loss 1\nstep 100\n"))
		}
	}
	for _, m := range monitors {
		m.Flush(t.Context())
	}
	want := record.SlowestRank{Rank: 3, NodeIndex: 1, Step: 20, Median: 100, Count: 3}
	await(t, func() bool {
		p := monitors[0].Summary()
		return p != nil && p.Step == 100 && p.MaxStep == 100 && p.Slowest != nil && *p.Slowest == want
	})
	if got := slices.Sorted(slices.Values(monitors[0].NodesWithSteps(watch.LastListing()))); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("nodes %v have steps", got)
	}
	// The record of the head is the newest, and the only one.
	await(t, func() bool {
		names, err := dir.ListNames(t.Context(), signal.ControlDir)
		if err != nil {
			t.Fatal(err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "progress.") })
		var mark record.ProgressMark
		return len(names) == 1 && dir.ReadRecord(t.Context(), signal.ControlDir, names[0], &mark) == nil && mark.Step == 100 && mark.Slowest != nil && *mark.Slowest == want
	})
	await(t, func() bool {
		names, err := dir.ListNames(t.Context(), signal.NodesDir)
		slices.Sort(names)
		return err == nil && slices.Equal(names, []string{"0001.step-3.020000", "0002.step-4.100000"})
	})
}

// lateErrors is a file system on which one rename of a mark succeeds and reports an error, as with a
// server whose reply is lost.
type lateErrors struct {
	signal.SharedFS
	left int
}

// ChangeName implements signal.SharedFS.
func (e *lateErrors) ChangeName(how signal.NameChange, from, to string) error {
	err := e.SharedFS.ChangeName(how, from, to)
	if err == nil && how == signal.RenamePath && strings.Contains(to, ".step-") && e.left > 0 {
		e.left--
		return syscall.ETIMEDOUT
	}
	return err
}

// TestUncertainRename verifies that the steps of a node go on after a rename that has succeeded and
// reported an error.
func TestUncertainRename(t *testing.T) {
	disk := &lateErrors{SharedFS: signal.NewDiskFS(new(signal.CallMeter)), left: 1}
	place := signal.Location{LogDir: filepath.Join(t.TempDir(), "logs"), Run: "j", Key: "facts", Size: 2, Host: "n", Access: signal.Access{FS: disk}}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{HasRanks: true, NodeIndex: 1, Size: 2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := 0
	m.Run(ctx, Store{Dir: dir.ForNode(1), WriteTimeout: time.Minute, OnWriteError: func(error) { failed++ }})
	for step := range 4 {
		m.ReportStep(5, float64(step))
		m.Flush(t.Context())
	}
	names, err := dir.ListNames(t.Context(), signal.NodesDir)
	if err != nil || failed != 1 || !slices.Equal(names, []string{signal.StepName(1, 2, 5, 3)}) {
		t.Errorf("after %d errors the names are %q, error %v", failed, names, err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not come")
		}
	}
}

// TestChanges verifies which steps count as changes.
func TestChanges(t *testing.T) {
	m := New(Config{NodeIndex: 0, Size: 3})
	if got := m.NodesWithSteps(signal.Listing{}); len(got) > 0 {
		t.Errorf("nodes %v have steps", got)
	}
	for i, report := range []struct {
		rank    int
		step    float64
		changes int64
	}{{0, 0, 1}, {0, 0, 1}, {1, 0, 2}, {0, 10, 3}, {0, 10, 3}, {0, 3, 4}, {1, 1, 5}} {
		m.ReportStep(report.rank, report.step)
		if got := m.CountChanges(); got != report.changes {
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
