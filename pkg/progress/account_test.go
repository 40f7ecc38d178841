package progress

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// report is a step at a time in seconds since the start of the attempt.
type report struct{ at, step float64 }

// TestAccount verifies the steps lost, the goodput and the maximum over several attempts.
func TestAccount(t *testing.T) {
	for _, tc := range []struct {
		name       string
		attempts   [][]report
		productive float64 // in seconds
		lost       []record.LostSteps
		step, most float64
		rate       float64
		gained     bool
	}{
		{name: "no report", attempts: [][]report{{}}},
		{name: "one report", attempts: [][]report{{{10, 1}}}, step: 1, most: 1, gained: true},
		{name: "steps", attempts: [][]report{{{10, 1}, {20, 2}, {30, 3}}}, productive: 20, step: 3,
			most: 3, rate: 0.1, gained: true},
		{name: "every tenth step", attempts: [][]report{{{10, 10}, {20, 20}, {30, 30}}},
			productive: 20, step: 30, most: 30, rate: 1, gained: true},
		{name: "repeated reports of a step", attempts: [][]report{{{10, 1}, {15, 1}, {20, 2},
			{25, 2}}}, productive: 10, step: 2, most: 2, rate: 0.1, gained: true},
		{
			name:       "a restart from a checkpoint",
			attempts:   [][]report{{{10, 1}, {20, 2}, {30, 3}, {40, 4}}, {{5, 3}, {15, 4}, {25, 5}}},
			productive: 30 + 10, step: 5, most: 5, rate: 0.1, gained: true,
			lost: []record.LostSteps{{Attempt: 1, Reached: 4, Resumed: 3, Steps: 2}},
		},
		{
			name:       "a restart from a checkpoint, with every tenth step reported",
			attempts:   [][]report{{{10, 100}, {20, 110}, {30, 120}}, {{5, 110}, {15, 120}, {25, 130}}},
			productive: 20 + 10, step: 130, most: 130, rate: 1, gained: true,
			lost: []record.LostSteps{{Attempt: 1, Reached: 120, Resumed: 110, Steps: 20}},
		},
		{
			name:       "a restart from the beginning that fails before it gets further",
			attempts:   [][]report{{{10, 1}, {20, 2}, {30, 3}}, {{10, 1}, {20, 2}}},
			productive: 20, step: 2, most: 3, rate: 0.1,
			lost: []record.LostSteps{{Attempt: 1, Reached: 3, Resumed: 1, Steps: 3}},
		},
		{
			name:       "a restart that gets as far as before",
			attempts:   [][]report{{{10, 1}, {20, 2}, {30, 3}}, {{10, 2}, {20, 3}}},
			productive: 20, step: 3, most: 3, rate: 0.1,
			lost: []record.LostSteps{{Attempt: 1, Reached: 3, Resumed: 2, Steps: 2}},
		},
		{
			name: "a restart before the distance of reports is known", attempts: [][]report{{{10, 5}}, {{5, 3}}},
			step: 3, most: 5,
			lost: []record.LostSteps{{Attempt: 1, Reached: 5, Resumed: 3, Steps: 3}},
		},
		{
			name: "nothing is lost", attempts: [][]report{{{10, 1}, {20, 2}}, {{10, 3}, {20, 4}}},
			productive: 10 + 10, step: 4, most: 4, rate: 0.1, gained: true,
			lost: []record.LostSteps{{Attempt: 1, Reached: 2, Resumed: 3, Steps: 0}},
		},
		{
			name: "an attempt without a report", attempts: [][]report{{{10, 1}, {20, 2}}, {}, {{10, 2}, {20, 3}}},
			productive: 10 + 10, step: 3, most: 3, rate: 0.1, gained: true,
			lost: []record.LostSteps{{Attempt: 2, Reached: 2, Resumed: 2, Steps: 1}},
		},
		{
			name: "a report across the old maximum", attempts: [][]report{{{10, 10}, {20, 20}}, {{10, 15}, {20, 25}}},
			productive: 10 + 5, step: 25, most: 25, rate: 1, gained: true,
			lost: []record.LostSteps{{Attempt: 1, Reached: 20, Resumed: 15, Steps: 15}},
		},
		{name: "a program that counts anew in each epoch",
			attempts: [][]report{{{1, 1}, {2, 2}, {3, 1}, {4, 2}, {5, 3}}}, productive: 1 + 1,
			step: 3, most: 3, rate: 1, gained: true},
		{name: "step 0", attempts: [][]report{{{1, 0}, {2, 1}}}, productive: 1, step: 1, most: 1,
			rate: 1, gained: true},
		{name: "two reports at once", attempts: [][]report{{{1, 1}, {1, 2}}}, step: 2, most: 2, gained: true},
		{name: "epochs", attempts: [][]report{{{1, 0.5}, {2, 0.75}}}, productive: 1, step: 0.75,
			most: 0.75, rate: 0.25, gained: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before record.Progress
			for attempt, reports := range tc.attempts {
				a := NewAccount(before, attempt)
				for _, r := range reports {
					a.Add(time.Duration(r.at*float64(time.Second)), r.step)
				}
				before = a.Summary(100 * time.Second)
			}
			got := before
			if diff := cmp.Diff(tc.lost, got.Lost, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if math.Abs(got.Productive.Seconds()-tc.productive) > 1e-6 ||
				math.Abs(got.Goodput-tc.productive/100) > 1e-6 {
				t.Errorf("%s are productive, a goodput of %v; want %v s", got.Productive, got.Goodput, tc.productive)
			}
			if got.Step != tc.step || got.MaxStep != tc.most || math.Abs(got.Rate-tc.rate) > 1e-9 ||
				got.Gained != tc.gained {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestAddRestart verifies the steps lost and the goodput when a program is started again within an
// attempt.
func TestAddRestart(t *testing.T) {
	a := NewAccount(record.Progress{}, 2)
	if got := a.Summary(0); got.Goodput != 0 {
		t.Errorf("at the start the goodput is %v", got.Goodput)
	}
	for at, step := range []float64{10, 20, 30} {
		a.Add(time.Duration(at)*time.Second, step)
	}
	a.AddRestart(30, 20)
	a.Add(10*time.Second, 20)
	a.Add(20*time.Second, 40)
	a.AddRestart(40, 60) // nothing is lost, and the pause is not productive
	a.Add(50*time.Second, 60)
	a.Add(60*time.Second, 70)
	got := a.Summary(100 * time.Second)
	want := []record.LostSteps{{Attempt: 2, InAttempt: true, Reached: 30, Resumed: 20, Steps: 20},
		{Attempt: 2, InAttempt: true, Reached: 40, Resumed: 60}}
	if diff := cmp.Diff(want, got.Lost); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	if got.Productive != 2*time.Second+5*time.Second+10*time.Second || got.Step != 70 ||
		got.MaxStep != 70 || got.Rate != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestSeriesForgets(t *testing.T) {
	var s Series
	for i := range 100 {
		s.Add(time.Duration(i*i)*time.Second, float64(i))
	}
	if rate, want := s.Rate(), 15.0/(99*99-84*84); math.Abs(rate-want) > 1e-9 {
		t.Errorf("the rate is %v, not %v", rate, want)
	}
}
