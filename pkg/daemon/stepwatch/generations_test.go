package stepwatch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// job is a job of three nodes whose processes report steps. The head is on node 0.
type job struct {
	t        *testing.T
	dir      *signal.Dir
	watch    *signal.Watch // of the head
	monitors []*stepwatch.Monitor
}

// inBubble runs a test with a job in a bubble of testing/synctest.
func inBubble(t *testing.T, test func(j *job)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const size = 3
		meter := new(signal.CallMeter)
		place := signal.Location{LogDir: "/share/logs", Run: "j", Key: "k", Size: size, Host: "n0"}
		place.Access = signal.Access{
			FS: memory.NewShare("/share").Access(meter), Meter: meter, NoHints: true,
			Jitter: func() float64 { return 0.5 },
		}
		dir, err := signal.CreateRun(t.Context(), place, record.Job{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		defer tasks.Wait()
		defer cancel()
		watch := dir.NewWatch(signal.NodesDir, signal.HeadPace)
		tasks.Go(func() { watch.Run(ctx) })
		j := &job{t: t, dir: dir, watch: watch}
		for node := range size {
			cfg := new(deps.Config)
			cfg.Identity.NodeIndex, cfg.Identity.Size, cfg.World.PerNode = node, size, "1"
			m := stepwatch.New(cfg)
			store := stepwatch.Store{
				Dir: dir.ForNode(node), WriteTimeout: time.Minute,
				OnWriteError: func(err error) { t.Error(err) },
			}
			if node == 0 {
				store.Nodes = watch
			}
			j.monitors = append(j.monitors, m)
			tasks.Go(func() { m.Run(ctx, store) })
		}
		test(j)
	})
}

// report makes a process of instance 0 report a step, and waits until the head knows it.
func (j *job) report(node, generation, rank int, step float64) {
	p := stepwatch.Process{Generation: generation, Rank: rank}
	j.monitors[node].ReportProcessStep(p, step)
	time.Sleep(time.Minute)
	synctest.Wait()
}

// wantNames compares the names by which nodes publish their steps.
func (j *job) wantNames(want ...string) {
	j.t.Helper()
	names, err := j.dir.ListNames(j.t.Context(), signal.NodesDir)
	if slices.Sort(names); err != nil || !slices.Equal(names, want) {
		j.t.Errorf("the names are %v, want %v; %v", names, want, err)
	}
}

// wantStep compares the step of the job, the highest so far, and where it was resumed; 0: never.
func (j *job) wantStep(step, highest, resumed float64) {
	j.t.Helper()
	p := j.monitors[0].Summary()
	if p == nil {
		j.t.Fatal("there is no progress")
	}
	isResumed := len(p.Lost) == 1 && p.Lost[0].Reached == highest && p.Lost[0].Resumed == resumed
	if p.Step != step || p.MaxStep != highest || isResumed != (resumed > 0) || len(p.Lost) > 1 {
		j.t.Errorf("the progress is %+v, want step %v of %v, resumed at %v", p, step, highest, resumed)
	}
}

// wantSlowest compares the slowest rank.
func (j *job) wantSlowest(want record.SlowestRank) {
	j.t.Helper()
	if p := j.monitors[0].Summary(); p.Slowest == nil || *p.Slowest != want {
		j.t.Errorf("the slowest is %+v, want %+v", p.Slowest, want)
	}
}

// TestPublishedStep verifies that a node publishes one name for an instance, which is always that
// of its newest step in the newest generation.
func TestPublishedStep(t *testing.T) {
	inBubble(t, func(j *job) {
		j.report(1, 0, 2, 10)
		j.wantNames("0001.i0000.g0.step-2.010000")
		j.report(1, 0, 2, 20)
		j.report(1, 0, 2, 20)
		j.wantNames("0001.i0000.g0.step-2.020000")
		j.report(1, 0, 3, 15)
		j.wantNames("0001.i0000.g0.step-3.015000")
		j.report(1, 1, 2, 30) // rank 3 has reported none in this generation
		j.wantNames("0001.i0000.g1.step-2.030000")
		j.report(2, 1, 4, 8)
		j.monitors[1].ReportStep(5, 9) // of a world without roles
		j.report(1, 1, 2, 40)
		j.monitors[1].ReportStep(5, 10)
		j.report(1, 1, 2, 9)
		j.wantNames("0001.i0000.g1.step-2.009000", "0001.step-5.010000", "0002.i0000.g1.step-4.008000")
	})
}

// TestStepsOfOlderGenerations verifies that the steps of a generation that is over do not count: on
// the node of the head, on another one, and of a node that has not started the new one yet.
func TestStepsOfOlderGenerations(t *testing.T) {
	for node := range 2 {
		inBubble(t, func(j *job) {
			m := j.monitors[node]
			m.AddProcess("old", stepwatch.Process{Generation: 0, Rank: 0})
			m.AddProcess("new", stepwatch.Process{Generation: 1, Rank: 0})
			m.AddProcess("other", stepwatch.Process{Generation: 1, Rank: 1})
			j.report(node, 0, 0, 100)
			j.report(node, 0, 1, 100)
			j.report(2, 0, 2, 100)
			j.wantStep(100, 100, 0)
			j.report(node, 1, 0, 10)
			j.wantStep(10, 100, 10)
			// What the old one has printed last comes late.
			j.report(node, 0, 0, 101)
			j.report(node, 0, 1, 102)
			j.wantStep(10, 100, 10)
			for generation, want := range []int64{0, 1} {
				if got := m.CountChanges(0, generation); got != want {
					t.Errorf("node %d: generation %d has %d changes, want %d", node, generation, got, want)
				}
			}
			for child, want := range map[string]float64{"old": -1, "new": 10, "other": -1} {
				if step, known := m.LastStep(child); known != (want >= 0) || known && step != want {
					t.Errorf("node %d: the step of %s is %v, %t", node, child, step, known)
				}
			}
			if p := j.monitors[0].Summary(); p.Slowest != nil {
				t.Errorf("node %d: the slowest of one is %+v", node, p.Slowest)
			}
			for generation, want := range []int{2, node} {
				nodes := j.monitors[0].NodesWithSteps(j.watch.LastListing(), 0, generation)
				if !slices.Equal(nodes, []int{want}) {
					t.Errorf("generation %d has steps on %v, want %d", generation, nodes, want)
				}
			}
			ended := record.InstanceMark{Node: 2, State: record.InstanceExited}
			err := j.dir.WriteMark(j.t.Context(), signal.NodesDir, signal.InstanceName(ended, 3))
			if err != nil {
				t.Error(err)
			}
			j.report(2, 1, 2, 12)
			j.wantStep(12, 100, 10)
			want := record.SlowestRank{Rank: 0, NodeIndex: node, Step: 10, Median: 11, Count: 2}
			j.wantSlowest(want)
			j.report(1-node, 1, 5, 30)
			want.Median, want.Count = 12, 3
			j.wantSlowest(want)
		})
	}
}
