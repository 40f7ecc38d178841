package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
)

// order is that in which a node comes through its states.
var order = []string{signal.Joined, signal.Checked, signal.Sandbox, signal.Up, signal.SandboxFailed, signal.Failed, signal.Done}

func place(state string) int {
	if at := slices.Index(order, state); at >= 0 {
		return at
	}
	return len(order)
}

// readNodes takes in what the names tell, and reads what is worth it.
func (r *reading) readNodes(nodes *signal.Folder) {
	var names []string // of records to read
	quick := 0
	for _, name := range nodes.Names {
		rank, state, count, ok := signal.ParseNodeName(name, len(r.Nodes))
		if !ok || rank >= len(r.Nodes) {
			continue
		}
		node := &r.Nodes[rank]
		generation, up := signal.ParseUp(state)
		switch {
		case state == signal.BeatState, state == signal.SandboxBeat:
			if state == signal.BeatState {
				node.Beat = max(node.Beat, count)
			}
			continue
		case state == signal.Event:
		case up:
			node.States = append(node.States, NodeState{Word: signal.Up, Generation: generation})
			continue
		default:
			node.States = append(node.States, NodeState{Word: state})
			if state == signal.Checked {
				node.Kind = count
			}
		}
		switch {
		case r.Depth == Full && state != signal.Sandbox:
			names = append(names, name)
		case state == signal.Failed || state == signal.SandboxFailed || state == signal.Event:
			if quick++; quick <= quickRecords {
				names = append(names, name)
			}
		}
	}
	for i := range r.Nodes {
		tidy(&r.Nodes[i])
	}
	r.eachName(names, func(name string) { r.readNode(nodes, name) })
	for i := range r.Nodes {
		slices.SortFunc(r.Nodes[i].Failures, func(a, b signal.FailedRecord) int { return a.At.Compare(b.At) })
		slices.SortFunc(r.Nodes[i].Befell, func(a, b signal.EventRecord) int { return a.At.Compare(b.At) })
	}
}

// tidy puts a node's states in order, each once: of a service that has been up
// in several places, the newest.
func tidy(node *Node) {
	slices.SortFunc(node.States, func(a, b NodeState) int {
		return cmp.Or(cmp.Compare(place(a.Word), place(b.Word)), cmp.Compare(a.Word, b.Word), cmp.Compare(b.Generation, a.Generation))
	})
	node.States = slices.CompactFunc(node.States, func(a, b NodeState) bool { return a.Word == b.Word })
}

// eachName reads several at once.
func (r *reading) eachName(names []string, read func(name string)) {
	var readers errgroup.Group
	readers.SetLimit(atOnce)
	for _, name := range names {
		if r.ctx.Err() != nil {
			break
		}
		readers.Go(func() error {
			read(name)
			return nil
		})
	}
	_ = readers.Wait() // none returns an error
}

// readNode reads one record of a node's.
func (r *reading) readNode(nodes *signal.Folder, name string) {
	rank, state, _, _ := signal.ParseNodeName(name, len(r.Nodes))
	node := &r.Nodes[rank]
	keep := func(rec signal.Record, use func()) {
		_, whole := r.record(nodes, name, rec)
		if !whole {
			return
		}
		r.mu.Lock() // several records of a node are read at once
		defer r.mu.Unlock()
		header := signal.HeaderOf(rec)
		r.sees(rank, header.Host)
		if at := header.At; believable(at) {
			node.tell(state, at)
		}
		use()
	}
	switch state {
	case signal.Joined:
		rec := new(signal.JoinedRecord)
		keep(rec, func() { node.Joined = rec })
	case signal.Checked:
		rec := new(signal.CheckedRecord)
		keep(rec, func() { r.report(node, name, rec.Report) })
	case signal.Done:
		rec := new(signal.DoneRecord)
		keep(rec, func() { node.Done = rec })
	case signal.Failed, signal.SandboxFailed:
		var rec signal.FailedRecord
		keep(&rec, func() {
			node.Failures = append(node.Failures, rec)
			r.report(node, name, rec.Report)
		})
	case signal.Event:
		var rec signal.EventRecord
		keep(&rec, func() { node.Befell = append(node.Befell, rec) })
	}
}

// report takes in what a node's checks have said. A failure that is not of a
// check may have something else there. It needs mu.
func (r *reading) report(node *Node, name string, data json.RawMessage) {
	if len(data) == 0 || string(data) == "null" {
		return
	}
	report := new(check.Report)
	if err := json.Unmarshal(data, report); err != nil || report.Verdict == "" {
		return
	}
	if report.Version > check.ReportVersion && len(r.Problems) < mostProblems {
		r.Problems = append(r.Problems, fmt.Sprintf("what the checks say in %s is of version %d, and this bringupd knows %d", name, report.Version, check.ReportVersion))
	}
	if node.Check == nil || state(name) != signal.Checked {
		node.Check = report
	}
}

func state(name string) string {
	_, state, _, _ := signal.ParseNodeName(name, 0)
	return state
}
