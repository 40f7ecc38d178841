package simulate

import (
	"slices"
	"time"
)

// Percentiles is the distribution of a value over the nodes. The quantiles use the nearest-rank
// method: P99 is the smallest value that 99 of 100 nodes do not exceed, and always one of the
// measured values.
type Percentiles[T int64 | time.Duration] struct {
	Min T `json:"min"`
	P50 T `json:"p50"`
	P99 T `json:"p99"`
	Max T `json:"max"`
}

// percentilesOf returns the distribution of values, which it sorts. It returns a zero Percentiles
// for an empty slice.
func percentilesOf[T int64 | time.Duration](values []T) Percentiles[T] {
	if len(values) == 0 {
		return Percentiles[T]{}
	}
	slices.Sort(values)
	return Percentiles[T]{
		Min: values[0], P50: nearestRank(values, 50), P99: nearestRank(values, 99), Max: values[len(values)-1],
	}
}

// nearestRank returns the value of the nearest rank. The slice sorted must not be empty, and
// percent must be from 1 to 100.
func nearestRank[T int64 | time.Duration](sorted []T, percent int) T {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[rank-1]
}

// maxWindowRate returns the maximum number of calls per second in any window of the given number of
// bins. aSecond is the number of bins per second.
func maxWindowRate(bins []int64, window, aSecond int) (peak int64) {
	var sum int64
	for i, n := range bins {
		sum += n
		if i >= window {
			sum -= bins[i-window]
		}
		peak = max(peak, sum)
	}
	return peak * int64(aSecond) / int64(window)
}
