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
var phaseOrder = []string{
	"start", "join", "check", "sandbox", "head", phaseWorkers, phaseGate, phaseDriver, phaseDrain,
}

// Phases by the gate.
const (
	phaseWorkers = "workers"
	phaseGate    = "gate"
	phaseDriver  = "driver"
	phaseDrain   = "drain"
)

type viewBuilder struct {
	run       *timeline.Run
	status    timeline.Status
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

func (l viewBuilder) hostName(node int) string {
	if node < 0 || node >= len(l.run.Nodes) {
		return ""
	}
	return l.run.Nodes[node].Host
}

// ReadView reads the run in the directory and the ends of its logs.
func ReadView(ctx context.Context, path string) (*View, error) {
	run, err := timeline.Read(ctx, path, timeline.DepthFull)
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
	v.Attempts = readAttempts(ctx, run)
	textutil.CleanTexts(&v.Attempts, maxSentenceLength, sanitizeText)
	for _, sentence := range DescribeFlightRecorder(ctx, path) {
		v.Banner.Notes = append(v.Banner.Notes, "torch's flight recorder: "+sanitizeText(sentence, maxSentenceLength))
	}
	return v, nil
}

// NewView makes the View of a run and the ends of its logs. The time touched is that of the last
// change in the run directory; zero if unknown.
func NewView(run *timeline.Run, logs []LogTail, touched time.Time) *View {
	l := viewBuilder{run: run, startedAt: firstSign(run)}
	l.gateAfter = l.gateOpened()
	end := l.recordedEnd()
	last := max(end, l.gateAfter, l.sinceStart(run.Control.Job.At))
	for i := range run.Nodes {
		last = max(last, l.sinceStart(run.Nodes[i].LastSign))
	}
	l.quietFor = l.sinceStart(run.ReadAt) - max(last, l.sinceStart(touched))
	l.isAlive = !run.HasEnded() && !run.Control.Drain.Exists && !hasUnreadableResult(run) &&
		l.quietFor < run.SilentAfter()
	if l.isAlive {
		last = l.sinceStart(run.ReadAt)
	}
	l.status = timeline.SummarizeRun(run, timeline.Observation{Now: run.ReadAt, Verbose: true})
	v := &View{
		runIdentity: runIdentity{
			ViewVersion, run.Name, run.Path, run.ReadAt.UTC(), l.startedAt.UTC(), run.Size(),
			l.gateAfter, end, last,
		},
		Problems: run.Problems, Logs: logs,
		Checks: l.groupChecks(),
		Config: l.configFacts(), hasEnded: run.HasEnded(),
	}
	if !run.OtherVersion {
		v.roleData = roleData{l.status.Roles, l.buildInstances(cmp.Or(end, last)), l.listExits()}
		v.progressData = l.buildProgress(v.Instances, cmp.Or(end, last))
		v.Nodes, v.Critical = l.buildNodes(logs), l.criticalPath(v.Instances)
	}
	v.Phases = phaseStats(v.Nodes)
	markCritical(v.Nodes, v.Critical)
	v.Banner = l.buildBanner(v)
	v.Facts = l.keyFigures(v)
	textutil.CleanTexts(v, maxSentenceLength, sanitizeText)
	return v
}

func hasUnreadableResult(run *timeline.Run) bool {
	return run.Result == nil && slices.ContainsFunc(run.Problems, func(p string) bool {
		return strings.Contains(p, signal.NameResult)
	})
}

func firstSign(run *timeline.Run) (first time.Time) {
	for i := range run.Nodes {
		for _, span := range run.Nodes[i].Phases {
			if !span.From.IsZero() && (first.IsZero() || span.From.Before(first)) {
				first = span.From
			}
		}
	}
	switch {
	case !first.IsZero():
		return first
	case !run.Control.Job.At.IsZero() || run.Result == nil:
		return run.Control.Job.At
	default:
		return run.Result.WrittenAt.Add(-run.Result.Duration)
	}
}

// gateOpened returns when the gate opened; 0 if it never did.
func (l viewBuilder) gateOpened() time.Duration {
	if !l.run.Control.Go.Exists {
		return 0
	}
	opened := l.sinceStart(l.run.Control.Go.At)
	if end := l.recordedEnd(); end > 0 {
		return min(opened, end) // the time of the record's file may be that of a copy
	}
	return opened
}

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

// buildNodes returns the rows: first the nodes that failed, then those that never became ready,
// then the others, of which the last to become ready come first.
func (l viewBuilder) buildNodes(logs []LogTail) []NodeRow {
	nodes := make([]NodeRow, 0, len(l.run.Nodes))
	for i := range l.run.Nodes {
		nodes = append(nodes, l.buildNode(&l.run.Nodes[i], l.status.All[i]))
	}
	for _, log := range logs {
		if log.NodeIndex >= 0 && log.NodeIndex < len(nodes) {
			nodes[log.NodeIndex].Logs = append(nodes[log.NodeIndex].Logs, log.Name)
		}
	}
	class := func(n NodeRow) int {
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
		return cmp.Or(class(a)-class(b), cmp.Compare(b.Ready, a.Ready), a.NodeIndex-b.NodeIndex)
	})
	return nodes
}

func (l viewBuilder) buildNode(node *timeline.Node, status timeline.NodeStatus) NodeRow {
	n := NodeRow{
		NodeIndex: node.NodeIndex, Host: node.Host, Ready: l.sinceStart(status.ReadyAt), State: status.Step,
		Tone: l.nodeTone(node, status), Facts: nodeFacts(node),
		Failures: textutil.MapSlice(node.Failures, l.buildCauseEntry),
		Befell:   textutil.MapSlice(node.EventRecords, formatEvent),
	}
	if status.IsFailed() {
		n.State = status.Mark
	}
	for _, span := range node.Phases {
		n.Lanes = append(n.Lanes, l.splitAtGate(l.buildLane(node, span))...)
	}
	if instances := l.instancesOn(node.NodeIndex); instances != "" {
		n.Facts = append(n.Facts, Fact{Name: "instances", Value: instances})
	}
	if node.Check != nil {
		for _, f := range node.Check.Findings {
			if severityOf(f.Verdict) != SeverityGood {
				n.Checks = append(n.Checks, string(f.Verdict)+" "+f.OneLine())
			}
		}
	}
	return n
}

func (l viewBuilder) nodeTone(node *timeline.Node, status timeline.NodeStatus) Severity {
	isOver := l.run.HasEnded() && !node.HasReached(record.StateDone)
	switch {
	case status.IsFailed(), isOver && len(node.States) == 0:
		return SeverityBad
	case isOver && l.run.Result != nil, status.NeedsAttention():
		return SeverityAttention
	case len(node.States) == 0:
		return SeverityNeutral
	default:
		return SeverityGood
	}
}

// splitAtGate splits a lane of the driver phase at the gate, before which the program does not run:
// a node enters that phase when it has nothing else to do, while it waits, or starts instances of
// roles.
func (l viewBuilder) splitAtGate(lane PhaseLane) []PhaseLane {
	if lane.Phase != phaseDriver || l.gateAfter > 0 && lane.From >= l.gateAfter {
		return []PhaseLane{lane}
	}
	before := lane
	before.Phase = phaseGate
	if l.hasRoles() {
		before.Phase = phaseWorkers
	}
	if l.gateAfter == 0 || lane.To <= l.gateAfter {
		return []PhaseLane{before}
	}
	lane.From = l.gateAfter
	if !l.hasRoles() {
		return []PhaseLane{lane}
	}
	before.To, before.Open, before.Failed, before.Cut = l.gateAfter, false, false, false
	return []PhaseLane{before, lane}
}

// hasRoles reports whether the run has roles other than those for which flags stand.
func (l viewBuilder) hasRoles() bool {
	return l.run.Roles != nil && slices.ContainsFunc(l.run.Roles.Roles, func(role timeline.Role) bool {
		return role.BuiltIn == ""
	})
}

// buildLane returns the bar of a phase. A phase without success has failed if the node has recorded
// a failure in it. Otherwise it was cut short, because another node had failed.
func (l viewBuilder) buildLane(node *timeline.Node, span timeline.PhaseSpan) PhaseLane {
	lane := PhaseLane{
		Phase: span.Phase, Sandbox: span.Daemon != "" && span.Daemon != "daemon",
		From: l.sinceStart(span.From), To: max(l.sinceStart(span.To), l.sinceStart(span.From)), Open: span.Open,
	}
	if span.Open && l.isAlive {
		lane.To = l.sinceStart(l.run.ReadAt)
	}
	if !span.Open && !span.OK && span.Phase != phaseDrain {
		lane.Failed = slices.ContainsFunc(node.Failures, func(f record.Failure) bool {
			return string(f.Phase) == span.Phase && !timeline.IsLossOfOthers(f)
		})
		lane.Cut = !lane.Failed
	}
	return lane
}

func (l viewBuilder) buildCauseEntry(f record.Failure) CauseEntry {
	entry := CauseEntry{
		NodeIndex: f.NodeIndex, Host: cmp.Or(f.Host, l.hostName(f.NodeIndex)),
		Kind: string(f.Kind), Phase: string(f.Phase), What: f.Message, Log: f.Log, Error: f.ErrorLine,
		Lines: f.Lines[max(0, len(f.Lines)-maxCauseLines):],
	}
	// If the record is about the loss of another node, that node is shown, with the observer.
	if timeline.IsLossOfOthers(f) {
		entry.By = nodeName(entry.NodeIndex, entry.Host)
		entry.NodeIndex = record.NodeOfMember(f.LostNodes[0], len(l.run.Nodes))
		entry.Host = l.hostName(entry.NodeIndex)
	}
	// Convert the time to the head's clock. The failure occurred before the record was written.
	at := f.WrittenAt
	if f.NodeIndex >= 0 && f.NodeIndex < len(l.run.Nodes) {
		at = l.run.Nodes[f.NodeIndex].Clock.ToHeadTime(at)
	}
	if !at.IsZero() {
		entry.At = l.sinceStart(at.Add(-f.RecordDelay))
	}
	return entry
}

func formatEvent(e record.Event) string {
	what := e.Message
	if e.Count > 1 {
		what += fmt.Sprintf(" (%d times)", e.Count)
	}
	return what
}

func nodeFacts(node *timeline.Node) (facts []Fact) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	if j := node.Joined; j != nil {
		add("address", j.Address)
		add("process", fmt.Sprint(j.PID))
		add("version", j.ProgramVersion)
	}
	if clock := node.Clock; clock.Known && node.NodeIndex != 0 {
		add("clock", fmt.Sprintf("%s ahead of the head's, ± %s; corrected here",
			textutil.BriefDuration(clock.Offset), textutil.BriefDuration(clock.Residual)))
	}
	if d := node.Done; d != nil && len(d.LeftProcesses) > 0 {
		add("left running", strings.Join(d.LeftProcesses, ", "))
	}
	return facts
}

// maxRoleExits is the maximum number of exits in a report. Restarts are bounded for each instance,
// but a run may have thousands of them.
const maxRoleExits = 200

// listExits returns the exits of instances that the head has recorded, by time: the first ones if
// there are too many.
func (l viewBuilder) listExits() (exits []RoleExit) {
	for _, event := range l.run.Events {
		if event.Name != eventlog.InstanceExited || event.Subject == nil || len(exits) == maxRoleExits {
			continue
		}
		exits = append(exits, RoleExit{
			Instance: event.Child, NodeIndex: *event.Subject, Host: l.hostName(*event.Subject),
			At: l.sinceStart(event.At), What: event.What, Follows: event.Reason, Lines: event.Lines,
		})
	}
	return exits
}
