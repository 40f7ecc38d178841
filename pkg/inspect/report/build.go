package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// phaseOrder lists the phases in their sequence.
var phaseOrder = []string{"start", "join", "check", "sandbox", "head", "workers", "gate", "driver", "drain"}

// phaseIndex returns the position of a phase in order. Unknown phases come last.
func phaseIndex(phase string) int {
	if at := slices.Index(phaseOrder, phase); at >= 0 {
		return at
	}
	return len(phaseOrder)
}

// viewBuilder has the data from which the parts of a View are made.
type viewBuilder struct {
	run       *timeline.Run
	startedAt time.Time
	isAlive   bool // the run goes on, as far as is known
	gateAfter time.Duration
	quietFor  time.Duration // time since the last sign of life of any node
}

// sinceStart returns the time from the beginning of the run to t; 0 if t is unknown, and at least 1
// ns otherwise.
func (l viewBuilder) sinceStart(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(t.Sub(l.startedAt), 1)
}

// hostName returns the host of a node, or an empty string if it is unknown.
func (l viewBuilder) hostName(node int) string {
	if node < 0 || node >= len(l.run.Nodes) {
		return ""
	}
	return sanitizeLine(l.run.Nodes[node].Host, 80)
}

// ReadView reads the run in the directory and the ends of its logs.
func ReadView(ctx context.Context, path string) (*View, error) {
	run, err := timeline.Read(ctx, path, timeline.Options{Depth: timeline.DepthFull})
	if err != nil {
		return nil, err
	}
	if run.OtherVersion && run.Result == nil {
		return nil, fmt.Errorf("cannot report run %s: %s", run.Name, strings.Join(run.Problems, "; "))
	}
	touched, err := signal.LastChangeTime(ctx, path)
	if err != nil {
		touched = time.Time{} // unknown for a run that was read in part
	}
	v := NewView(run, ReadLogs(ctx, run), touched)
	for _, sentence := range DescribeFlightRecorder(ctx, path) {
		v.Banner.Notes = append(v.Banner.Notes, "torch's flight recorder: "+sanitizeSentence(sentence))
	}
	return v, nil
}

// NewView makes the View of a run and the ends of its logs. The time touched is that of the last
// change in the run directory; zero if unknown.
func NewView(run *timeline.Run, logs []LogTail, touched time.Time) *View {
	l := viewBuilder{run: run, startedAt: firstSign(run)}
	v := &View{
		runIdentity: runIdentity{ViewVersion, sanitizeLine(run.Name, 200), sanitizeLine(run.Path, 1000), run.ReadAt.UTC(), l.startedAt.UTC(), run.Size()},
		Problems:    sanitizeSentences(run.Problems), Logs: logs, hasEnded: run.HasEnded(),
	}
	// The times come first, because all other parts depend on them.
	l.gateAfter = l.gateOpened()
	v.Gate, v.End, v.Last = l.gateAfter, l.recordedEnd(), l.lastSign()
	l.quietFor = l.sinceStart(run.ReadAt) - max(v.Last, l.sinceStart(touched))
	if l.isAlive = !run.HasEnded() && !run.Control.Drain.Exists && !hasUnreadableResult(run) && l.quietFor < run.SilentAfter(); l.isAlive {
		v.Last = l.sinceStart(run.ReadAt)
	}
	// Slow phases are found by comparison with the statistics of all nodes.
	if !run.OtherVersion {
		v.Nodes, v.Critical = l.buildNodes(logs), l.criticalPath()
	}
	v.Phases = phaseStats(v.Nodes)
	markSlowPhases(v.Nodes, v.Phases)
	markCritical(v.Nodes, v.Critical)
	v.Seen = l.buildArrows()
	v.Roles, v.Exits = l.roleStates(), l.roleExits()
	v.Checks = groupChecks(run.Nodes)
	v.Config = l.configFacts()
	v.shareTable = l.formatShareTable()
	v.Banner = l.buildBanner(v)
	v.Facts = l.keyFigures(v)
	return v
}

// formatShareTable formats the numbers of calls to the shared file system.
func (l viewBuilder) formatShareTable() string {
	if l.run.Result == nil || l.run.Result.Share == nil {
		return ""
	}
	var workers []record.CallStats
	for i := range l.run.Nodes {
		if done := l.run.Nodes[i].Done; i > 0 && done != nil && done.Share != nil {
			workers = append(workers, *done.Share)
		}
	}
	lines := strings.Split(strings.TrimRight(eventlog.CountCalls(l.run.Result.Share, workers).FormatTable(), "\n"), "\n")
	return strings.Join(mapSlice(lines, func(line string) string { return sanitizeLine(line, maxLineLength) }), "\n")
}

// hasUnreadableResult reports whether the run has a result that cannot be read.
func hasUnreadableResult(run *timeline.Run) bool {
	return run.Result == nil && slices.ContainsFunc(run.Problems, func(p string) bool { return strings.Contains(p, signal.NameResult) })
}

// firstSign returns the time of the first sign of life of any node.
func firstSign(run *timeline.Run) (first time.Time) {
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

// gateOpened returns when the gate opened; 0 if it never did. The modification time of the file is
// the last choice, because it differs in a copy of the directory.
func (l viewBuilder) gateOpened() time.Duration {
	if !l.run.Control.Go.Exists {
		return 0
	}
	if r := l.run.Result; r != nil && r.TimeToGate > 0 {
		return l.sinceStart(r.WrittenAt.Add(r.TimeToGate - r.Duration))
	}
	// Without a result, take the earliest time at which a daemon wrote or read the record.
	opened := l.sinceStart(l.run.Control.Go.At)
	for _, e := range l.run.Events {
		if e.Record == signal.NameGateOpen && (e.Name == eventlog.RecordSeen || e.Name == eventlog.RecordPublished) && l.sinceStart(e.At) < opened {
			opened = l.sinceStart(e.At)
		}
	}
	if end := l.recordedEnd(); end > 0 {
		opened = min(opened, end)
	}
	return opened
}

// recordedEnd returns when the run was over; 0 if no end is recorded.
func (l viewBuilder) recordedEnd() time.Duration {
	switch {
	case l.run.Result != nil:
		return l.sinceStart(l.run.Result.WrittenAt)
	case len(l.run.Control.Aborts) > 0:
		return l.sinceStart(l.run.Control.Aborts[0].WrittenAt)
	default:
		return 0
	}
}

// lastSign returns the time of the last sign of life of any node.
func (l viewBuilder) lastSign() (last time.Duration) {
	last = max(l.recordedEnd(), l.gateAfter, l.sinceStart(l.run.Control.Job.At))
	for i := range l.run.Nodes {
		node := &l.run.Nodes[i]
		last = max(last, l.sinceStart(node.LastSign))
		for _, span := range node.Phases {
			last = max(last, l.sinceStart(span.To))
		}
		for _, state := range node.States {
			last = max(last, l.sinceStart(state.At))
		}
	}
	return last
}

// goalStates lists the states on the way to the gate.
var goalStates = []record.State{record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp}

// furthestGoal returns the most advanced state that any node has reached, as an index of goals; -1
// if there is none.
func (l viewBuilder) furthestGoal() int {
	goal := -1
	for i := range l.run.Nodes {
		for _, state := range l.run.Nodes[i].States {
			goal = max(goal, slices.Index(goalStates, state.Word))
		}
	}
	return goal
}

// reachedGoal returns the most advanced of the goals that a node has reached, and when.
func (l viewBuilder) reachedGoal(node *timeline.Node) (goal int, at time.Duration) {
	goal = -1
	for _, state := range node.States {
		if g := slices.Index(goalStates, state.Word); g >= 0 {
			goal, at = max(goal, g), max(at, l.sinceStart(state.At))
		}
	}
	return goal, at
}

// buildNodes returns the rows: first the nodes that failed, then those that never became ready,
// then the others, of which the last to become ready come first.
func (l viewBuilder) buildNodes(logs []LogTail) []NodeRow {
	goal := l.furthestGoal()
	nodes := make([]NodeRow, 0, len(l.run.Nodes))
	for i := range l.run.Nodes {
		nodes = append(nodes, l.buildNode(&l.run.Nodes[i], goal))
	}
	// Add the names of the logs that are shown.
	for _, log := range logs {
		if log.NodeIndex >= 0 && log.NodeIndex < len(nodes) {
			nodes[log.NodeIndex].Logs = append(nodes[log.NodeIndex].Logs, log.Name)
		}
	}
	// The weight is the class of a row: failed, never ready, ready.
	weight := func(n NodeRow) int {
		switch {
		case n.Tone == SeverityBad:
			return 0
		case n.Ready == 0:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(nodes, func(a, b NodeRow) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.NodeIndex, b.NodeIndex))
	})
	return nodes
}

// buildNode returns the row of a node. goal is the most advanced state that any node has reached.
func (l viewBuilder) buildNode(node *timeline.Node, goal int) NodeRow {
	reached, at := l.reachedGoal(node)
	n := NodeRow{NodeIndex: node.NodeIndex, Host: sanitizeLine(node.Host, 80)}
	if goal >= 0 && reached == goal {
		n.Ready = at
	}
	n.Lanes = mapSlice(node.Phases, func(span timeline.PhaseSpan) PhaseLane { return l.buildLane(node, span) })
	if len(n.Lanes) == 0 && l.isAlive {
		n.Lanes = l.lanesOfStates(node)
	}
	n.Failures, n.Befell = mapSlice(node.Failures, l.buildCauseEntry), mapSlice(node.EventRecords, formatEvent)
	if node.Check != nil {
		for _, f := range node.Check.Findings {
			if severityOf(f.Verdict) != SeverityGood {
				n.Checks = append(n.Checks, sanitizeLine(string(f.Verdict), 10)+" "+sanitizeSentence(f.OneLine()))
			}
		}
	}
	n.State, n.Tone = l.nodeState(node, reached, goal)
	n.Facts = nodeFacts(node)
	return n
}

// buildLane returns the bar of a phase. A phase without success has failed if the node has recorded
// a failure in it. Otherwise it was cut short, because another node had failed.
func (l viewBuilder) buildLane(node *timeline.Node, span timeline.PhaseSpan) PhaseLane {
	lane := PhaseLane{
		Phase: sanitizeLine(span.Phase, 40), Sandbox: span.Daemon != "" && span.Daemon != "daemon",
		From: l.sinceStart(span.From), To: max(l.sinceStart(span.To), l.sinceStart(span.From)), Open: span.Open,
	}
	if span.Open && l.isAlive {
		lane.To = l.sinceStart(l.run.ReadAt)
	}
	if !span.Open && !span.OK && span.Phase != "drain" {
		lane.Failed = slices.ContainsFunc(node.Failures, func(f record.Failure) bool { return string(f.Phase) == span.Phase && !timeline.IsLossOfOthers(f) })
		lane.Cut = !lane.Failed
	}
	return lane
}

// nodeState describes the present or the final state of a node.
func (l viewBuilder) nodeState(node *timeline.Node, reached, goal int) (string, Severity) {
	switch step := l.run.FinalStep(node); {
	case step == timeline.StepDropped:
		return step, SeverityAttention
	case step == timeline.StepFailed, step == timeline.StepLost:
		return step, SeverityBad
	case reached < 0:
		return "not seen", map[bool]Severity{true: SeverityBad, false: SeverityNeutral}[l.run.HasEnded()]
	case reached < goal && l.run.HasEnded():
		return "only " + string(goalStates[reached]), SeverityAttention
	case node.HasReached(record.StateDone):
		return "done", SeverityGood
	case l.run.HasEnded() && l.run.Result != nil:
		return string(goalStates[reached]) + ", no end", SeverityAttention
	default:
		return string(goalStates[reached]), SeverityGood
	}
}

// buildCauseEntry returns the entry of the chain for a failure record.
func (l viewBuilder) buildCauseEntry(f record.Failure) CauseEntry {
	link := CauseEntry{
		NodeIndex: f.NodeIndex, Host: cmp.Or(sanitizeLine(f.Host, 80), l.hostName(f.NodeIndex)), Kind: sanitizeLine(string(f.Kind), 40), Phase: sanitizeLine(string(f.Phase), 40),
		What: sanitizeSentence(f.Message), Log: sanitizeLine(f.Log, 200),
	}
	// If the record is about the loss of another node, that node is shown, with the observer.
	if timeline.IsLossOfOthers(f) {
		link.By = nodeName(link.NodeIndex, link.Host)
		link.NodeIndex = record.NodeOfMember(f.LostNodes[0], len(l.run.Nodes))
		link.Host = l.hostName(link.NodeIndex)
	}
	at := f.WrittenAt
	// Convert the time to the head's clock. The failure occurred Age before the record.
	if f.NodeIndex >= 0 && f.NodeIndex < len(l.run.Nodes) {
		at = l.run.Nodes[f.NodeIndex].Clock.ToHeadTime(at)
	}
	if !at.IsZero() {
		link.At = l.sinceStart(at.Add(-f.RecordDelay))
	}
	link.Lines = mapSlice(f.Lines[max(0, len(f.Lines)-40):], func(line string) string { return sanitizeLine(line, maxLineLength) })
	return link
}

// formatEvent formats an event record, with the number of times that it occurred.
func formatEvent(e record.Event) string {
	what := sanitizeSentence(e.Message)
	if e.Count > 1 {
		what += fmt.Sprintf(" (%d times)", e.Count)
	}
	return what
}

// nodeFacts returns the details of a node.
func nodeFacts(node *timeline.Node) (facts []Fact) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: sanitizeLine(value, 300)})
		}
	}
	if j := node.Joined; j != nil {
		add("address", j.Address)
		add("process", fmt.Sprint(j.PID))
		add("version", j.ProgramVersion)
	}
	if node.Clock.Known && node.NodeIndex != 0 {
		add("clock", fmt.Sprintf("%s ahead of the head's, ± %s; corrected here", textutil.BriefDuration(node.Clock.Offset), textutil.BriefDuration(node.Clock.Residual)))
	}
	if d := node.Done; d != nil && len(d.LeftProcesses) > 0 {
		add("left running", strings.Join(d.LeftProcesses, ", "))
	}
	return facts
}

// buildArrows returns the head's records and when the nodes read them. They show which actions of a
// node a record caused.
func (l viewBuilder) buildArrows() (arrows []RecordArrow) {
	// Find when the head wrote each record for the first time.
	wrote := make(map[string]time.Time)
	for _, e := range l.run.Events {
		if _, had := wrote[e.Record]; e.Name == eventlog.RecordPublished && e.NodeIndex == 0 && !had {
			wrote[e.Record] = e.At
		}
	}
	for _, e := range l.run.Events {
		at, known := wrote[e.Record]
		if e.Name == eventlog.RecordSeen && e.NodeIndex != 0 && known {
			arrows = append(arrows, RecordArrow{sanitizeLine(e.Record, 40), e.NodeIndex, l.sinceStart(at), max(l.sinceStart(e.At), l.sinceStart(at))})
		}
	}
	slices.SortStableFunc(arrows, func(a, b RecordArrow) int {
		return cmp.Or(cmp.Compare(a.Wrote, b.Wrote), cmp.Compare(a.NodeIndex, b.NodeIndex))
	})
	return arrows
}
