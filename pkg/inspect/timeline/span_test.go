package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestSpans(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	enter := func(ms int, phase string) Event {
		return Event{At: at(ms), Name: eventlog.PhaseEntered, Phase: phase}
	}
	leave := func(ms int, phase string, ok bool) Event {
		fields := eventlog.Fields{OK: &ok, TookNS: int64(time.Millisecond)}
		fields.EndedPhase = record.Phase(phase)
		return Event{At: at(ms), Name: eventlog.PhaseLeft, Fields: fields}
	}
	other := func(ms int, name eventlog.EventType) Event { return Event{At: at(ms), Name: name} }
	untilTheEnd := []Event{enter(0, "driver"), enter(8, "drain"), other(9, eventlog.DaemonEnded)}
	for _, test := range []struct {
		name    string
		events  []Event
		orderly bool
		want    string
	}{
		{"none", nil, true, ""},
		{"one after the other", []Event{
			enter(0, "join"), leave(5, "join", true), enter(5, "gate"), leave(7, "gate", false),
		}, true, "join 0-5 ok, gate 5-7"},
		{"side by side", []Event{
			enter(0, "check"), enter(1, "head"), leave(5, "check", true), leave(9, "head", true),
		}, true, "check 0-5 ok, head 1-9 ok"},
		{"ended by the end", untilTheEnd, true, "driver 0-8 ok, drain 8-9 ok"},
		{"ended by a bad end", untilTheEnd, false, "driver 0-8, drain 8-9"},
		{"still open", []Event{enter(0, "driver"), other(6, eventlog.ProbeChanged)}, false, "driver 0-6 open"},
		{"its begin is lost", []Event{leave(5, "join", true)}, false, "join 4-5 ok"},
		{"again", []Event{
			enter(0, "workers"), leave(1, "workers", false), enter(2, "workers"),
		}, false, "workers 0-1, workers 2-2 open"},
		{"it ends before it begins", []Event{enter(5, "join"), leave(0, "join", true)}, false, "join 5-5 ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, s := range deriveSpans(test.events, test.orderly) {
				text := fmt.Sprintf("%s %d-%d", s.Phase, s.From.Sub(noon).Milliseconds(), s.To.Sub(noon).Milliseconds())
				if s.OK {
					text += " ok"
				}
				if s.Open {
					text += " open"
				}
				got = append(got, text)
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("the phases are %q, want %q", text, test.want)
			}
		})
	}
}
