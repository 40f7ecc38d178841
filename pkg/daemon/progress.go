package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// awaited is what the gate waits for, as the head sees it at one moment.
type awaited struct {
	size int // nodes that the driver gets
	// missing returns, in order, who of them is not in a state.
	missing func(state string) []int

	checks    bool   // each node is to pass its checks
	sandboxes bool   // there are not enough sandboxes yet
	services  bool   // each node is to have a service
	led       bool   // the head's own service is up, which those of the others wait for
	counting  string // the framework, while it has not counted all nodes; otherwise empty
}

// lack is something that the gate waits for, and the ranks that lack it. Where
// there are none it is no node's.
type lack struct {
	what  string
	ranks []int
}

// The words for what ranks lack, in the order in which a node comes by it.
const (
	notJoined  = "not joined"
	notChecked = "checks not passed"
	noSandbox  = "sandbox not ready"
	notUp      = "service not up"
)

// lacks returns what is waited for: of each node the first thing that it lacks,
// because the rest follows from it.
func (a awaited) lacks() (all []lack) {
	known := make(map[int]bool)
	note := func(what string, ranks []int) []int {
		ranks = slices.DeleteFunc(ranks, func(rank int) bool { return known[rank] })
		if len(ranks) > 0 {
			all = append(all, lack{what, ranks})
		}
		return ranks
	}
	first := func(what, state string) {
		for _, rank := range note(what, a.missing(state)) {
			known[rank] = true
		}
	}
	first(notJoined, signal.Joined)
	if a.checks {
		first(notChecked, signal.Checked)
	}
	// A sandbox and a service start side by side: a node may lack both.
	if a.sandboxes {
		note(noSandbox, a.missing(signal.Sandbox))
	}
	switch {
	case !a.services:
	case !a.led && !known[0]:
		all = append(all, lack{what: "the head's service is not up"})
	case a.led:
		note(notUp, a.missing(signal.Up))
	}
	if len(all) == 0 && a.counting != "" {
		all = append(all, lack{what: fmt.Sprintf("%s does not count all %d nodes yet", a.counting, a.size)})
	}
	return all
}

// stage is what has to end first, for who tells how long it goes on.
func stage(lacks []lack) string {
	if len(lacks) == 0 {
		return ""
	}
	return lacks[0].what
}

// progressLine tells in one line what is waited for; who names ranks, why has
// what nodes themselves tell of what they lack.
func progressLine(lacks []lack, size int, waited time.Duration, who func([]int) string, why map[string]string) string {
	late := make(map[int]bool)
	var parts []string
	for _, l := range lacks {
		part := l.what
		if len(l.ranks) > 0 {
			part += ": " + who(l.ranks)
		}
		if why[l.what] != "" {
			part += " (" + why[l.what] + ")"
		}
		parts = append(parts, prose.Cut(plain(part), shortLine))
		for _, rank := range l.ranks {
			late[rank] = true
		}
	}
	line := "still waiting, " + prose.FlagTime(waited.Round(time.Second)) + " now"
	if len(late) > 0 {
		line += fmt.Sprintf(", for %d of %d nodes", len(late), size)
	}
	return line + ": " + strings.Join(parts, "; ")
}

// vigil knows when the next line of a long wait is due. It is owned by who tells.
type vigil struct {
	stage string
	since time.Time
	told  int // lines, of this stage
}

// due tells whether a line is due, and for how long the stage has gone on.
func (v *vigil) due(stage string, now time.Time) (waited time.Duration, due bool) {
	if stage != v.stage {
		*v = vigil{stage: stage, since: now}
	}
	waited = now.Sub(v.since)
	if stage == "" || waited < lineAfter(v.told) {
		return waited, false
	}
	for waited >= lineAfter(v.told) { // those that were missed are not made up for
		v.told++
	}
	return waited, true
}

// lineAfter is how long a stage has gone on when its nth line is due: soon while
// somebody may be looking, seldom when it takes long. A log that is read the
// next day has a dozen lines an hour.
func lineAfter(n int) time.Duration {
	if soon := []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}; n < len(soon) {
		return soon[n]
	}
	return time.Duration(n-2) * 5 * time.Minute
}

// progressPace is how often the head sees whether there is something to tell.
const progressPace = time.Second

// tellProgress says from time to time what the gate waits for, until ctx ends.
func (h *head) tellProgress(ctx context.Context) {
	tick := time.NewTicker(progressPace)
	defer tick.Stop()
	var v vigil
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a := h.awaits(h.nodes.Last())
		lacks := a.lacks()
		if waited, due := v.due(stage(lacks), time.Now()); due {
			h.log.Info(progressLine(lacks, a.size, waited, h.hostsOf, h.reasons(ctx, lacks)))
		}
	}
}

// awaits is what the gate waits for when the newest look has shown l.
func (h *head) awaits(l signal.Listing) awaited {
	a := awaited{
		size: h.roster.count(), checks: h.cfg.checked(), services: h.cfg.Framework.Serves(), led: h.serving.Load(),
		missing: func(state string) []int { return h.roster.unknown(h.roster.missing(l, state)) },
	}
	a.sandboxes = h.cfg.Sandbox.Wanted() && !h.sandboxesMet(l)
	if h.counting.Load() {
		a.counting = h.cfg.Framework.Name()
	}
	return a
}

// sandboxesMet tells whether the gate has as many sandboxes as it needs.
func (h *head) sandboxesMet(l signal.Listing) bool {
	return h.cfg.Sandbox.Require.met(h.roster.among(without(l.Ranks(signal.Sandbox), l.Ranks(signal.SandboxFailed))), h.roster.count())
}

// mostReasons is of how many nodes it is told why they are late, of each thing
// that nodes lack.
const mostReasons = 2

// reasons are what nodes tell in their events that they wait for, by what they
// lack: the first few that do.
func (h *head) reasons(ctx context.Context, lacks []lack) map[string]string {
	why := make(map[string]string)
	for _, l := range lacks {
		if l.what == notJoined || h.silence() > sickShare {
			continue
		}
		var parts []string
		for _, rank := range l.ranks[:min(len(l.ranks), mostReasons)] {
			if reason := h.reasonOf(ctx, rank, l.what); reason != "" {
				parts = append(parts, h.hostsOf([]int{rank})+": "+prose.Cut(plain(reason), shortReason))
			}
		}
		why[l.what] = strings.Join(parts, "; ")
	}
	return why
}

// shortReason bounds in characters what one node tells.
const shortReason = 101

// reasonOf is what a node waits for; empty where nothing is known.
func (h *head) reasonOf(ctx context.Context, rank int, what string) string {
	ctx, cancel := context.WithTimeoutCause(ctx, sickShare, errDeadline)
	defer cancel()
	kind := "daemon"
	if what == noSandbox && h.cfg.Sandbox.Step {
		kind = "sandbox-daemon"
	}
	data, err := h.dir.ReadEvents(ctx, signal.EventsName(kind, rank, h.id.Size))
	if err != nil {
		return "" // the line is no worse without
	}
	return lastReason(data, what)
}

// lastReason is the last that a node's events say of why it lacks something.
func lastReason(events []byte, what string) (reason string) {
	for line := range strings.Lines(string(events)) {
		var event struct {
			Event               trail.Word
			Checks, Child, Seen string
		}
		if json.Unmarshal([]byte(line), &event) != nil {
			continue // the last line may be on its way
		}
		ofSandbox := event.Child == signal.Sandbox
		switch {
		case what == notChecked && event.Event == trail.Waits:
			reason = "waits for " + event.Checks
		case what == notChecked && event.Event == trail.Checked:
			reason = ""
		case what != notChecked && event.Event == trail.Probe && ofSandbox == (what == noSandbox):
			reason = event.Seen // empty where it has answered
		}
	}
	return reason
}

// plan is what is going to be done, for who looks at the run from outside.
func (c *Config) plan() *signal.Plan {
	p := &signal.Plan{
		Framework: c.Framework.Name(), Steps: []string{"join"}, Need: c.Team.of(c.Identity.Size).Min,
		Deadlines: map[string]time.Duration{"join": c.Times.Join},
		Rest:      restful*c.Times.Peer + health.HeadTempo(c.Times.Peer, c.Identity.Size).Beat,
	}
	add := func(step string, within time.Duration) {
		p.Steps = append(p.Steps, step)
		if within > 0 {
			p.Deadlines[step] = within
		}
	}
	if c.checked() {
		add("check", c.checkTime())
	}
	if c.Sandbox.Wanted() {
		add("sandbox", c.Times.Sandbox)
		p.Sandboxes = c.Sandbox.Require.String()
	}
	if c.Framework.Serves() {
		add("head", c.Times.Service)
		add("workers", c.Times.Service)
	}
	if len(c.Driver) > 0 {
		add("driver", 0)
		p.Driver = filepath.Base(c.Driver[0])
	}
	return p
}
