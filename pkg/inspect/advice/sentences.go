package advice

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// HeadMessage returns the final message of the job, for a reader without other information. The
// first line has the most important facts.
func (a *Summary) HeadMessage() []string {
	if a.Cause == nil {
		return a.orderlyMessage()
	}
	verb := "failed"
	if health.IsRequestedEnd(a.Cause.Kind) {
		verb = "was ended"
	}
	reason := textutil.TerminalLine(a.Reason)
	lines := slices.Concat([]string{
		fmt.Sprintf("bringupd: the job %s with code %d%s: %s", verb, a.Code, a.progressText(), reason),
		"  where: " + a.locationText(),
		"  when: " + a.timeText(),
	}, a.QuoteLog(), a.consequenceLines(), a.otherFailures(), a.eventLines(), a.stepLines(), a.leftoverLines(),
		a.nextLines(len(a.Advice)), a.followingLines())
	if a.RunDir != "" {
		lines = append(lines, "  details: "+filepath.Join(a.RunDir, signal.NameResult))
	}
	return lines
}

// followingLines returns the line about another try: that the user may make one, or what follows
// without the user. The line of a requeue is printed with the request.
func (a *Summary) followingLines() []string {
	switch {
	case a.NextAttempt > 0:
		return []string{fmt.Sprintf("  follows: attempt %d of this launch", a.NextAttempt+1)}
	case a.Requeue != nil && a.Requeue.Wanted:
		return []string{"  follows: a requeue of the job"}
	case a.Requeue != nil: // the reason follows
		return nil
	}
	line := "  requeue: " + string(health.OutcomeOfKind(a.Cause.Kind).Requeue)
	if a.Cause.Kind == health.Terminated && a.ID.Launcher.Facts().RequeuesEnded {
		line += fmt.Sprintf("; %s itself may requeue it, after a preemption or a node failure", a.launcherWords().Title)
	}
	return []string{line}
}

// orderlyMessage returns the message of a job that its driver, or a stop, has ended.
func (a *Summary) orderlyMessage() []string {
	line := "bringupd: " + textutil.TerminalLine(a.Reason)
	if !strings.HasSuffix(line, fmt.Sprintf("exit code %d", a.Code)) {
		line += fmt.Sprintf("; the job's code is %d", a.Code)
	}
	line += " (took " + formatDuration(a.Duration)
	if a.TimeToGate > 0 {
		line += ", the gate opened after " + formatDuration(a.TimeToGate)
	}
	lines := []string{line + ")"}
	if a.Code != 0 {
		lines = append(lines, a.eventLines()...)
	}
	return slices.Concat(lines, a.stepLines(), a.leftoverLines(), a.nextLines(len(a.Advice)))
}

func (a *Summary) stepLines() []string {
	if a.Progress == nil || a.Progress.Reports == 0 {
		return nil
	}
	return []string{"  progress: " + progress.Describe(*a.Progress, a.nodeName)}
}

// NodeMessage returns the final message of a node that is not the head: one line, and if this node
// has caused the end a second one with its logs.
func (a *Summary) NodeMessage() []string {
	if a.Cause == nil {
		return a.leftoverLines()
	}
	// A signal to this node has not ended the job.
	isCause := !health.IsRequestedEnd(a.Cause.Kind) && slices.Contains(a.Cause.FaultyNodes(), a.ID.NodeIndex)
	verb := "ends with the job"
	if isCause {
		verb = "has ended the job"
	}
	line := fmt.Sprintf("bringupd: %s %s, code %d: %s",
		a.nodeName(a.ID.NodeIndex), verb, a.Code, textutil.TerminalLine(a.Reason))
	if !isCause {
		return append([]string{textutil.TruncateText(line, maxMessageLength)}, a.leftoverLines()...)
	}
	lines := append([]string{line}, a.leftoverLines()...)
	if len(a.Cause.Lines) > 0 {
		return append(lines, "  its log: "+a.logPath(a.Cause.Log))
	}
	return append(lines, a.nextLines(1)...)
}

// StandaloneMessage returns the final message of a daemon without a run directory. No other daemon
// can print the advice.
func (a *Summary) StandaloneMessage() []string {
	line := fmt.Sprintf("bringupd: %s ends with code %d: %s",
		a.nodeName(a.ID.NodeIndex), a.Code, textutil.TerminalLine(a.Reason))
	return append([]string{line}, a.nextLines(2)...)
}

func (a *Summary) nextLines(limit int) (lines []string) {
	for _, step := range a.Advice[:min(limit, len(a.Advice))] {
		lines = append(lines, "  next: "+step)
	}
	return lines
}

func (a *Summary) progressText() string {
	phase := a.AtPhase
	// it has its own phase, even if the head has entered another one since
	if a.Cause.Kind == health.DeadlinePassed {
		phase = cmp.Or(a.Cause.Phase, phase)
	}
	switch {
	case a.AfterGate > 0:
		return ", " + formatDuration(a.AfterGate) + " after the gate"
	case phase != "" && phase != record.PhaseDriver:
		return " in phase " + string(phase) + ", before the gate"
	default:
		return ""
	}
}

func (a *Summary) locationText() string {
	var nodes []int
	for _, member := range a.Cause.FaultyNodes() {
		nodes = append(nodes, record.NodeOfMember(member, a.ID.Size))
	}
	nodes, seen := slices.Compact(nodes), ""
	if !slices.Contains(nodes, a.Cause.NodeIndex) {
		seen = ", as seen from " + a.nodeName(a.Cause.NodeIndex)
	}
	if len(a.Cause.LostNodes) == 0 && a.Cause.Kind == health.NodesDiffer {
		return fmt.Sprintf("all %d nodes, in phase %s", a.ID.Size, a.Cause.Phase)
	}
	if len(a.Cause.LostNodes) == 0 && a.Cause.Child == "" && a.isOfJob() {
		return fmt.Sprintf("the job, in phase %s", a.Cause.Phase)
	}
	where := fmt.Sprintf("%s, %d of %d nodes", a.nodeNames(nodes), len(nodes), a.ID.Size)
	if len(nodes) == 1 {
		where = fmt.Sprintf("node %d of %d", record.NodeOfMember(nodes[0], a.ID.Size), a.ID.Size)
		if host := a.hostName(nodes[0]); host != "" {
			where = host + ", " + where
		}
	}
	if of := a.Cause.WorldRank; of != nil {
		where = worldRankText(*of) + ", on " + where
	}
	if a.Cause.Phase != "" {
		where += ", in phase " + string(a.Cause.Phase)
	}
	return where + seen
}

// isOfJob reports whether the cause is a request to end, a time limit of the whole job, or a hang
// of its ranks, which are about no node.
func (a *Summary) isOfJob() bool {
	kind := a.Cause.Kind
	return kind == health.JobDeadlinePassed || kind == health.Terminated ||
		kind == health.Interrupted || kind == health.DeadlinePassed && a.Cause.Phase == record.PhaseDriver
}

func worldRankText(rank record.WorldRank) string {
	words := rank.String()
	if rank.World == "" {
		words += " of the world"
	}
	if rank.GPUs != "" {
		words += ", " + rank.GPULabel()
	}
	return words
}

// timeText returns the times by which the failure can be found in other logs.
func (a *Summary) timeText() string {
	text := "the job took " + formatDuration(a.Duration)
	if !a.Cause.WrittenAt.IsZero() {
		clock := cmp.Or(a.Cause.Host, a.nodeName(a.Cause.NodeIndex))
		text = a.Cause.WrittenAt.Format(time.DateTime) + " by the clock of " + clock + "; " + text
	}
	return text
}

// QuoteLog returns the last lines of the log about the cause.
func (a *Summary) QuoteLog() []string {
	if a.Cause.Log == "" || a.hasSuspect() { // the advice names the log of a suspect
		return nil
	}
	if len(a.Cause.Lines) == 0 {
		return []string{"  it printed nothing, so there is no " + a.logPath(a.Cause.Log)}
	}
	lines := []string{"  its last lines, from " + a.logPath(a.Cause.Log) + ":"}
	for _, line := range a.Cause.Lines {
		lines = append(lines, "  | "+textutil.TruncateText(textutil.TerminalLine(line), maxQuoteLength))
	}
	return lines
}

func (a *Summary) consequenceLines() []string {
	var parts []string
	endsDriver := a.AfterGate > 0 && !health.IsRequestedEnd(a.Cause.Kind)
	switch {
	case a.Cause.Kind == health.DriverFailed:
	case strings.HasPrefix(a.Cause.Message, "cannot start the driver "): // it has not run
	case a.Cause.WorldRank != nil:
		parts = append(parts, "the other ranks")
	case a.HasRanks && endsDriver:
		parts = append(parts, "the ranks")
	case a.Driver != "" && endsDriver:
		parts = append(parts, "the driver")
	}
	dragged := make(map[health.Kind][]int)
	for _, failure := range a.Consequences {
		if isDirectConsequence(failure) {
			dragged[failure.Kind] = append(dragged[failure.Kind], failure.NodeIndex)
		}
	}
	if nodes := dragged[health.ServiceDied]; len(nodes) > 0 {
		parts = append(parts, "the services of "+a.nodeNames(nodes))
	}
	if nodes := dragged[health.SandboxDied]; len(nodes) > 0 {
		parts = append(parts, "the sandboxes of "+a.nodeNames(nodes))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"  also ended: " + strings.Join(parts, "; ")}
}

func isDirectConsequence(failure record.Failure) bool {
	kind := failure.Kind
	return (kind == health.ServiceDied || kind == health.SandboxDied) && failure.ExitText != ""
}

// otherFailures returns other failures, which are neither the cause nor died because of it.
func (a *Summary) otherFailures() (lines []string) {
	var lost []int
	ofWorlds := make(map[string][]int)
	others := make(map[health.Kind][]int)
	for _, failure := range a.Consequences {
		switch kind := failure.Kind; {
		case kind == health.Aborted, isDirectConsequence(failure):
		case failure.WorldRank != nil:
			rank := failure.WorldRank
			ofWorlds[rank.World] = append(ofWorlds[rank.World], rank.Number)
		case len(failure.LostNodes) > 0 && health.IsPeerLoss(kind):
			lost = append(lost, failure.LostNodes...)
		default:
			others[failure.Kind] = append(others[failure.Kind], failure.NodeIndex)
		}
	}
	// The line about the cause already has the nodes that it lost.
	lost = slices.DeleteFunc(lost, func(node int) bool { return slices.Contains(a.Cause.LostNodes, node) })
	if len(lost) > 0 {
		lines = append(lines, "  also lost: "+a.nodeNames(lost))
	}
	for _, world := range slices.Sorted(maps.Keys(ofWorlds)) {
		slices.Sort(ofWorlds[world])
		ranks := textutil.FormatIndices("rank", slices.Compact(ofWorlds[world]))
		lines = append(lines, "  also failed: "+ranks+" of "+cmp.Or(world, "the world"))
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		lines = append(lines, fmt.Sprintf("  also failed: %s (%s)", a.nodeNames(others[kind]), kind))
	}
	return lines
}

// maxEventLines is the maximum number of events in the message; the result has more.
const maxEventLines = 5

// eventLines returns events of nodes that may have made the driver fail, without the silences with the
// error that the reason names.
func (a *Summary) eventLines() (lines []string) {
	events := slices.DeleteFunc(slices.Clone(a.Events), func(e record.Event) bool {
		return e.Silence != nil && a.Cause != nil && a.hasSuspect() && e.Silence.Error == a.Cause.ErrorLine
	})
	for _, event := range events[:min(len(events), maxEventLines)] {
		message := textutil.TruncateText(textutil.TerminalLine(event.Message), maxMessageLength)
		lines = append(lines, "  before that: "+event.WrittenAt.Format(time.TimeOnly)+" "+message)
	}
	if more := len(events) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("  before that: %d more such events, see events in %s",
			more, signal.NameResult))
	}
	return lines
}

func (a *Summary) leftoverLines() (lines []string) {
	for _, what := range a.LeftProcesses {
		lines = append(lines, "  left running on "+a.nodeName(a.ID.NodeIndex)+": "+textutil.TerminalLine(what))
	}
	return lines
}

func (a *Summary) nodeName(member int) string { return a.ID.MemberLabel(member, a.hostName(member)) }

func (a *Summary) hostName(member int) string {
	node := record.NodeOfMember(member, a.ID.Size)
	switch {
	case node == record.NodeOfMember(a.ID.NodeIndex, a.ID.Size) && a.ID.Host != "":
		return a.ID.Host
	case node >= 0 && node < len(a.HostNames) && a.HostNames[node] != strconv.Itoa(node):
		return a.HostNames[node]
	case a.Cause != nil && node == a.Cause.NodeIndex:
		return a.Cause.Host
	}
	return ""
}

func (a *Summary) nodeNames(nodes []int) string { return a.ID.FormatNodes(nodes, a.hostName) }

func (a *Summary) logPath(name string) string { return filepath.Join(a.RunDir, signal.LogsDir, name) }

const (
	maxQuoteLength   = 401 // characters of a quoted line, including the ellipsis
	maxMessageLength = 241 // characters of the message of each of many nodes
)

func formatDuration(d time.Duration) string { return textutil.RoundedDuration(d, time.Minute) }
