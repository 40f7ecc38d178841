package runs

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 30, 0, 0, time.FixedZone("CET", 3600))
	for text, want := range map[string]string{
		"36h": "2026-11-25T21:30:00+01:00", "7d": "2026-11-20T09:30:00+01:00", "90m": "2026-11-27T08:00:00+01:00",
		"2026-11-20": "2026-11-20T00:00:00+01:00", "2026-11-20T08:15": "2026-11-20T08:15:00+01:00", "2026-11-20 08:15:30": "2026-11-20T08:15:30+01:00",
		"2026-11-20T08:15:00Z": "2026-11-20T08:15:00Z",
	} {
		if got, err := ParseSince(text, now); err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, want %s: %v", text, got.Format(time.RFC3339), want, err)
		}
	}
	for _, text := range []string{"", "7", "-1h", "0s", "0d", "-2d", "99999999999d", "yesterday", "20.11.2026", "2026-13-01"} {
		if got, err := ParseSince(text, now); err == nil {
			t.Errorf("%q is accepted as %s", text, got)
		}
	}
}

// TestKeepSince keeps the runs of a period, and summarises them.
func TestKeepSince(t *testing.T) {
	since := noon
	before, after := noon.Add(-time.Hour), noon.Add(time.Hour)
	code := func(n int) *int { return &n }
	goodput := func(part float64) *float64 { return &part }
	list := List{Runs: []Summary{
		{Run: "ended-before", State: timeline.StateFinished, StartedAt: before, EndedAt: &before, Code: code(0)},
		{Run: "ended-after", State: timeline.StateFinished, StartedAt: before, EndedAt: &after, Code: code(0), Word: "driver", Goodput: goodput(0.879)},
		{Run: "silent-before", State: timeline.StateUp, Silent: true, StartedAt: before},
		{Run: "silent-after", State: timeline.StateUp, Silent: true, StartedAt: after},
		{Run: "up-before", State: timeline.StateUp, StartedAt: before, Goodput: goodput(0.95)},
		{Run: "7.0", State: timeline.StateFailed, StartedAt: after, EndedAt: &after, Code: code(75), Word: "check", blamedHosts: []string{"n3", "n7"}, Goodput: goodput(0)},
		{Run: "7.0-a1", State: timeline.StateFailed, StartedAt: after, EndedAt: &after, Code: code(76), Word: "peer-lost", blamedHosts: []string{"n3"}, Restarts: 1},
		{Run: "7.0-a2", State: timeline.StateFailed, StartedAt: after, EndedAt: &after, Code: code(76), Word: "peer-lost", blamedHosts: []string{"n\x1b[31m9"}, Restarts: 2},
	}}
	list.KeepSince(since)
	var names []string
	for _, s := range list.Runs {
		names = append(names, s.Run)
	}
	if want := []string{"ended-after", "silent-after", "up-before", "7.0", "7.0-a1", "7.0-a2"}; !slices.Equal(names, want) {
		t.Errorf("it keeps %v, want %v", names, want)
	}
	want := "6 runs since " + since.Format(time.DateTime) + ": 3 failed, 1 finished, 1 silent, 1 up\n" +
		"verdicts of the failed runs: 2 peer-lost, 1 check\n" +
		"restarts and requeues: 2\n" +
		"goodput of 3 runs: 0% to 95%, median 87%\n" +
		"nodes blamed, by the number of runs: 2 n3, 1 n7, 1 n9\n"
	if got := list.summaryText(); got != want {
		t.Errorf("the summary is\n%swant\n%s", got, want)
	}
	list.Runs = nil
	if got, want := list.Text(noon), "0 runs since "+since.Format(time.DateTime)+"\n"; got != want {
		t.Errorf("an empty period is %q, want %q", got, want)
	}
}
