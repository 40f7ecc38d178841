package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

func warned(id, uuid, observed string) check.Finding {
	return check.Finding{ID: id, Device: &check.Device{UUID: uuid}, Verdict: check.Warn, Class: check.ClassNode, Observed: observed}
}

func event(xid int, uuid string, effect gpu.Effect, next gpu.NextJobFitness) gpu.ClassifiedEvent {
	return gpu.ClassifiedEvent{Event: gpu.Event{Kind: gpu.KindXid, Xid: xid, UUID: uuid}, EventVerdict: gpu.EventVerdict{Effect: effect, Next: next}}
}

// kinds returns the suspicious devices with the kind and text of each suspicion.
func kinds(found []Suspicion) (all []string) {
	for _, s := range found {
		all = append(all, s.Device+" "+s.Kind+": "+s.What)
	}
	return all
}

func TestSuspects(t *testing.T) {
	lost := gpu.ClassifiedEvent{Event: gpu.Event{Kind: gpu.KindLost, Bus: "1:"}, EventVerdict: gpu.EventVerdict{Effect: gpu.EffectFatal, Next: gpu.NextUnfit}}
	user := warned("gpu.nvlink", "GPU-a", "the job's own")
	user.Class = check.ClassUser
	passed := warned("gpu.remap", "GPU-a", "0 rows")
	passed.Verdict = check.Pass
	for name, tc := range map[string]struct {
		before []check.Finding
		found  []check.Finding
		events []gpu.ClassifiedEvent
		downs  int // of the card's link
		want   []string
	}{
		"nothing":                      {},
		"a check":                      {found: []check.Finding{warned("gpu.ecc_unc", "GPU-a", "3 errors")}, want: []string{"GPU-a gpu.ecc_unc: 3 errors"}},
		"a check that passes":          {found: []check.Finding{passed}},
		"what the user has done":       {found: []check.Finding{user}},
		"how it is set up":             {found: []check.Finding{warned("gpu.persistence", "GPU-a", "off")}},
		"a device that does not exist": {found: []check.Finding{warned("gpu.remap", "GPU-x", "3 rows"), {ID: "gpu.remap", Verdict: check.Fail, Class: check.ClassNode}}},
		"a port of a card": {
			found: []check.Finding{{ID: "net.ib", Device: &check.Device{Index: -1, Name: "mlx5_0 port 2"}, Verdict: check.Fail, Class: check.ClassNode, Observed: "down"}},
			want:  []string{"guid net.ib: down"},
		},
		"the same as before":      {before: []check.Finding{warned("gpu.remap", "GPU-a", "512 rows")}, found: []check.Finding{warned("gpu.remap", "GPU-a", "512 rows")}},
		"the same in other words": {before: []check.Finding{warned("gpu.remap", "GPU-a", "512 rows")}, found: []check.Finding{warned("gpu.remap", "GPU-a", "512 remapped rows")}},
		"more than before": {
			before: []check.Finding{warned("gpu.remap", "GPU-a", "512 rows")}, found: []check.Finding{warned("gpu.remap", "GPU-a", "513 rows")},
			want: []string{"GPU-a gpu.remap: 513 rows"},
		},
		"a fatal event": {events: []gpu.ClassifiedEvent{event(79, "GPU-a", gpu.EffectFatal, gpu.NextFit)}, want: []string{"GPU-a xid 79: 1 time"}},
		"an unfit one, twice": {
			events: []gpu.ClassifiedEvent{event(64, "GPU-b", gpu.EffectWarn, gpu.NextUnfit), event(64, "GPU-b", gpu.EffectWarn, gpu.NextUnfit)},
			want:   []string{"GPU-b xid 64: 2 times"},
		},
		"of which the worst counts": {
			events: []gpu.ClassifiedEvent{event(154, "GPU-b", gpu.EffectWarn, gpu.NextFit), event(154, "GPU-b", gpu.EffectWarn, gpu.NextUnfit)},
			want:   []string{"GPU-b xid 154: 2 times"},
		},
		"a link that flaps":      {downs: 3, want: []string{"guid link down: 3 times"}},
		"a switch's reboot":      {downs: 2},
		"known by its place":     {events: []gpu.ClassifiedEvent{lost}, want: []string{"GPU-b lost: 1 time"}},
		"the program's affair":   {events: []gpu.ClassifiedEvent{event(31, "GPU-a", gpu.EffectApp, gpu.NextFit), event(106, "GPU-a", gpu.EffectIgnore, gpu.NextUnfit)}},
		"a warning, and no more": {events: []gpu.ClassifiedEvent{event(63, "GPU-a", gpu.EffectWarn, gpu.NextFit)}},
	} {
		t.Run(name, func(t *testing.T) {
			devices := []Device{card("a", "0:", 0), card("b", "1:", 0), nic("guid", "3:")}
			past := Record{}.NextRecord("1.0", day, WithFindings(devices, tc.before), nil, nil)
			devices[2].Counters = &Counters{}
			devices[2].Counters.Increase.LinkDowns = &tc.downs
			found := past.FindSuspicions("2.0", day, WithEvents(WithFindings(devices, tc.found), tc.events))
			if diff := cmp.Diff(tc.want, kinds(found)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestThrottled verifies that a throttled GPU is suspicious only if another one of the node is
// cooler.
func TestThrottled(t *testing.T) {
	for name, tc := range map[string]struct {
		looks int
		parts []int // of 100 polls, per GPU
		want  []string
	}{
		"none":             {100, []int{0, 5, 10}, nil},
		"one":              {100, []int{0, 60, 10}, []string{"GPU-1"}},
		"not enough":       {100, []int{0, 59, 10}, nil},
		"all":              {100, []int{100, 100, 100}, nil},
		"the hall is warm": {100, []int{35, 70, 60}, nil},
		"the only one":     {100, []int{100}, nil},
		"a short run":      {9, []int{0, 100}, nil},
		"two of four":      {10, []int{0, 90, 80, 0}, []string{"GPU-1", "GPU-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var devices []Device
			for i, part := range tc.parts {
				d := card(fmt.Sprint(i), fmt.Sprintf("%d:", i), 0)
				d.Counters = &Counters{Polls: tc.looks, SlowedPolls: tc.looks * part / 100}
				devices = append(devices, d)
			}
			var got []string
			for _, d := range throttledAlone(devices) {
				got = append(got, d.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAgain verifies that a second suspicion of the same kind on the same device counts if it
// occurs within ten runs.
func TestAgain(t *testing.T) {
	devices := []Device{card("a", "0:", 0), card("b", "1:", 0)}
	now := []Suspicion{{Run: "99.0", At: day, Device: "GPU-a", Kind: "gpu.remap", What: "513 rows"}}
	for name, tc := range map[string]struct {
		was   Suspicion
		since int // in runs
		want  string
	}{
		"the run before":  {Suspicion{Device: "GPU-a", Kind: "gpu.remap", What: "512 rows"}, 0, "gpu.remap: 513 rows; also in run 1.0 of 2026-11-20: 512 rows"},
		"of another kind": {Suspicion{Device: "GPU-a", Kind: "gpu.pcie"}, 0, ""},
		"another device":  {Suspicion{Device: "GPU-b", Kind: "gpu.remap"}, 0, ""},
		"nine runs ago":   {Suspicion{Device: "GPU-a", Kind: "gpu.remap", What: "1 row"}, 9, "gpu.remap: 513 rows; also in run 1.0 of 2026-11-20: 1 row"},
		"ten runs ago":    {Suspicion{Device: "GPU-a", Kind: "gpu.remap"}, 10, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.was.Run, tc.was.At = "1.0", day
			past := Record{}.NextRecord("1.0", day, devices, nil, []Suspicion{tc.was})
			for n := range tc.since {
				past = past.NextRecord(fmt.Sprintf("%d.0", n+2), day.Add(time.Hour), devices, nil, nil)
			}
			var got string
			for _, again := range past.RepeatedSuspicions(now, devices) {
				got += again.What
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLate verifies that a finding at the end of the last run is reported once more when the next
// one begins.
func TestLate(t *testing.T) {
	devices := []Device{card("a", "0:", 0)}
	suspicion := func(run, kind string) []Suspicion { return []Suspicion{{Run: run, Device: "GPU-a", Kind: kind}} }
	past := Record{}.NextRecord("1.0", day, devices, nil, suspicion("1.0", kindThrottled))
	if again := past.RepeatedSuspicions(past.LateSuspicions(), devices); len(again) > 0 {
		t.Errorf("after one: %+v", again)
	}
	past = past.NextRecord("2.0", day, devices, nil, append(suspicion("2.0", kindThrottled), suspicion("2.0", "lost")...))
	if again := past.RepeatedSuspicions(past.LateSuspicions(), devices); len(again) != 1 {
		t.Errorf("after two: %+v", again)
	}
	past = past.NextRecord("3.0", day, devices, nil, suspicion("3.0", kindLinkDown))
	past = past.NextRecord("4.0", day, devices, nil, suspicion("4.0", kindLinkDown))
	if again := past.RepeatedSuspicions(past.LateSuspicions(), devices); len(again) != 1 || !strings.HasPrefix(again[0].What, kindLinkDown) {
		t.Errorf("a link that went down twice: %+v", again)
	}
	past = past.NextRecord("5.0", day, devices, nil, nil)
	if late := past.LateSuspicions(); len(late) > 0 {
		t.Errorf("a run later: %+v", late)
	}
	if late := (Record{}).LateSuspicions(); len(late) > 0 {
		t.Errorf("before any run: %+v", late)
	}
}
