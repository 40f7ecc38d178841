package signal

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestInstanceNames(t *testing.T) {
	for name, want := range map[string]record.InstanceMark{
		"0007.i0042.g0.ready":          {Node: 7, Instance: 42, Generation: 0, State: record.InstanceReady, Change: 0},
		"0007.i0042.g3.exited":         {Node: 7, Instance: 42, Generation: 3, State: record.InstanceExited, Change: 0},
		"0007.i12345.g0.ready.000004":  {Node: 7, Instance: 12345, Generation: 0, State: record.InstanceReady, Change: 4},
		"0000.i0000.g10.unready.00001": {},
		"0007.i42.g0.ready":            {},
		"0007.i0042.g00.ready":         {},
		"0007.i0042.ready":             {},
		"0007.0042.g0.ready":           {},
		"7.i0042.g0.ready":             {},
		"0007.i0042.g0.":               {},
		"0007.i0042.g0.ready.000000":   {},
		"0007.i0042.g0.ready.000001.x": {},
		"0007.i0042.g0.step-3.020000":  {},
		"0007.i0042.g0.idle.000001":    {},
		"0099.i0000.g0.ready":          {}, // beyond the job
	} {
		got, ok := ParseInstanceName(name, 64)
		if got != want && ok || ok != (want.State != "") {
			t.Errorf("%s is %+v, %v", name, got, ok)
		}
		if ok && InstanceName(got, 64) != name {
			t.Errorf("%s became %s", name, InstanceName(got, 64))
		}
		if _, alone := ParseInstanceName(name, 0); ok && !alone {
			t.Errorf("%s is not accepted in a job of unknown size", name)
		}
	}
}

func TestInstancesInListing(t *testing.T) {
	l := newListing([]string{"0001.up", "0001.i0002.g0.ready", "0003.i0002.g1.exited", "0002.beat.000001"}, 4, 1, time.Time{})
	if len(l.Instances()) != 2 || l.Instances()[0].Node+l.Instances()[1].Node != 4 {
		t.Errorf("the instances are %+v", l.Instances())
	}
	control := newListing([]string{"plan.0000", "plan.0001", "live.000012", "start.judge", "end.1"}, 4, 1, time.Time{})
	if control.Newest(SeriesPlan) != 1 || control.Newest(SeriesLive) != 12 || control.Newest(SeriesTeam) != -1 {
		t.Errorf("the newest are plan %d and list %d", control.Newest(SeriesPlan), control.Newest(SeriesLive))
	}
}

// TestInstanceCounts checks the names with steps and idle times of instances.
func TestInstanceCounts(t *testing.T) {
	names := []string{
		"0001.i0002.g0.ready", "0001.step-4.099000", // of others
		"0001.i0002.g0.step-3.020000", "0001.i0002.g0.step-4.019500", // one could not be removed
		"0003.i0002.g1.step.007000", "0003.i0002.g0.step.900000",
		"0003.i0002.g1.idle.000001", "0002.i0002.g1.idle.000001", "0002.i0002.g1.idle.000002",
		"0002.i0002.g1.idle.1", "0002.i0002.g1.idle", "9999.i0002.g1.idle.000001", // wrong
		InstanceStepName(InstanceStep{2, 0, 3, NodeStep{12, 1e15}}, 4), InstanceIdleName(0, 4, 7, 2, 3),
	}
	l := newListing(names, 4, 1, time.Time{})
	got := l.InstanceSteps()
	slices.SortFunc(got, func(a, b InstanceStep) int { return a.Node - b.Node })
	want := []InstanceStep{{1, 2, 0, NodeStep{3, 20}}, {2, 0, 3, NodeStep{12, 1e15}}, {3, 2, 1, NodeStep{-1, 7}}}
	if !slices.Equal(got, want) {
		t.Errorf("the steps are %+v, want %+v", got, want)
	}
	if len(l.Instances()) != 1 || len(l.NodeSteps()) != 1 {
		t.Errorf("the instances are %+v, and the steps of nodes %+v", l.Instances(), l.NodeSteps())
	}
	for _, tc := range []struct {
		instance, generation int
		idle                 []int
	}{{2, 1, []int{3}}, {2, 0, nil}, {7, 2, []int{0}}} {
		if got := l.IdleInstanceNodes(tc.instance, tc.generation); !slices.Equal(got, tc.idle) {
			t.Errorf("generation %d of %d is idle on %v, want %v", tc.generation, tc.instance, got, tc.idle)
		}
	}
}
