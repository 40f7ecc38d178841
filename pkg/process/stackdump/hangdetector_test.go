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
	// Functions of the time since the start: the processor time that the only rank has used, and the
	// bytes that it has printed.
	used := func(percent float64) func(time.Duration) time.Duration {
		return func(at time.Duration) time.Duration { return time.Duration(float64(at) * percent / 100) }
	}
	prints := func(at time.Duration) int64 { return int64(at) }
	changes := func(seconds ...int) (all []event) {
		for i, second := range seconds {
			all = append(all, event{time.Duration(second) * time.Second, i%2 == 0})
		}
		return all
	}
	for _, tc := range []struct {
		name    string
		used    func(at time.Duration) time.Duration // negative: /proc cannot be read
		printed func(at time.Duration) int64
		steps   func(at time.Duration) int64
		want    []event // within ten minutes
	}{
		{"works", used(100), nil, nil, nil},
		{"does nothing from the beginning", nil, nil, nil, changes(65)},
		{"prints again after five minutes", nil, stepsAt(300), nil, changes(65, 300, 360)},
		{"a short timeout", nil, nil, nil, changes(22)},
		{"works, with a timeout of less than a window", used(50), nil, nil, nil},
		{"spins before its first step, and prints", used(100), prints, nil, nil},
		{"spins after steps, and prints", used(100), prints,
			func(at time.Duration) int64 { return int64(min(at, 3*time.Minute) / (10 * time.Second)) }, changes(240)},
		{"steps that take longer than the timeout", used(100), nil,
			func(at time.Duration) int64 { return int64(at / (90 * time.Second)) }, nil},
		{"a phase as long as the one before is not idle", nil, nil, stepsAt(10, 20, 70, 80, 170, 180, 320, 460), nil},
		{"a phase of more than twice the time is", nil, nil, stepsAt(10, 20, 70, 80, 170, 180), changes(360)},
		{"steps begin again after a long wait", nil, nil, stepsAt(10, 20, 150, 200, 300, 400, 500), changes(80, 150)},
		{"its first step comes late", nil, nil, stepsAt(150), changes(65, 150, 440)},
		{"after the second step, its startup no longer counts", nil, nil, stepsAt(50, 52), changes(115)},
		{"a heartbeat's half percent", used(0.5), nil, nil, changes(65)},
		{"three percent are work", used(3), nil, nil, nil},
		{"one of its processes ends", func(at time.Duration) time.Duration {
			if at < 5*time.Minute {
				return time.Hour
			}
			return 0
		}, nil, nil, changes(65, 300, 360)},
		{"nothing can be seen", used(-100), nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []event
				v := HangDetector{
					Timeout: time.Minute,
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
				switch tc.name {
				case "a short timeout":
					v.Timeout = 20 * time.Second
				case "works, with a timeout of less than a window":
					v.Timeout = 3 * time.Second
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
