package stackdump

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestVigil(t *testing.T) {
	type event struct {
		after time.Duration
		idle  bool
	}
	for _, tc := range []struct {
		name       string
		timeout    time.Duration
		outputOnly bool
		// By the only rank; negative: /proc cannot be read.
		used    func(at time.Duration) time.Duration
		printed func(at time.Duration) int64
		want    []event // within ten minutes
	}{
		{"works", time.Minute, false, func(at time.Duration) time.Duration { return at }, nil, nil},
		{"does nothing from the beginning", time.Minute, false, nil, nil, []event{{65 * time.Second, true}}},
		{"spins", time.Minute, false, func(at time.Duration) time.Duration { return at }, nil, nil},
		{"spins, where output alone counts", time.Minute, true, func(at time.Duration) time.Duration { return at }, nil, []event{{65 * time.Second, true}}},
		{"prints again after five minutes", time.Minute, false, nil, func(at time.Duration) int64 { return min(1, int64(at/(5*time.Minute))) },
			[]event{{65 * time.Second, true}, {5 * time.Minute, false}, {6 * time.Minute, true}}},
		{"a short timeout", 20 * time.Second, false, nil, nil, []event{{22 * time.Second, true}}},
		{"nothing can be seen", time.Minute, false, func(time.Duration) time.Duration { return -1 }, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []event
				v := HangDetector{
					Timeout: tc.timeout, OutputOnly: tc.outputOnly,
					RunningRanks: func() []RankProcess {
						rank := RankProcess{Rank: 3, PID: 7}
						if tc.printed != nil {
							rank.Printed = tc.printed(time.Since(began))
						}
						return []RankProcess{rank, {Rank: 4, PID: 8}}
					},
					OnChange: func(idle bool) { got = append(got, event{time.Since(began), idle}) },
					cpuTimes: func([]int) (map[int]time.Duration, error) {
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
					t.Errorf("it has told %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestSampler samples real processes: one sleeps, then another that spins beside it counts as
// activity.
func TestSampler(t *testing.T) {
	asleep, spins := begin(t, "sleep", "3600"), begin(t, "sh", "-c", "sh -c 'while :; do :; done'; :")
	sampler := NewCPUSampler()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(10 * time.Millisecond) {
		used, err := sampler.CPUTimes([]int{asleep, spins, 1 << 30})
		if err == nil && len(used) == 2 && used[asleep] < 100*time.Millisecond && used[spins] >= 200*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("they have used %v, %v", used, err)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	sampler := NewCPUSampler()
	for b.Loop() {
		if _, err := sampler.CPUTimes([]int{1}); err != nil {
			b.Fatal(err)
		}
	}
}
