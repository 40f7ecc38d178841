package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// readEventLogs reads the event logs. A quick read includes only the head's log, which has the
// head's observations of all other nodes.
func (r *runReader) readEventLogs(events *signal.DirSnapshot) {
	var names []string
	for _, name := range events.Names {
		node, kind, ok := signal.ParseEventsName(name)
		if !ok || node >= len(r.Nodes) || len(name) > 64 {
			continue
		}
		if r.depth == DepthFull || node == 0 && kind == mainDaemonKind {
			names = append(names, name)
		}
	}
	// Share the total limits among the files. The head's log always gets the full limit.
	count := max(1, len(names))
	forEachConcurrently(r.ctx, len(names), func(i int) {
		name, bytes, lines := names[i], int64(maxFileBytes), maxFileLines
		if node, _, _ := signal.ParseEventsName(name); node != 0 {
			bytes = min(bytes, max(int64(maxTotalBytes/count), minFileBytes))
			lines = min(lines, max(maxTotalLines/count, minFileLines))
		}
		content, err := events.ReadFile(r.ctx, name, bytes)
		if err != nil {
			r.noteProblem(err)
			return
		}
		decoded, problems := decodeEventLog(name, content, lines)
		for _, problem := range problems {
			r.noteProblem(problem)
		}
		r.mu.Lock()
		r.eventLogs = append(r.eventLogs, decoded)
		r.mu.Unlock()
	})
	// The order must not depend on which file was read first.
	slices.SortFunc(r.eventLogs, func(a, b decodedLog) int {
		return cmp.Or(strings.Compare(a.daemon, b.daemon), a.nodeIndex-b.nodeIndex)
	})
}

// mainDaemonKind is the kind of a node's main daemon, in contrast to that of its sandbox.
const mainDaemonKind = "daemon"

func (r *runReader) convertTimes() {
	slices.Sort(r.Problems)
	// First the times of the head's records, which need no correction.
	published, reached, exchanges := r.collectTimestamps()
	c := &r.Control
	for name, mark := range map[string]*RecordTime{
		signal.NameGateOpen: &c.Go, signal.NameHeadFinished: &c.Over,
		signal.NameHead: &c.Head, signal.NameOrderlyEnd: &c.Drain,
	} {
		if at, known := published[name]; known && mark.Exists {
			mark.At = at // a mark itself has only the file system's time
		}
	}
	// The result has the best time of the gate.
	if end := r.Result; end != nil && end.TimeToGate > 0 {
		c.Go = RecordTime{Exists: true, At: end.WrittenAt.Add(end.TimeToGate - end.Duration)}
	}
	// Then estimate each node's clock offset, and convert the times of its states. The head's
	// observation is used for states whose time the node has not recorded.
	for nodeIndex := range r.Nodes {
		node := &r.Nodes[nodeIndex]
		node.Clock = Clock{Known: true}
		if nodeIndex > 0 {
			node.Clock = estimateOffset(exchanges[nodeIndex], node.Host != "" && node.Host == r.Nodes[0].Host)
		}
		for i := range node.States {
			s := &node.States[i]
			if at, known := r.publishedAt[nodeAndState{nodeIndex, s.Word}]; known {
				s.At = node.Clock.ToHeadTime(at)
			} else {
				s.At = reached[nodeAndState{nodeIndex, s.Word}]
			}
			node.noteSignOfLife(s.At)
		}
	}
	r.convertEventTimes()
}

type nodeAndState struct {
	nodeIndex int
	state     record.State
}

// collectTimestamps collects times from all events: when the head began to publish each record in
// control/, when it first observed each node in each state, and the exchanges between each node and
// the head.
func (r *runReader) collectTimestamps() (
	published map[string]time.Time, reached map[nodeAndState]time.Time, exchanges [][]clockExchange,
) {
	published, reached = r.recordedTimes(), make(map[nodeAndState]time.Time)
	exchanges = make([][]clockExchange, len(r.Nodes))
	saw := func(node int, x clockExchange) {
		if node > 0 {
			exchanges[node] = append(exchanges[node], x)
		}
	}
	// A node reads the job record before it joins.
	for node := range r.Nodes {
		if joined := r.Nodes[node].Joined; joined != nil && r.Job != nil {
			saw(node, clockExchange{writtenAt: r.Job.WrittenAt, readAt: joined.WrittenAt.Add(-joined.TimeToAnswer)})
		}
	}
	for _, t := range r.eventLogs { // the head's own log comes first
		ofHead := t.nodeIndex == 0 && t.daemon == mainDaemonKind
		for _, e := range t.events {
			r.Nodes[t.nodeIndex].noteHost(e.Host)
			switch state := stateOfRecord(e.Record); {
			case e.Name == eventlog.RecordPublished && state != "":
				r.publishedAt[nodeAndState{t.nodeIndex, stripGeneration(state)}] = e.startTime()
			case e.Name == eventlog.RecordPublished && ofHead:
				published[e.Record] = e.startTime()
				if e.Record == signal.NameGateOpen {
					r.Control.TimeToGate = max(0, e.Since-e.Took())
				}
			case e.Name == eventlog.RecordSeen:
				if wrote, known := published[e.Record]; known {
					saw(t.nodeIndex, clockExchange{writtenAt: wrote, readAt: e.Wrote})
				}
			case e.Name == eventlog.StateReached && ofHead:
				// A damaged list has no nodes.
				nodes, _ := textutil.ParseRanges(e.NodeIndices, len(r.Nodes)-1)
				for _, node := range nodes {
					seen := nodeAndState{node, stripGeneration(e.State)}
					if reached[seen].IsZero() {
						reached[seen] = e.Wrote
					}
				}
			}
		}
	}
	// Records of the nodes that the head has observed bound the offsets on the other side.
	for seen, at := range reached {
		if wrote, known := r.publishedAt[seen]; known {
			saw(seen.nodeIndex, clockExchange{writtenAt: wrote, readAt: at, fromNode: true})
		}
	}
	return published, reached, exchanges
}

// recordedTimes returns when the head has published those records in control/ that contain the time
// themselves.
func (r *runReader) recordedTimes() map[string]time.Time {
	published := make(map[string]time.Time)
	note := func(name string, there bool, at time.Time) {
		if there && isPlausibleTime(at) {
			published[name] = at
		}
	}
	c := &r.Control
	note(signal.NameJob, r.Job != nil, c.Job.At)
	note(signal.NameHead, c.HeadRecord != nil, c.Head.At)
	note(signal.NameOrderlyEnd, c.DrainRecord != nil, c.Drain.At)
	return published
}

// stateOfRecord returns the state in the name of a node's record, or an empty string for other
// names.
func stateOfRecord(name string) record.State {
	if n, _ := signal.ParseStateName(name, 0); n.Instance == signal.NoInstance {
		return n.State
	}
	return ""
}

func stripGeneration(state record.State) record.State {
	if _, up := signal.ParseServiceUpState(state); up {
		return record.StateServiceUp
	}
	return state
}

// convertEventTimes converts the times of all events to the head's clock, and derives the phases
// from them.
func (r *runReader) convertEventTimes() {
	// A quick read needs the phases only, not the events.
	total := 0
	for _, t := range r.eventLogs {
		total += len(t.events)
	}
	if r.depth == DepthFull {
		r.Events = make([]Event, 0, total)
	}
	// A drain record counts unless the head has aborted the run.
	orderly := r.Control.Drain.Exists && (len(r.Control.Aborts) == 0 || r.Control.Aborts[0].NodeIndex != 0)
	for _, t := range r.eventLogs {
		node := &r.Nodes[t.nodeIndex]
		for i := range t.events {
			e := &t.events[i]
			e.At = node.Clock.ToHeadTime(e.Wrote)
		}
		node.Phases = append(node.Phases, deriveSpans(t.events, orderly)...)
		if len(t.events) > 0 {
			node.noteSignOfLife(t.events[len(t.events)-1].At)
		}
		if r.depth == DepthFull {
			r.Events = append(r.Events, t.events...)
		}
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	for i := range r.Nodes {
		slices.SortStableFunc(r.Nodes[i].Phases, func(a, b PhaseSpan) int { return a.From.Compare(b.From) })
	}
}

func (n *Node) noteSignOfLife(at time.Time) {
	if at.After(n.LastSign) {
		n.LastSign = at
	}
}
