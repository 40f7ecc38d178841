package simulate

import (
	"testing"
)

// numbers returns the numbers from n down to 1.
func numbers(n int64) (all []int64) {
	for ; n > 0; n-- {
		all = append(all, n)
	}
	return all
}

func TestSpreadOf(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []int64
		want   Percentiles[int64]
	}{
		{"none", nil, Percentiles[int64]{}},
		{"one", []int64{7}, Percentiles[int64]{7, 7, 7, 7}},
		{"two: the lower one is the median", []int64{9, 3}, Percentiles[int64]{3, 3, 9, 9}},
		{"three", []int64{9, 3, 5}, Percentiles[int64]{3, 5, 9, 9}},
		{"ninety-nine: the last is the 99th", numbers(99), Percentiles[int64]{1, 50, 99, 99}},
		{"a hundred: the last is not", numbers(100), Percentiles[int64]{1, 50, 99, 100}},
		{"a hundred and one", numbers(101), Percentiles[int64]{1, 51, 100, 101}},
		{"a thousand", numbers(1000), Percentiles[int64]{1, 500, 990, 1000}},
		{"all the same", []int64{4, 4, 4, 4}, Percentiles[int64]{4, 4, 4, 4}},
		{"below zero", []int64{-1, 1, -3}, Percentiles[int64]{-3, -1, 1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := percentilesOf(tc.values); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestPeakOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		bins    []int64
		window  int
		aSecond int
		want    int64
	}{
		{"none", nil, 10, 100, 0},
		{"nothing called", []int64{0, 0, 0}, 10, 100, 0},
		{"shorter than the window", []int64{3, 4}, 10, 100, 70},
		{"one bin is the window", []int64{3, 9, 4}, 1, 100, 900},
		{"a burst over two bins", []int64{0, 5, 6, 0, 7}, 2, 10, 55},
		{"what leaves the window is not counted", []int64{8, 0, 0, 1, 1}, 2, 10, 40},
		{"the last bins", []int64{1, 1, 1, 5, 5}, 2, 10, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := maxWindowRate(tc.bins, tc.window, tc.aSecond); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
