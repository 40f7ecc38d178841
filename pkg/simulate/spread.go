package simulate

import (
	"slices"
	"time"
)

// Spread tells how a figure differs from node to node. Quantiles are by nearest
// rank: P99 is the least value that 99 of 100 nodes do not exceed, and always
// one that was seen.
type Spread[T int64 | time.Duration] struct {
	Min T `json:"min"`
	P50 T `json:"p50"`
	P99 T `json:"p99"`
	Max T `json:"max"`
}

// spreadOf sorts the values; none make a zero Spread.
func spreadOf[T int64 | time.Duration](values []T) Spread[T] {
	if len(values) == 0 {
		return Spread[T]{}
	}
	slices.Sort(values)
	return Spread[T]{
		Min: values[0], P50: quantile(values, 50), P99: quantile(values, 99), Max: values[len(values)-1],
	}
}

// quantile returns the nearest rank's value: sorted must not be empty, and
// percent be of 1 to 100.
func quantile[T int64 | time.Duration](sorted []T, percent int) T {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[rank-1]
}

// peakOf returns the most calls a second that were made in any time of window
// bins, of which there are so many a second.
func peakOf(bins []int64, window, aSecond int) (peak int64) {
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
