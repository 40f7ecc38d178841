package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// order lists the phases in their sequence.
var order = []string{"start", "join", "check", "sandbox", "head", "workers", "gate", "driver", "drain"}

// phaseRank returns the position of a phase in order. Unknown phases come last.
func phaseRank(phase string) int {
	if at := slices.Index(order, phase); at >= 0 {
		return at
	}
	return len(order)
}

// looking has the data from which the parts of a View are made.
type looking struct {
	run   *timeline.Run
	begin time.Time
	alive bool // the run goes on, as far as is known
	gate  time.Duration
	quiet time.Duration // time since the last sign of life of any node
}

// at returns the time from the beginning of the run to t; 0 if t is unknown, and at least 1 ns
// otherwise.
func (l looking) at(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(t.Sub(l.begin), 1)
}

// host returns the host of a node, or an empty string if it is unknown.
func (l looking) host(rank int) string {
	if rank < 0 || rank >= len(l.run.Nodes) {
		return ""
	}
	return clean(l.run.Nodes[rank].Host, 80)
}

// Look makes the View of a run and the ends of its logs. The time touched is that of the last
// change in the run directory; zero if unknown.
func Look(run *timeline.Run, logs []Log, touched time.Time) *View {
	l := looking{run: run, begin: begin(run)}
	v := &View{
		subject:  subject{ViewVersion, clean(run.Name, 200), clean(run.Path, 1000), run.ReadAt.UTC(), l.begin.UTC(), run.Size()},
		Problems: allWords(run.Problems), Logs: logs,
	}
	// The times come first, because all other parts depend on them.
	l.gate = l.opened()
	v.Gate, v.End, v.Last = l.gate, l.end(), l.last()
	l.quiet = l.at(run.ReadAt) - max(v.Last, l.at(touched))
	if l.alive = !run.Ended() && !run.Control.Drain.There && !hidden(run) && l.quiet < run.SilentAfter(); l.alive {
		v.Last = l.at(run.ReadAt)
	}
	// Slow phases are found by comparison with the statistics of all nodes.
	v.Nodes = l.nodes(logs)
	v.Phases = phases(v.Nodes)
	markSlow(v.Nodes, v.Phases)
	v.Critical = l.critical()
	markCritical(v.Nodes, v.Critical)
	v.Seen = l.arrows()
	v.Checks = checks(run.Nodes)
	v.Config = l.config()
	v.Banner = l.banner(v)
	v.Facts = l.facts(v)
	return v
}

// hidden reports whether the run has a result that cannot be read.
func hidden(run *timeline.Run) bool {
	return run.Result == nil && slices.ContainsFunc(run.Problems, func(p string) bool { return strings.Contains(p, signal.NameResult) })
}

// begin returns the time of the first sign of life of any node.
func begin(run *timeline.Run) (first time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for i := range run.Nodes {
		for _, span := range run.Nodes[i].Phases {
			earlier(span.From)
		}
	}
	if first.IsZero() {
		earlier(run.Control.Job.At)
	}
	if first.IsZero() && run.Result != nil {
		earlier(run.Result.WrittenAt.Add(-run.Result.Duration))
	}
	return first
}

// opened returns when the gate opened; 0 if it never did. The modification time of the file is the
// last choice, because it differs in a copy of the directory.
func (l looking) opened() time.Duration {
	if !l.run.Control.Go.There {
		return 0
	}
	if r := l.run.Result; r != nil && r.TimeToGate > 0 {
		return l.at(r.WrittenAt.Add(r.TimeToGate - r.Duration))
	}
	// Without a result, take the earliest time at which a daemon wrote or read the record.
	opened := l.at(l.run.Control.Go.At)
	for _, e := range l.run.Events {
		if e.Record == signal.NameGateOpen && (e.Name == eventlog.RecordSeen || e.Name == eventlog.RecordPublished) && l.at(e.At) < opened {
			opened = l.at(e.At)
		}
	}
	if end := l.end(); end > 0 {
		opened = min(opened, end)
	}
	return opened
}

// end returns when the run was over; 0 if no end is recorded.
func (l looking) end() time.Duration {
	switch {
	case l.run.Result != nil:
		return l.at(l.run.Result.WrittenAt)
	case len(l.run.Control.Aborts) > 0:
		return l.at(l.run.Control.Aborts[0].WrittenAt)
	default:
		return 0
	}
}

// last returns the time of the last sign of life of any node.
func (l looking) last() (last time.Duration) {
	last = max(l.end(), l.gate, l.at(l.run.Control.Job.At))
	for i := range l.run.Nodes {
		node := &l.run.Nodes[i]
		last = max(last, l.at(node.Seen))
		for _, span := range node.Phases {
			last = max(last, l.at(span.To))
		}
		for _, state := range node.States {
			last = max(last, l.at(state.At))
		}
	}
	return last
}

// goals lists the states on the way to the gate.
var goals = []string{signal.StateJoined, signal.StateChecked, signal.StateSandboxReady, signal.StateServiceUp}

// goal returns the most advanced state that any node has reached, as an index of goals; -1 if there
// is none.
func (l looking) goal() int {
	goal := -1
	for i := range l.run.Nodes {
		for _, state := range l.run.Nodes[i].States {
			goal = max(goal, slices.Index(goals, state.Word))
		}
	}
	return goal
}

// reached returns the most advanced of the goals that a node has reached, and when.
func (l looking) reached(node *timeline.Node) (goal int, at time.Duration) {
	goal = -1
	for _, state := range node.States {
		if g := slices.Index(goals, state.Word); g >= 0 {
			goal, at = max(goal, g), max(at, l.at(state.At))
		}
	}
	return goal, at
}

// nodes returns the rows: first the nodes that failed, then those that never became ready, then the
// others, of which the last to become ready come first.
func (l looking) nodes(logs []Log) []Node {
	goal := l.goal()
	nodes := make([]Node, 0, len(l.run.Nodes))
	for i := range l.run.Nodes {
		nodes = append(nodes, l.node(&l.run.Nodes[i], goal))
	}
	// Add the names of the logs that are shown.
	for _, log := range logs {
		if log.Rank >= 0 && log.Rank < len(nodes) {
			nodes[log.Rank].Logs = append(nodes[log.Rank].Logs, log.Name)
		}
	}
	// The weight is the class of a row: failed, never ready, ready.
	weight := func(n Node) int {
		switch {
		case n.Tone == Bad:
			return 0
		case n.Ready == 0:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.Rank, b.Rank))
	})
	return nodes
}

// node returns the row of a node. goal is the most advanced state that any node has reached.
func (l looking) node(node *timeline.Node, goal int) Node {
	reached, at := l.reached(node)
	n := Node{Rank: node.Rank, Host: clean(node.Host, 80)}
	if goal >= 0 && reached == goal {
		n.Ready = at
	}
	n.Lanes = mapped(node.Phases, func(span timeline.Span) Lane { return l.lane(node, span) })
	n.Failures, n.Befell = mapped(node.Failures, l.link), mapped(node.Befell, befell)
	if node.Check != nil {
		for _, f := range node.Check.Findings {
			if toneOf(f.Verdict) != Good {
				n.Checks = append(n.Checks, clean(string(f.Verdict), 10)+" "+words(f.OneLine()))
			}
		}
	}
	n.State, n.Tone = l.state(node, reached, goal)
	n.Facts = nodeFacts(node)
	return n
}

// lane returns the bar of a phase. A phase without success has failed if the node has recorded a
// failure in it. Otherwise it was cut short, because another node had failed.
func (l looking) lane(node *timeline.Node, span timeline.Span) Lane {
	lane := Lane{
		Phase: clean(span.Phase, 40), Sandbox: span.Daemon != "" && span.Daemon != "daemon",
		From: l.at(span.From), To: max(l.at(span.To), l.at(span.From)), Open: span.Open,
	}
	if span.Open && l.alive {
		lane.To = l.at(l.run.ReadAt)
	}
	if !span.Open && !span.OK && span.Phase != "drain" {
		lane.Failed = slices.ContainsFunc(node.Failures, func(f signal.FailureRecord) bool { return f.Phase == span.Phase && !timeline.OfOthers(f) })
		lane.Cut = !lane.Failed
	}
	return lane
}

// state describes the present or the final state of a node.
func (l looking) state(node *timeline.Node, reached, goal int) (string, Tone) {
	switch {
	case slices.ContainsFunc(l.run.Dropped(), func(d signal.DroppedNode) bool { return d.Rank == node.Rank }):
		return "done without", Mind
	case node.Blamed() != nil:
		return "failed", Bad
	case l.run.Lost(node.Rank):
		return "lost", Bad
	case reached < 0:
		return "no sign", map[bool]Tone{true: Bad, false: Idle}[l.run.Ended()]
	case reached < goal && l.run.Ended():
		return "only " + goals[reached], Mind
	case node.In(signal.StateDone):
		return "done", Good
	case l.run.Ended() && l.run.Result != nil:
		return goals[reached] + ", no end", Mind
	default:
		return goals[reached], Good
	}
}

// link returns the entry of the chain for a failure record.
func (l looking) link(f signal.FailureRecord) Link {
	link := Link{
		Rank: f.Rank, Host: cmp.Or(clean(f.Host, 80), l.host(f.Rank)), Kind: clean(f.Kind, 40), Phase: clean(f.Phase, 40),
		What: words(f.Message), Log: clean(f.Log, 200),
	}
	// If the record is about the loss of another node, that node is shown, with the observer.
	if timeline.OfOthers(f) {
		link.By = nameOf(link.Rank, link.Host)
		link.Rank, link.Host = f.LostNodes[0], l.host(f.LostNodes[0])
	}
	at := f.WrittenAt
	// Convert the time to the head's clock. The failure occurred Age before the record.
	if f.Rank >= 0 && f.Rank < len(l.run.Nodes) {
		at = l.run.Nodes[f.Rank].Clock.Correct(at)
	}
	if !at.IsZero() {
		link.At = l.at(at.Add(-f.RecordDelay))
	}
	link.Lines = mapped(f.Lines[max(0, len(f.Lines)-40):], func(line string) string { return clean(line, mostLine) })
	return link
}

// befell formats an event record, with the number of times that it occurred.
func befell(e signal.EventRecord) string {
	what := words(e.Message)
	if e.Count > 1 {
		what += fmt.Sprintf(" (%d times)", e.Count)
	}
	return what
}

// nodeFacts returns the details of a node.
func nodeFacts(node *timeline.Node) (facts []Fact) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: clean(value, 300)})
		}
	}
	if j := node.Joined; j != nil {
		add("address", j.Address)
		add("process", fmt.Sprint(j.PID))
		add("version", j.ProgramVersion)
	}
	if node.Clock.Known && node.Rank != 0 {
		add("clock", fmt.Sprintf("%s ahead of the head's, ± %s; corrected here", textutil.BriefDuration(node.Clock.Offset), textutil.BriefDuration(node.Clock.Residual)))
	}
	if d := node.Done; d != nil && len(d.LeftProcesses) > 0 {
		add("left running", strings.Join(d.LeftProcesses, ", "))
	}
	return facts
}

// arrows returns the head's records and when the nodes read them. They show which actions of a node
// a record caused.
func (l looking) arrows() (arrows []Arrow) {
	// Find when the head wrote each record for the first time.
	wrote := make(map[string]time.Time)
	for _, e := range l.run.Events {
		if _, had := wrote[e.Record]; e.Name == eventlog.RecordPublished && e.Rank == 0 && !had {
			wrote[e.Record] = e.At
		}
	}
	for _, e := range l.run.Events {
		at, known := wrote[e.Record]
		if e.Name == eventlog.RecordSeen && e.Rank != 0 && known {
			arrows = append(arrows, Arrow{clean(e.Record, 40), e.Rank, l.at(at), max(l.at(e.At), l.at(at))})
		}
	}
	slices.SortStableFunc(arrows, func(a, b Arrow) int {
		return cmp.Or(cmp.Compare(a.Wrote, b.Wrote), cmp.Compare(a.Rank, b.Rank))
	})
	return arrows
}
