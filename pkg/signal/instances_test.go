package signal

import (
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestInstanceNames(t *testing.T) {
	for name, want := range map[string]InstanceMark{
		"0007.i0042.g0.ready":          {7, 42, 0, record.InstanceReady, 0},
		"0007.i0042.g3.exited":         {7, 42, 3, record.InstanceExited, 0},
		"0007.i12345.g0.ready.000004":  {7, 12345, 0, record.InstanceReady, 4},
		"0000.i0000.g10.unready.00001": {},
		"0007.i42.g0.ready":            {},
		"0007.i0042.g00.ready":         {},
		"0007.i0042.ready":             {},
		"0007.0042.g0.ready":           {},
		"7.i0042.g0.ready":             {},
		"0007.i0042.g0.":               {},
		"0007.i0042.g0.ready.000000":   {},
		"0007.i0042.g0.ready.000001.x": {},
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
	if control.NewestPlan() != 1 || control.NewestLive() != 12 || control.TeamGeneration() != -1 {
		t.Errorf("the newest are plan %d and list %d", control.NewestPlan(), control.NewestLive())
	}
}
