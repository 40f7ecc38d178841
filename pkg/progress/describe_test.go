package progress

import (
	"fmt"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    record.Progress
		want string
	}{
		{"one report", record.Progress{Step: 1, MaxStep: 1, Elapsed: 90 * time.Second}, "step 1, goodput 0% of 1m30s"},
		{"fast", record.Progress{Step: 1200, MaxStep: 1200, Rate: 3.21, Goodput: 0.919, Elapsed: 2 * time.Hour}, "step 1200, 3.21 steps/s, goodput 91% of 2h"},
		{"slow", record.Progress{Step: 12, MaxStep: 12, Rate: 0.1, Goodput: 1, Elapsed: 2 * time.Minute}, "step 12, 10 s/step, goodput 100% of 2m"},
		{"a step a second", record.Progress{Step: 9, MaxStep: 9, Rate: 1, Elapsed: time.Minute}, "step 9, 1 steps/s, goodput 0% of 1m"},
		{
			"after a restart", record.Progress{Step: 100, MaxStep: 150, Elapsed: time.Hour, Goodput: 0.5, Lost: []record.LostSteps{{Attempt: 1, Steps: 60}}},
			"step 100 (before a restart 150), goodput 50% of 1h, 60 steps repeated after a restart",
		},
		{
			"after several", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Lost: []record.LostSteps{{Steps: 60}, {Steps: 1.5}}},
			"step 100, goodput 0% of 1h, 61.5 steps repeated after 2 restarts",
		},
		{
			"a slow rank", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: 5, NodeIndex: 1, Step: 80, Median: 99.5, Count: 8}},
			"step 100, goodput 0% of 1h, slowest rank 5 (node 1): step 80, the median is 99.5",
		},
		{
			"the first rank", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: 0, NodeIndex: 1, Step: 80, Median: 99.5, Count: 8}},
			"step 100, goodput 0% of 1h, slowest rank 0 (node 1): step 80, the median is 99.5",
		},
		{
			"a slow rank of a role", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: 5, World: "trainer.0", NodeIndex: 1, Step: 80, Median: 99.5, Count: 8}},
			"step 100, goodput 0% of 1h, slowest rank 5 of trainer.0 (node 1): step 80, the median is 99.5",
		},
		{
			"a slow process of a role", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: -1, World: "trainer.3", NodeIndex: 1, Step: 80, Median: 99.5, Count: 8}},
			"step 100, goodput 0% of 1h, slowest trainer.3 (node 1): step 80, the median is 99.5",
		},
		{
			"one is a report behind", record.Progress{Step: 100, MaxStep: 100, Stride: 10, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: 5, NodeIndex: 1, Step: 90, Median: 100, Count: 8}},
			"step 100, goodput 0% of 1h",
		},
		{
			"none is slow", record.Progress{Step: 100, MaxStep: 100, Elapsed: time.Hour, Slowest: &record.SlowestRank{Rank: 5, NodeIndex: 1, Step: 100, Median: 100, Count: 8}},
			"step 100, goodput 0% of 1h",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Describe(tc.p, func(node int) string { return fmt.Sprint("node ", node) }); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
