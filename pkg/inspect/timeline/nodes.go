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

// order lists the states of a node in the sequence in which it reaches them.
var order = []string{signal.StateJoined, signal.StateChecked, signal.StateSandboxReady, signal.StateServiceUp, signal.StateSandboxFailed, signal.StateFailed, signal.StateDone}

// place returns the position of a state in order. Unknown states come last.
func place(state string) int {
	if at := slices.Index(order, state); at >= 0 {
		return at
	}
	return len(order)
}

// nodeFile is a record in nodes/ and the node to which it belongs.
type nodeFile struct {
	name, state string
	node        *Node
}

// readNodes evaluates all names in nodes/, and reads the records that the depth includes.
func (r *reading) readNodes(nodes *signal.DirSnapshot) {
	var files []nodeFile
	quick := 0
	// Evaluate all names, and select the records to be read.
	for _, name := range nodes.Names {
		rank, state, count, ok := signal.ParseNodeName(name, len(r.Nodes))
		if !ok || rank >= len(r.Nodes) || !r.Nodes[rank].named(state, count) {
			continue
		}
		failed := state == signal.StateFailed || state == signal.StateSandboxFailed || state == signal.StateEvent
		if failed {
			quick++
		}
		// A quick read includes only the first quickRecords failures and events.
		if r.opts.Depth == Full && state != signal.StateSandboxReady || failed && r.opts.Depth == Quick && quick <= quickRecords {
			files = append(files, nodeFile{name, state, &r.Nodes[rank]})
		}
	}
	for i := range r.Nodes {
		r.Nodes[i].tidy()
	}
	each(r, files, func(f nodeFile) { r.readNode(nodes, f) })
	for i := range r.Nodes {
		slices.SortFunc(r.Nodes[i].Failures, func(a, b signal.FailureRecord) int { return a.WrittenAt.Compare(b.WrittenAt) })
		slices.SortFunc(r.Nodes[i].Befell, func(a, b signal.EventRecord) int { return a.WrittenAt.Compare(b.WrittenAt) })
	}
}

// named takes over the state that a name carries. It reports whether the record has content, too.
func (n *Node) named(state string, count int64) (recorded bool) {
	generation, up := signal.ParseServiceUpState(state)
	switch {
	case state == signal.StateHeartbeat:
		n.Beat = max(n.Beat, count)
	case state == signal.StateSandboxHeartbeat:
		n.SandboxBeat = max(n.SandboxBeat, count)
	case state == signal.StateEvent:
	case up:
		n.States = append(n.States, NodeState{Word: signal.StateServiceUp, Generation: generation})
	default:
		n.States = append(n.States, NodeState{Word: state})
	}
	return !up && state != signal.StateHeartbeat && state != signal.StateSandboxHeartbeat
}

// tidy sorts a node's states and removes duplicates. If a service has been up in several
// generations, it keeps the newest.
func (n *Node) tidy() {
	slices.SortFunc(n.States, func(a, b NodeState) int {
		return cmp.Or(cmp.Compare(place(a.Word), place(b.Word)), cmp.Compare(a.Word, b.Word), cmp.Compare(b.Generation, a.Generation))
	})
	n.States = slices.CompactFunc(n.States, func(a, b NodeState) bool { return a.Word == b.Word })
}

// each reads several files concurrently. It starts no further read once the context has ended.
func each[T any](r *reading, files []T, read func(T)) {
	var readers errgroup.Group
	readers.SetLimit(atOnce)
	for _, file := range files {
		if r.ctx.Err() != nil {
			break
		}
		readers.Go(func() error {
			read(file)
			return nil
		})
	}
	_ = readers.Wait() // the tasks return no error
}

// readNode reads one record of a node.
func (r *reading) readNode(nodes *signal.DirSnapshot, f nodeFile) {
	switch n := f.node; f.state {
	case signal.StateJoined:
		keep(r, nodes, f, func(rec *signal.JoinedRecord) { n.Joined = rec })
	case signal.StateChecked:
		keep(r, nodes, f, func(rec *signal.CheckedRecord) { r.report(f, rec.Report) })
	case signal.StateDone:
		keep(r, nodes, f, func(rec *signal.DoneRecord) { n.Done = rec })
	case signal.StateFailed, signal.StateSandboxFailed:
		keep(r, nodes, f, func(rec *signal.FailureRecord) {
			n.Failures = append(n.Failures, *rec)
			r.report(f, rec.Report)
		})
	case signal.StateEvent:
		keep(r, nodes, f, func(rec *signal.EventRecord) { n.Befell = append(n.Befell, *rec) })
	}
}

// keep reads a record and passes it to the function use with r.mu held. It does not call the
// function if the record cannot be read.
func keep[T any, R isRecord[T]](r *reading, nodes *signal.DirSnapshot, f nodeFile, use func(R)) {
	rec, at := record[T, R](r, nodes, f.name)
	if rec == nil {
		return
	}
	r.mu.Lock() // several records of a node are read concurrently
	defer r.mu.Unlock()
	f.node.sees(signal.HeaderOf(rec).Host)
	if believable(at.At) {
		f.node.tell(f.state, at.At)
	}
	use(rec)
}

// report keeps a node's check report. In a failure record that is not about a check, data may
// contain something else, which is ignored. The caller must hold r.mu.
func (r *reading) report(f nodeFile, data json.RawMessage) {
	report := new(check.Report)
	if err := json.Unmarshal(data, report); err != nil || report.Verdict == "" {
		return
	}
	if report.Version > check.ReportVersion && len(r.Problems) < mostProblems {
		r.Problems = append(r.Problems, fmt.Sprintf("what the checks say in %s is of version %d, and this bringupd knows %d", f.name, report.Version, check.ReportVersion))
	}
	if f.node.Check == nil || f.state != signal.StateChecked {
		f.node.Check = report
	}
}
