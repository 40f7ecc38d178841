package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/signal"
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
		{"the node of the first one is lost", []record.Event{silent(7, "rank 3", "A", time.Minute),
			silent(2, "driver", "B", 0)}, ": driver (n) printed B 11m ago and nothing since", "B", 2},
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
				events.LogSilences(0)
				time.Sleep(11 * time.Minute)
				suspect := events.describeSilences(func(node int) bool { return node == 7 })
				if suspect.Clause != tc.clause || suspect.ErrorLine != tc.line || logged.Len() != tc.warnings {
					t.Errorf("%q with the error %q after %d warnings, want %q with %q after %d",
						suspect.Clause, suspect.ErrorLine, logged.Len(), tc.clause, tc.line, tc.warnings)
				}
			})
		})
	}
}

// TestLogSilences verifies that the ranks of a world with the same error have one line, once the first
// of their events is old enough.
func TestLogSilences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		events := &NodeEventLog{Log: zap.New(core)}
		add := func(errorLine string, children ...string) {
			for i, child := range children {
				events.AddEvent(silenceEvent(record.Header{NodeIndex: i / 2}, child, child+" (n)", errorLine,
					time.Minute))
			}
		}
		add("ValueError: x", "rank 0", "rank 1", "rank 2", "rank 4", "rank 3 of eval", "rank 5 of eval")
		events.LogSilences(5 * time.Second)
		time.Sleep(5 * time.Second)
		add("", "rank 0", "rank 1")
		add("ValueError: y", "rank 7", "driver")
		add("ValueError: y", "rank 7")
		if logged.Len() != 0 {
			t.Errorf("%v was logged too early", logged.All())
		}
		events.LogSilences(5 * time.Second)
		var got []string
		for _, entry := range logged.All() {
			got = append(got, entry.Level.String()+" "+entry.Message)
		}
		want := []string{
			"warn ranks 0-2,4 (nodes 0-1) printed ValueError: x 1m ago and nothing since, and have not ended",
			"warn ranks 3,5 of eval (node 2) printed ValueError: x 1m ago and nothing since, and have not ended",
			"info ranks 0-1 (node 0) have gone on, or have ended",
			"warn rank 7 (n) printed ValueError: y 1m ago and nothing since, and has not ended",
			"warn driver (n) printed ValueError: y 1m ago and nothing since, and has not ended",
		}
		if !slices.Equal(got, want) {
			t.Errorf("logged are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestReportedSilences verifies that a node reports the end of each silence that it has reported,
// and of no other, and that these ends leave the limit to events of GPUs.
func TestReportedSilences(t *testing.T) {
	c, _ := newTestGPUMonitorOf(t, 1024)
	events := c.cfg.NodeEvents
	var got []string
	events.OnEvent = func(rec record.Event) {
		child, errorLine := "GPU", ""
		if rec.Silence != nil {
			child, errorLine = rec.Silence.Child, rec.Silence.Error
		}
		got = append(got, child+" "+errorLine)
	}
	events.Header = func() record.Header { return record.Header{} }
	for _, of := range []string{"a A", "a ", "b ", "GPU ", "b B", "b ", "a A", "a "} {
		child, errorLine, _ := strings.Cut(of, " ")
		if child == "GPU" {
			events.Report(record.Event{Message: "Xid 31"})
		} else {
			events.ReportSilence(child, "log", errorLine, time.Minute)
		}
	}
	if want := []string{"a A", "a ", "GPU "}; !slices.Equal(got, want) {
		t.Errorf("reported are %q, want %q", got, want)
	}
}

// TestSilencesAfterTheLimit verifies that the head learns of the end of each silence that it knows,
// however many events there are, and reads no more of other nodes then.
func TestSilencesAfterTheLimit(t *testing.T) {
	const size = maxResultEvents + 2
	c, _ := newTestGPUMonitorOf(t, size)
	log := &NodeEventLog{Dir: c.cfg.Dir, Size: size, ReadTimeout: time.Minute, EventLog: c.cfg.Events,
		Log: zap.NewNop()}
	publish := func(node, number int, errorLine string) string {
		name := signal.EventName(node, size, number)
		rec := silenceEvent(record.Header{}, "rank", "rank", errorLine, 0)
		err := c.cfg.Dir.ForNode(node).PublishRecord(t.Context(), signal.NodesDir, name, &rec, false)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	read := func(names ...string) {
		listing := &signal.DirSnapshot{Names: slices.Sorted(slices.Values(names))}
		log.readNewEvents(t.Context(), listing.ParseListing(size))
	}
	var names []string
	for node := 1; node <= maxResultEvents; node++ {
		names = append(names, publish(node, 1, "A"))
	}
	read(names...)
	if len(log.silent) != maxResultEvents {
		t.Fatalf("%d are silent, want %d", len(log.silent), maxResultEvents)
	}
	for node := 2; node <= maxResultEvents; node++ {
		names = append(names, publish(node, 2, ""))
	}
	read(append(names, publish(size-1, 1, "B"))...)
	if len(log.silent) != 1 || !log.isSilent(1) || len(log.AllEvents()) != maxResultEvents {
		t.Errorf("%d are silent, and %d events are kept", len(log.silent), len(log.AllEvents()))
	}
}
