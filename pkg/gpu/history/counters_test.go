package history

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func number(n int) gpu.Reading[int] { return gpu.Reading[int]{Value: &n} }

// tally returns counters with these numbers of replays, rows and recoveries; -1: unreadable.
func tally(looks, slowed, replays, rows, recoveries int) gpu.WatchCounters {
	t := gpu.WatchCounters{UUID: "GPU-a", Polls: looks, SlowedPolls: slowed, Replays: number(replays), Remapped: number(rows), Recoveries: number(recoveries)}
	for _, r := range []*gpu.Reading[int]{&t.Replays, &t.Remapped, &t.Recoveries} {
		if *r.Value < 0 {
			*r = gpu.Reading[int]{Reason: gpu.NotSupported}
		}
	}
	return t
}

func TestCourses(t *testing.T) {
	for name, tc := range map[string]struct {
		tallies []gpu.WatchCounters // one per minute
		looks   [2]int
		grown   [3]int // -1: unknown
		told    string
	}{
		"one":                         {[]gpu.WatchCounters{tally(1, 0, 5, 2, 0)}, [2]int{1, 0}, [3]int{0, 0, 0}, ""},
		"growing":                     {[]gpu.WatchCounters{tally(1, 0, 5, 2, 0), tally(7, 1, 25, 3, 2)}, [2]int{7, 1}, [3]int{20, 1, 2}, "throttled 14 % of the run (1 of 7 readings), 1 remapped row, 2 NVLink recoveries, 20 PCIe replays per minute"},
		"replays that are borne":      {[]gpu.WatchCounters{tally(1, 0, 0, 0, 0), tally(7, 0, 8, 0, 0)}, [2]int{7, 0}, [3]int{8, 0, 0}, ""},
		"a slow look in a short run":  {[]gpu.WatchCounters{tally(5, 1, 0, 0, 0)}, [2]int{5, 1}, [3]int{0, 0, 0}, ""},
		"a slow look of many":         {[]gpu.WatchCounters{tally(21, 1, 0, 0, 0)}, [2]int{21, 1}, [3]int{0, 0, 0}, ""},
		"what can't be read":          {[]gpu.WatchCounters{tally(1, 0, -1, -1, -1), tally(2, 0, -1, -1, -1)}, [2]int{2, 0}, [3]int{-1, -1, -1}, ""},
		"what can be read at times":   {[]gpu.WatchCounters{tally(1, 0, -1, 4, -1), tally(2, 0, 7, -1, 0), tally(3, 0, 9, 6, -1), tally(4, 0, -1, -1, -1)}, [2]int{4, 0}, [3]int{2, 2, 0}, "2 remapped rows"},
		"a watch that begins anew":    {[]gpu.WatchCounters{tally(4, 3, 0, 0, 0), tally(10, 6, 0, 0, 0), tally(1, 1, 0, 0, 0), tally(5, 2, 0, 0, 0)}, [2]int{15, 8}, [3]int{0, 0, 0}, "throttled 53 % of the run (8 of 15 readings)"},
		"a GPU that was reset":        {[]gpu.WatchCounters{tally(1, 0, 500, 0, 3), tally(2, 0, 4, 0, 1)}, [2]int{2, 0}, [3]int{4, 0, 1}, "1 NVLink recovery"},
		"one that can't say its name": {[]gpu.WatchCounters{{Polls: 3}}, [2]int{}, [3]int{-1, -1, -1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var c CounterSet
			for i, one := range tc.tallies {
				c.AddGPUCounters([]gpu.WatchCounters{one}, day.Add(time.Duration(i)*time.Minute))
			}
			got := new(c.AllCounters()["GPU-a"])
			grown := [3]int{-1, -1, -1}
			for i, by := range []*int{got.Increase.Replays, got.Increase.Rows, got.Increase.Recoveries} {
				if by != nil {
					grown[i] = *by
				}
			}
			if diff := cmp.Diff(tc.looks, [2]int{got.Polls, got.SlowedPolls}) + cmp.Diff(tc.grown, grown) + cmp.Diff(tc.told, got.SummaryText()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLinks(t *testing.T) {
	for name, tc := range map[string]struct {
		counts [][2]int // link downs and recoveries, one poll per minute; -1: unreadable
		grown  [2]int   // -1: unknown
		told   string
	}{
		"one":                        {[][2]int{{7, 2}}, [2]int{0, 0}, ""},
		"nothing since":              {[][2]int{{7, 2}, {7, 2}}, [2]int{0, 0}, ""},
		"down":                       {[][2]int{{7, 2}, {8, 2}}, [2]int{1, 0}, "link went down 1 time"},
		"both":                       {[][2]int{{7, 2}, {9, 2}, {10, 4}}, [2]int{3, 2}, "link went down 3 times, link recovered from errors 2 times"},
		"what can't be read":         {[][2]int{{-1, -1}, {-1, -1}}, [2]int{-1, -1}, ""},
		"what can be read at times":  {[][2]int{{-1, -1}, {7, -1}, {-1, -1}, {9, 1}, {-1, -1}}, [2]int{2, 0}, "link went down 2 times"},
		"a card that was reset":      {[][2]int{{200, 9}, {0, 0}}, [2]int{0, 0}, ""},
		"and whose link went down":   {[][2]int{{200, 9}, {1, 0}}, [2]int{1, 0}, "link went down 1 time"},
		"a count that is never read": {[][2]int{{-1, 1}, {-1, 1}}, [2]int{-1, 0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(n int) *int {
				if n < 0 {
					return nil
				}
				return &n
			}
			var c CounterSet
			for i, count := range tc.counts {
				c.AddLinkCounts("guid", read(count[0]), read(count[1]), day.Add(time.Duration(i)*time.Minute))
			}
			got := WithCounters([]Device{nic("guid", "3:")}, c.AllCounters())[0].Counters
			grown := [2]int{-1, -1}
			if got != nil {
				for i, by := range []*int{got.Increase.LinkDowns, got.Increase.LinkRecoveries} {
					if by != nil {
						grown[i] = *by
					}
				}
			}
			if diff := cmp.Diff(tc.grown, grown) + cmp.Diff(tc.told, got.SummaryText()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWithCourses verifies that the number of rows is that at the end of the run if it was readable
// then.
func TestWithCourses(t *testing.T) {
	var c CounterSet
	c.AddGPUCounters([]gpu.WatchCounters{tally(1, 0, 0, 9, 0)}, day)
	got := WithCounters([]Device{card("a", "0:", 3), card("b", "1:", 4)}, c.AllCounters())
	if got[0].Counters == nil || got[0].RemappedRows.OrZero() != 9 || got[1].Counters != nil || got[1].RemappedRows.OrZero() != 4 {
		t.Errorf("%+v", got)
	}
	c = CounterSet{}
	c.AddGPUCounters([]gpu.WatchCounters{tally(1, 0, 0, -1, 0)}, day)
	if got := WithCounters([]Device{card("a", "0:", 3)}, c.AllCounters()); got[0].RemappedRows.OrZero() != 3 {
		t.Errorf("%+v", got)
	}
}
