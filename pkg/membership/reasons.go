package membership

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// maxReasonNodes is the maximum number of nodes whose reasons are read.
	maxReasonNodes = 2
	// maxReasonLength is the maximum number of characters of a node's reason.
	maxReasonLength = 101
	// maxEventBytes is the maximum number of bytes of a node's events that are read.
	maxEventBytes = 1 << 20
)

// ReasonReader reads from the nodes' event logs for what they wait.
type ReasonReader struct {
	Dir          *signal.Dir
	Size         int                      // number of nodes of the job
	SeparateStep bool                     // the sandboxes are a step of their own
	HostNames    func(nodes []int) string // names nodes
	Timeout      time.Duration            // timeout for one node
}

// ReadReasons returns the reasons of the first few nodes that have not completed a step, by step.
func (r ReasonReader) ReadReasons(ctx context.Context, lacks []UnmetStep) map[record.Phase]string {
	why := make(map[record.Phase]string)
	for _, l := range lacks {
		if l.Step == record.PhaseJoin {
			continue
		}
		var parts []string
		for _, node := range l.Nodes[:min(len(l.Nodes), maxReasonNodes)] {
			if reason := r.readReason(ctx, node, l.Step); reason != "" {
				reason = textutil.TruncateText(textutil.StripControls(reason), maxReasonLength)
				parts = append(parts, r.HostNames([]int{node})+": "+reason)
			}
		}
		why[l.Step] = strings.Join(parts, "; ")
	}
	return why
}

// readReason returns for what a node waits, or an empty string if that is unknown.
func (r ReasonReader) readReason(ctx context.Context, node int, step record.Phase) string {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, health.ErrDeadline)
	defer cancel()
	kind := "daemon"
	if step == record.PhaseSandbox && r.SeparateStep {
		kind = "sandbox-daemon"
	}
	folder, err := r.Dir.NewReader().ListDir(ctx, signal.EventsDir)
	if err != nil {
		return "" // the line is still useful
	}
	name := signal.EventsName(kind, node, r.Size)
	if !slices.Contains(folder.Names, name) {
		return ""
	}
	events, err := folder.ReadFile(ctx, name, maxEventBytes)
	if err != nil {
		return ""
	}
	var reported LastReported
	for line := range bytes.Lines(append(events.Data, events.Tail...)) {
		if e, ok := eventlog.DecodeEvent(line); ok { // the last line may be incomplete
			reported.RecordEvent(e.Type, e.Fields)
		}
	}
	reason := reported[step]
	if reason != "" && step == record.PhaseCheck {
		reason = "waits for " + reason
	}
	return reason
}

// LastReported has, for each step, the last reason for waiting that a node's event log reports. A
// finished step has no reason.
type LastReported map[record.Phase]string

// RecordEvent updates the reasons from an event.
func (s *LastReported) RecordEvent(word eventlog.EventType, fields eventlog.Fields) {
	step, reason := record.PhaseWorkers, fields.Seen // empty for a successful probe
	switch {
	case word == eventlog.ChecksWaiting, word == eventlog.ChecksDone:
		step, reason = record.PhaseCheck, fields.Checks
	case word != eventlog.ProbeChanged:
		return
	case record.Phase(fields.Child) == record.PhaseSandbox:
		step = record.PhaseSandbox
	}
	if *s == nil {
		*s = make(LastReported)
	}
	(*s)[step] = reason
}
