package progress

import (
	"fmt"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestDescribe(t *testing.T) {
	const hour = time.Hour
	slow := func(rank int, world string, step float64) *record.SlowestRank {
		return &record.SlowestRank{Rank: rank, World: world, NodeIndex: 1, Step: step, Median: 100, Count: 8}
	}
	const fine, behind = "step 100, goodput 0% of 1h", "step 100, goodput 0% of 1h, slowest "
	for _, tc := range []struct {
		want string
		p    record.Progress
	}{
		{"step 1000000000, goodput 0% of 1m30s", record.Progress{Step: 1e9, Elapsed: 90 * time.Second}},
		{"step 1200, 3.21 steps/s, goodput 91% of 2h",
			record.Progress{Step: 1200, MaxStep: 1200, Rate: 3.21, Goodput: 0.919, Elapsed: 2 * hour}},
		{"step 12, 10 s/step, goodput 100% of 2m",
			record.Progress{Step: 12, MaxStep: 12, Rate: 0.1, Goodput: 1, Elapsed: 2 * time.Minute}},
		{"step 9, 1 steps/s, goodput 0% of 1m", record.Progress{Step: 9, MaxStep: 9, Rate: 1, Elapsed: time.Minute}},
		{"step 100 (before a restart 150), goodput 50% of 1h, 60 steps repeated after a restart",
			record.Progress{Step: 100, MaxStep: 150, Elapsed: hour, Goodput: 0.5,
				Lost: []record.LostSteps{{Steps: 60}}}},
		{"step 100, goodput 0% of 1h, 61.5 steps repeated after 2 restarts",
			record.Progress{Step: 100, Elapsed: hour, Lost: []record.LostSteps{{Steps: 60}, {Steps: 1.5004}}}},
		{behind + "rank 0 (node 1): step 80.5, the median is 100",
			record.Progress{Step: 100, Elapsed: hour, Slowest: slow(0, "", 80.5)}},
		{behind + "rank 5 of trainer.0 (node 1): step 80, the median is 100",
			record.Progress{Step: 100, Elapsed: hour, Slowest: slow(5, "trainer.0", 80)}},
		{behind + "trainer.3 (node 1): step 80, the median is 100",
			record.Progress{Step: 100, Elapsed: hour, Slowest: slow(-1, "trainer.3", 80)}},
		// One may be behind by a report, and by what the others do in ten seconds.
		{behind + "rank 5 (node 1): step 89, the median is 100",
			record.Progress{Step: 100, Elapsed: hour, Stride: 10, Slowest: slow(5, "", 89)}},
		{fine, record.Progress{Step: 100, Elapsed: hour, Stride: 10, Slowest: slow(5, "", 90)}},
		{"step 100, 2 steps/s, goodput 0% of 1h, slowest rank 5 (node 1): step 79, the median is 100",
			record.Progress{Step: 100, Elapsed: hour, Stride: 1, Rate: 2, Slowest: slow(5, "", 79)}},
		{"step 100, 2 steps/s, goodput 0% of 1h",
			record.Progress{Step: 100, Elapsed: hour, Stride: 1, Rate: 2, Slowest: slow(5, "", 80)}},
		{fine, record.Progress{Step: 100, Elapsed: hour, Slowest: slow(5, "", 100)}},
	} {
		if got := Describe(tc.p, func(node int) string { return fmt.Sprint("node ", node) }); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
