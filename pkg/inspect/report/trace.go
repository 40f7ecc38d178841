package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// traceEvent is an event in the trace-event format, which Perfetto and chrome://tracing display.
// Times are in microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	At       float64        `json:"ts"`
	Took     *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	ID       int            `json:"id,omitempty"`
	Scope    string         `json:"s,omitempty"`
	Binding  string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// toMicroseconds returns a duration in microseconds.
func toMicroseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// writeTrace writes the view as a trace: one process per node, and one thread per track of
// overlapping phases.
func (v *View) writeTrace(w io.Writer) error {
	events := []traceEvent{}
	for _, n := range v.Nodes {
		pid := n.NodeIndex + 1 // 0 would be no valid process
		events = append(events,
			traceEvent{Name: "process_name", Phase: "M", Process: pid, Args: map[string]any{"name": nodeName(n.NodeIndex, n.Host)}},
			traceEvent{Name: "process_sort_index", Phase: "M", Process: pid, Args: map[string]any{"sort_index": n.NodeIndex}})
		// Phases are complete events; failures are instant events.
		track, _ := assignTracks(n.Lanes)
		for i, lane := range n.Lanes {
			took := toMicroseconds(lane.Took())
			events = append(events, traceEvent{
				Name: lane.Phase, Category: "phase", Phase: "X", At: toMicroseconds(lane.From), Took: &took, Process: pid, Thread: track[i],
				Args: map[string]any{"open": lane.Open, "failed": lane.Failed},
			})
		}
		for _, f := range n.Failures {
			events = append(events, traceEvent{
				Name: "failed: " + f.Kind, Category: "failure", Phase: "i", At: toMicroseconds(f.At), Process: pid, Scope: "p",
				Args: map[string]any{"what": f.What},
			})
		}
	}
	// Each record is an arrow from the head to a node: a pair of flow events.
	for i, a := range v.Seen {
		name := "control/" + a.Record
		events = append(events,
			traceEvent{Name: name, Category: "record", Phase: "s", At: toMicroseconds(a.Wrote), Process: 1, ID: i + 1},
			traceEvent{Name: name, Category: "record", Phase: "f", Binding: "e", At: toMicroseconds(a.Saw), Process: a.NodeIndex + 1, ID: i + 1})
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"traceEvents": events, "displayTimeUnit": "ms",
		"otherData": map[string]any{"run": v.Run, "begin": v.Begin.Format(time.RFC3339Nano), "verdict": fmt.Sprintf("%s: %s", v.Banner.Word, v.Banner.Title)},
	})
}

// assignTracks assigns the lanes to tracks, such that the lanes of a track do not overlap. It uses
// as few tracks as possible.
func assignTracks(lanes []PhaseLane) (track []int, tracks int) {
	track = make([]int, len(lanes))
	var until []time.Duration
	for i, lane := range lanes {
		at := 0
		for at < len(until) && until[at] > lane.From {
			at++
		}
		if at == len(until) {
			until = append(until, 0)
		}
		until[at], track[i] = max(lane.To, lane.From), at
	}
	return track, len(until)
}
