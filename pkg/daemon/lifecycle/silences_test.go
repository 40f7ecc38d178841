package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestDescribeSilences verifies which silent processes a timeout names, and how many are logged.
func TestDescribeSilences(t *testing.T) {
	silent := func(node int, child, errorLine string, ago time.Duration) record.Event {
		return silenceEvent(record.Header{NodeIndex: node}, child, child+" (n)", errorLine, ago)
	}
	for _, tc := range []struct {
		name         string
		events       []record.Event
		clause, line string
		warnings     int
	}{
		{"none", nil, "", "", 0},
		{"an event of a GPU", []record.Event{{Message: "Xid 31"}}, "", "", 0},
		{"one", []record.Event{silent(1, "rank 3", "ValueError: x", time.Minute)},
			": rank 3 (n) printed ValueError: x 12m ago and nothing since", "ValueError: x", 1},
		{"the first one of three", []record.Event{silent(1, "rank 3", "A", time.Minute),
			silent(1, "rank 2", "B", 2*time.Minute), silent(0, "rank 0", "C", 0)},
			": rank 2 (n) printed B 13m ago and nothing since, and 2 more likewise", "B", 3},
		{"one has gone on", []record.Event{silent(1, "rank 3", "A", time.Minute),
			silent(2, "driver", "B", 0), silent(1, "rank 3", "", 0)},
			": driver (n) printed B 11m ago and nothing since", "B", 2},
		{"one has gone on and is silent again", []record.Event{silent(1, "rank 3", "A", 9*time.Minute),
			silent(1, "rank 3", "", 0), silent(1, "rank 3", "B", time.Minute)},
			": rank 3 (n) printed B 12m ago and nothing since", "B", 2},
		{"all have gone on", []record.Event{silent(1, "rank 3", "A", 0), silent(1, "rank 3", "", 0)},
			"", "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logged := observer.New(zap.WarnLevel)
				events := &NodeEventLog{Log: zap.New(core)}
				for _, event := range tc.events {
					events.AddEvent(event)
				}
				time.Sleep(11 * time.Minute)
				clause, line := events.describeSilences()
				if clause != tc.clause || line != tc.line || logged.Len() != tc.warnings {
					t.Errorf("%q with the error %q after %d warnings, want %q with %q after %d",
						clause, line, logged.Len(), tc.clause, tc.line, tc.warnings)
				}
			})
		})
	}
}
