package timeline

import (
	"context"
	"encoding/json"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

type nodeRecordFile struct {
	name  string
	state record.State
	node  *Node
}

// readNodes evaluates all names in nodes/, and reads the records that the depth includes.
func (r *runReader) readNodes(nodes *signal.DirSnapshot) {
	var files []nodeRecordFile
	quick := 0
	// Evaluate all names, and select the records to be read.
	for _, name := range nodes.Names {
		n, ok := signal.ParseStateName(name, len(r.Nodes))
		if !ok || n.Instance != signal.NoInstance || len(r.Nodes) == 0 {
			continue
		}
		node, state := &r.Nodes[record.NodeOfMember(n.Member, len(r.Nodes))], n.State
		if step := record.StepOfMember(n.Member, len(r.Nodes)); step > 0 {
			if state == record.StateJoined {
				node.StepDaemons = append(node.StepDaemons, step)
			}
			continue
		}
		if !node.noteName(state, n.Number) {
			continue
		}
		failed := state == record.StateFailed || state == record.StateSandboxFailed || state == record.StateEvent
		if failed {
			quick++
		}
		// A quick read includes only the first maxQuickRecords failures and events.
		isQuick := r.depth == DepthQuick
		if !isQuick && state != record.StateSandboxReady || isQuick && failed && quick <= maxQuickRecords {
			files = append(files, nodeRecordFile{name, state, node})
		}
	}
	forEachConcurrently(r.ctx, len(files), func(i int) { r.readNodeRecord(nodes, files[i]) })
	for i := range r.Nodes {
		node := &r.Nodes[i]
		slices.SortFunc(node.Failures, func(a, b record.Failure) int { return a.WrittenAt.Compare(b.WrittenAt) })
		slices.SortFunc(node.EventRecords, func(a, b record.Event) int { return a.WrittenAt.Compare(b.WrittenAt) })
	}
}

// noteName takes over the state that a name carries. It reports whether the record has content,
// too.
func (n *Node) noteName(state record.State, count int64) (recorded bool) {
	switch {
	case state == record.StateHeartbeat:
		n.Heartbeat = max(n.Heartbeat, count)
		return false
	case signal.IsStepState(state):
		return false
	case state == record.StateEvent:
		return true
	}
	generation, up := signal.ParseServiceUpState(state)
	reached := NodeState{Word: stripGeneration(state), Generation: generation}
	// The listing is sorted, so all names of a state follow each other. If a service has been up in
	// several generations, the newest counts.
	if last := len(n.States) - 1; last < 0 || n.States[last].Word != reached.Word {
		n.States = append(n.States, reached)
	} else if generation > n.States[last].Generation {
		n.States[last] = reached
	}
	return !up
}

// forEachConcurrently calls read with 0 to count-1, several at a time. It starts no further call once
// the context has ended.
func forEachConcurrently(ctx context.Context, count int, read func(i int)) {
	var readers errgroup.Group
	readers.SetLimit(maxConcurrentReads)
	for i := 0; i < count && ctx.Err() == nil; i++ {
		readers.Go(func() error {
			read(i)
			return nil
		})
	}
	_ = readers.Wait() // the tasks return no error
}

func (r *runReader) readNodeRecord(nodes *signal.DirSnapshot, f nodeRecordFile) {
	switch n := f.node; f.state {
	case record.StateJoined:
		readAndUse(r, nodes, f, func(rec *record.Joined) { n.Joined = rec })
	case record.StateChecked:
		readAndUse(r, nodes, f, func(rec *record.Checked) { r.keepCheckReport(f, rec.Report) })
	case record.StateDone:
		readAndUse(r, nodes, f, func(rec *record.Done) { n.Done = rec })
	case record.StateFailed, record.StateSandboxFailed:
		readAndUse(r, nodes, f, func(rec *record.Failure) {
			n.Failures = append(n.Failures, *rec)
			r.keepCheckReport(f, rec.Report)
		})
	case record.StateEvent:
		readAndUse(r, nodes, f, func(rec *record.Event) { n.EventRecords = append(n.EventRecords, *rec) })
	}
}

// readAndUse reads a record and passes it to the function use with r.mu held. It does not call the
// function if the record cannot be read.
func readAndUse[T any, R recordPointer[T]](r *runReader, nodes *signal.DirSnapshot, f nodeRecordFile, use func(R)) {
	rec, at := readRecord[T, R](r, nodes, f.name)
	if rec == nil {
		return
	}
	r.mu.Lock() // several records of a node are read concurrently
	defer r.mu.Unlock()
	f.node.noteHost(record.HeaderOf(rec).Host)
	if isPlausibleTime(at.At) {
		r.publishedAt[nodeAndState{f.node.NodeIndex, f.state}] = at.At
	}
	use(rec)
}

// keepCheckReport keeps a node's check report. In a failure record that is not about a check, data
// may contain something else, which is ignored. The caller must hold r.mu.
func (r *runReader) keepCheckReport(f nodeRecordFile, data json.RawMessage) {
	report := new(check.Report)
	if err := json.Unmarshal(data, report); err != nil || report.Verdict == "" {
		return
	}
	if f.node.Check == nil || f.state != record.StateChecked {
		f.node.Check = report
	}
}
