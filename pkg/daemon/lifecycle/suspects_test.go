package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestOutlivingRanks verifies that the last rank of a world is reported once, after a minute.
func TestOutlivingRanks(t *testing.T) {
	begin := time.Now()
	a := LastRank{WorldRank: record.WorldRank{Number: 3}, Since: begin}
	b := LastRank{WorldRank: record.WorldRank{World: "b.0", Number: 3},
		Since: begin.Add(30 * time.Second)}
	again := a // after a restart
	again.Generation++
	told := make(outlivingRanks)
	for _, step := range []struct {
		after time.Duration
		last  []LastRank
		want  []LastRank
	}{
		{0, nil, nil},
		{59 * time.Second, []LastRank{a, b}, nil},
		{60 * time.Second, []LastRank{a, b}, []LastRank{a}},
		{95 * time.Second, []LastRank{a, b}, []LastRank{b}},
		{time.Hour, []LastRank{a, b}, nil},
		{time.Hour, []LastRank{again}, []LastRank{again}},
	} {
		if got := told.due(step.last, begin.Add(step.after)); !slices.Equal(got, step.want) {
			t.Errorf("after %v: %+v, want %+v", step.after, got, step.want)
		}
	}
}
