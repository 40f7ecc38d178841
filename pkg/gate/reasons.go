package gate

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

const (
	// mostReasons is the maximum number of nodes whose reasons are read.
	mostReasons = 2
	// shortReason is the maximum number of characters of a node's reason.
	shortReason = 101
	// mostEventsRead is the maximum number of bytes of a node's events that are read.
	mostEventsRead = 1 << 20
)

// Reasons reads from the nodes' event logs for what they wait.
type Reasons struct {
	Dir     *signal.Dir
	Size    int                      // number of nodes of the job
	Step    bool                     // the sandboxes are a step of their own
	HostsOf func(ranks []int) string // names nodes
	Within  time.Duration            // timeout for one node
}

// Of returns the reasons of the first few nodes that have not completed a step, by step.
func (r Reasons) Of(ctx context.Context, lacks []Lack) map[string]string {
	why := make(map[string]string)
	for _, l := range lacks {
		if l.Step == Join {
			continue
		}
		var parts []string
		for _, rank := range l.Ranks[:min(len(l.Ranks), mostReasons)] {
			if reason := r.reason(ctx, rank, l.Step); reason != "" {
				parts = append(parts, r.HostsOf([]int{rank})+": "+prose.Cut(prose.Plain(reason), shortReason))
			}
		}
		why[l.Step] = strings.Join(parts, "; ")
	}
	return why
}

// reason returns for what a node waits, or an empty string if that is unknown.
func (r Reasons) reason(ctx context.Context, rank int, step string) string {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Within, health.ErrDeadline)
	defer cancel()
	kind := "daemon"
	if step == Sandbox && r.Step {
		kind = "sandbox-daemon"
	}
	folder, err := r.Dir.Reader().Folder(ctx, signal.Events)
	if err != nil {
		return "" // the line is still useful
	}
	name := signal.EventsName(kind, rank, r.Size)
	if !slices.Contains(folder.Names, name) {
		return ""
	}
	events, err := folder.Read(ctx, name, mostEventsRead)
	if err != nil {
		return ""
	}
	var said Said
	for line := range bytes.Lines(append(events.Data, events.End...)) {
		if e, ok := trail.Decode(line); ok { // the last line may be incomplete
			said.Hear(e.Word, e.Fields)
		}
	}
	reason := said[step]
	if reason != "" && step == Check {
		reason = "waits for " + reason
	}
	return reason
}
