package progress_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestIsStraggler verifies that the slowest rank of a fast job may be behind by what the others do
// in ten seconds, and by one report.
func TestIsStraggler(t *testing.T) {
	for _, tc := range []struct {
		behind, stride, rate float64
		want                 bool
	}{
		{0, 0, 0, false},
		{1, 0, 0, true},
		{10, 10, 0, false},
		{11, 10, 0, true},
		{20, 1, 2, false},
		{21, 1, 2, true},
	} {
		p := record.Progress{
			Stride: tc.stride, Rate: tc.rate,
			Slowest: &record.SlowestRank{Step: 100 - tc.behind, Median: 100},
		}
		if got := progress.IsStraggler(p); got != tc.want {
			t.Errorf("%+v: got %t", tc, got)
		}
	}
}
