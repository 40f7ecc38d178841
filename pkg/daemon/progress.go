package daemon

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// progressPace is how often the head sees whether there is something to tell.
const progressPace = time.Second

// tellProgress says from time to time what the gate waits for, until ctx ends.
func (h *head) tellProgress(ctx context.Context) {
	tick := time.NewTicker(progressPace)
	defer tick.Stop()
	var v gate.Vigil
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		lacks := h.lacks(h.nodes.Last())
		if waited, due := v.Due(lacks, time.Now()); due {
			h.log.Info(gate.Line(lacks, h.roster.Count(), waited, h.cfg.Framework.Name(), h.hostsOf, h.reasons(ctx, lacks)))
		}
	}
}

// lacks is what the gate waits for when the newest look has shown l.
func (h *head) lacks(l signal.Listing) []gate.Lack {
	asked := gate.Asked{
		Checks: h.cfg.Checked(), Sandboxes: h.cfg.Sandbox.Wanted() && !h.sandboxesMet(l),
		Services: h.cfg.Framework.Serves(), Led: h.stage.serving.Load(), Counting: h.stage.counting.Load(),
	}
	return asked.Lacks(func(state string) []int { return h.roster.Unknown(h.roster.Missing(l, state)) })
}

// sandboxesMet tells whether the gate has as many sandboxes as it needs.
func (h *head) sandboxesMet(l signal.Listing) bool {
	return h.cfg.Sandbox.Require.Met(h.roster.Among(signal.Without(l.Ranks(signal.Sandbox), l.Ranks(signal.SandboxFailed))), h.roster.Count())
}

// mostReasons is how many nodes are asked why they lack a step.
const mostReasons = 2

// reasons are what nodes tell in their events that they wait for, by the step:
// the first few that lack it.
func (h *head) reasons(ctx context.Context, lacks []gate.Lack) map[string]string {
	why := make(map[string]string)
	for _, l := range lacks {
		if l.Step == gate.Join || h.silence() > sickShare {
			continue
		}
		var parts []string
		for _, rank := range l.Ranks[:min(len(l.Ranks), mostReasons)] {
			if reason := h.reasonOf(ctx, rank, l.Step); reason != "" {
				parts = append(parts, h.hostsOf([]int{rank})+": "+prose.Cut(prose.Plain(reason), shortReason))
			}
		}
		why[l.Step] = strings.Join(parts, "; ")
	}
	return why
}

// shortReason bounds in characters what one node tells.
const shortReason = 101

// mostEventsRead bounds in bytes what is read of a node's events for it.
const mostEventsRead = 1 << 20

// reasonOf is what a node waits for; empty where nothing is known.
func (h *head) reasonOf(ctx context.Context, rank int, step string) string {
	ctx, cancel := context.WithTimeoutCause(ctx, sickShare, errDeadline)
	defer cancel()
	kind := "daemon"
	if step == gate.Sandbox && h.cfg.Sandbox.Step {
		kind = "sandbox-daemon"
	}
	folder, err := h.dir.Reader().Folder(ctx, signal.Events)
	if err != nil {
		return "" // the line is no worse without
	}
	name := signal.EventsName(kind, rank, h.id.Size)
	if !slices.Contains(folder.Names, name) {
		return ""
	}
	events, err := folder.Read(ctx, name, mostEventsRead)
	if err != nil {
		return ""
	}
	var said gate.Said
	for line := range bytes.Lines(append(events.Data, events.End...)) {
		if e, ok := trail.Decode(line); ok { // the last line may be on its way
			said.Hear(e.Word, e.Fields)
		}
	}
	reason := said[step]
	if reason != "" && step == gate.Check {
		reason = "waits for " + reason
	}
	return reason
}
