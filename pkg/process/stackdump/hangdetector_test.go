package stackdump

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// stepsAt returns the number of steps at a time, from the seconds of the steps.
func stepsAt(seconds ...int) func(at time.Duration) int64 {
	return func(at time.Duration) (count int64) {
		for _, second := range seconds {
			if time.Duration(second)*time.Second <= at {
				count++
			}
		}
		return count
	}
}

func TestHangDetector(t *testing.T) {
	type event struct {
		after time.Duration
		idle  bool
	}
	for _, tc := range []struct {
		name    string
		timeout time.Duration
		// By the only rank; negative: /proc cannot be read.
		used    func(at time.Duration) time.Duration
		printed func(at time.Duration) int64
		steps   func(at time.Duration) int64
		want    []event // within ten minutes
	}{
		{"works", time.Minute, func(at time.Duration) time.Duration { return at }, nil, nil, nil},
		{"does nothing from the beginning", time.Minute, nil, nil, nil, []event{{65 * time.Second, true}}},
		{"spins", time.Minute, func(at time.Duration) time.Duration { return at }, nil, nil, nil},
		{"prints again after five minutes", time.Minute, nil, func(at time.Duration) int64 { return min(1, int64(at/(5*time.Minute))) }, nil,
			[]event{{65 * time.Second, true}, {5 * time.Minute, false}, {6 * time.Minute, true}}},
		{"a short timeout", 20 * time.Second, nil, nil, nil, []event{{22 * time.Second, true}}},
		{"spins before its first step, and prints", time.Minute, func(at time.Duration) time.Duration { return at }, func(at time.Duration) int64 { return int64(at) }, nil, nil},
		{"spins after steps, and prints", time.Minute, func(at time.Duration) time.Duration { return at }, func(at time.Duration) int64 { return int64(at) },
			func(at time.Duration) int64 { return int64(min(at, 3*time.Minute) / (10 * time.Second)) }, []event{{4 * time.Minute, true}}},
		{"steps that take longer than the timeout", time.Minute, func(at time.Duration) time.Duration { return at }, nil, func(at time.Duration) int64 { return int64(at / (90 * time.Second)) }, nil},
		{"a phase as long as the one before is not idle", time.Minute, nil, nil, stepsAt(10, 20, 70, 80, 170, 180, 320, 460), nil},
		{"a phase of more than twice the time is", time.Minute, nil, nil, stepsAt(10, 20, 70, 80, 170, 180), []event{{360 * time.Second, true}}},
		{"steps begin again after a long wait", time.Minute, nil, nil, stepsAt(10, 20, 150, 200, 300, 400, 500), []event{{80 * time.Second, true}, {150 * time.Second, false}}},
		{"its first step comes late", time.Minute, nil, nil, stepsAt(150),
			[]event{{65 * time.Second, true}, {150 * time.Second, false}, {440 * time.Second, true}}},
		{"after the second step, its startup no longer counts", time.Minute, nil, nil, stepsAt(50, 52),
			[]event{{115 * time.Second, true}}},
		{"a heartbeat's half percent", time.Minute, func(at time.Duration) time.Duration { return at / 200 }, nil, nil,
			[]event{{65 * time.Second, true}}},
		{"three percent are work", time.Minute, func(at time.Duration) time.Duration { return at * 3 / 100 }, nil, nil, nil},
		{"one of its processes ends", time.Minute, func(at time.Duration) time.Duration {
			if at < 5*time.Minute {
				return time.Hour
			}
			return 0
		}, nil, nil, []event{{65 * time.Second, true}, {305 * time.Second, false}, {365 * time.Second, true}}},
		{"nothing can be seen", time.Minute, func(time.Duration) time.Duration { return -1 }, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []event
				v := HangDetector{
					Timeout: tc.timeout,
					RunningRanks: func() []RankProcess {
						rank := RankProcess{Rank: 3, PID: 7}
						if tc.printed != nil {
							rank.Printed = tc.printed(time.Since(began))
						}
						return []RankProcess{rank, {Rank: 4, PID: 8}}
					},
					CountSteps: func() int64 {
						if tc.steps == nil {
							return 0
						}
						return tc.steps(time.Since(began))
					},
					OnChange: func(idle bool) { got = append(got, event{time.Since(began), idle}) },
					CPUTimes: func([]int) (map[int]time.Duration, error) {
						used := time.Duration(0)
						if tc.used != nil {
							used = tc.used(time.Since(began))
						}
						if used < 0 {
							return nil, errors.New("hidden")
						}
						return map[int]time.Duration{7: used}, nil
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				v.Run(ctx)
				if !slices.Equal(got, tc.want) {
					t.Errorf("OnChange got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestSampler samples real processes: one sleeps, then another that spins beside it counts as
// activity.
func TestSampler(t *testing.T) {
	asleep, spins := begin(t, "sleep", "3600"), begin(t, "sh", "-c", "sh -c 'while :; do :; done'; :")
	scanner := process.NewFamilyScanner()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(10 * time.Millisecond) {
		used, err := SumCPUTimes(scanner, []int{asleep, spins, 1 << 30})
		if err == nil && len(used) == 2 && used[asleep] < 100*time.Millisecond && used[spins] >= 200*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("they have used %v, %v", used, err)
		}
	}
}

// TestIdleChanges verifies that ranks that begin or end count as active, and that nothing is
// assumed about a period without samples.
func TestIdleChanges(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	one, two := map[int]rankUsage{0: {}}, map[int]rankUsage{0: {}, 1: {}}
	for _, tc := range []struct {
		name          string
		before, after map[int]rankUsage
		second        int // of the second sample
		idle          bool
	}{
		{"the same", one, one, 11, true},
		{"a rank has begun", one, two, 11, false},
		{"a rank has ended", two, one, 11, false},
		{"another rank", one, map[int]rankUsage{1: {}}, 11, false},
		{"all have ended", one, nil, 11, false},
		{"none, still", nil, nil, 11, true},
		{"after a suspension", one, one, 3600, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var idle idleTracker
			idle.addSample(at(0), tc.before, 0)
			if since := idle.addSample(at(tc.second), tc.after, 0); since.Equal(at(0)) != tc.idle {
				t.Errorf("idle since second %v", since.Sub(began).Seconds())
			}
		})
	}
}
