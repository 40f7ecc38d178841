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
	// mostReasons is how many nodes are asked why they lack a step.
	mostReasons = 2
	// shortReason bounds in characters what one node tells.
	shortReason = 101
	// mostEventsRead bounds in bytes what is read of a node's events for it.
	mostEventsRead = 1 << 20
)

// Reasons looks for what nodes wait for in what they have told of themselves.
type Reasons struct {
	Dir     *signal.Dir
	Size    int                      // of the job
	Step    bool                     // the sandboxes are a step of their own
	HostsOf func(ranks []int) string // names nodes
	Within  time.Duration            // bounds the look at one node
}

// Of are what nodes tell in their events that they wait for, by the step: the first
// few that lack it.
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

// reason is what a node waits for; empty where nothing is known.
func (r Reasons) reason(ctx context.Context, rank int, step string) string {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Within, health.ErrDeadline)
	defer cancel()
	kind := "daemon"
	if step == Sandbox && r.Step {
		kind = "sandbox-daemon"
	}
	folder, err := r.Dir.Reader().Folder(ctx, signal.Events)
	if err != nil {
		return "" // the line is no worse without
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
		if e, ok := trail.Decode(line); ok { // the last line may be on its way
			said.Hear(e.Word, e.Fields)
		}
	}
	reason := said[step]
	if reason != "" && step == Check {
		reason = "waits for " + reason
	}
	return reason
}
