package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Requirements has the requirements that the gate has at present, besides that every node joins.
type Requirements struct {
	NeedChecks       bool             // each node must pass its checks
	FrameworkPending bool             // the framework is queried for its nodes, and has not listed all of them
	Roles            []roles.Progress // all roles; primary ones are not required
}

// UnmetStep is what the gate waits for: a step that nodes have not completed, or a role that does not
// have what the gate requires.
type UnmetStep struct {
	Step  record.Phase    // in which the role starts, if it is about a role
	Role  *roles.Progress // nil if it is about nodes
	Nodes []int           // sorted; empty if no single node is concerned
	// Last is the last line of the log of the setup command of the first node; empty if there is none.
	Last string
}

// UnmetSteps returns what the gate waits for, in the order of the sequence. It returns each node with
// its first missing step only, because later steps depend on it, and no role that starts after another
// one that it returns. The function missing returns the sorted indices of the nodes that should be in a
// state but are not.
func (a Requirements) UnmetSteps(missing func(state record.State) []int) (all []UnmetStep) {
	late := make(map[int]bool) // nodes that lack an earlier step
	need := func(step record.Phase, state record.State) {
		nodes := slices.DeleteFunc(missing(state), func(node int) bool { return late[node] })
		for _, node := range nodes {
			late[node] = true
		}
		if len(nodes) > 0 {
			all = append(all, UnmetStep{Step: step, Nodes: nodes})
		}
	}
	need(record.PhaseJoin, record.StateJoined)
	if a.NeedChecks {
		need(record.PhaseCheck, record.StateChecked)
	}
	unmet := a.unmetRoles()
	for _, role := range unmet {
		role.Late = slices.DeleteFunc(slices.Clone(role.Late),
			func(instance roles.LateInstance) bool { return late[instance.Node] })
		if len(role.Late) > 0 {
			all = append(all, newUnmetRole(role))
		}
	}
	switch {
	case len(all) > 0:
	case len(unmet) > 0: // it has not started yet
		all = append(all, newUnmetRole(unmet[0]))
	case a.FrameworkPending:
		all = append(all, UnmetStep{Step: record.PhaseWorkers})
	}
	slices.SortStableFunc(all, func(a, b UnmetStep) int { return stepOrder[a.Step] - stepOrder[b.Step] })
	return all
}

var stepOrder = map[record.Phase]int{record.PhaseCheck: 1, record.PhaseSandbox: 2, record.PhaseHead: 3,
	record.PhaseWorkers: 4}

// unmetRoles returns the roles that do not have what the gate requires, and that start after none of
// them.
func (a Requirements) unmetRoles() (unmet []roles.Progress) {
	isUnmet := make(map[string]bool)
	for _, role := range a.Roles {
		isUnmet[role.Name] = !role.Primary && !role.IsMet()
	}
	for _, role := range a.Roles {
		isLater := slices.ContainsFunc(role.After, func(name string) bool { return isUnmet[name] })
		if isUnmet[role.Name] && !isLater {
			unmet = append(unmet, role)
		}
	}
	return unmet
}

func newUnmetRole(role roles.Progress) UnmetStep {
	step := UnmetStep{Step: role.StartPhase(), Role: &role}
	for _, instance := range role.Late {
		step.Nodes = append(step.Nodes, instance.Node)
	}
	slices.Sort(step.Nodes)
	step.Nodes = slices.Compact(step.Nodes)
	return step
}

// lastLineTimeout is how long a description of a wait may take to read the last lines of logs.
const lastLineTimeout = 2 * time.Second

// AddLastLines adds to the first late instance of each role the last line of its log, unless it is known
// what the instance waits for, and to a check that of the setup command of the first node, in a run of
// size nodes. If the logs cannot be read in time, it adds nothing.
func AddLastLines(ctx context.Context, run *signal.Dir, size int, lacks []UnmetStep) {
	ctx, cancel := context.WithTimeout(ctx, lastLineTimeout)
	defer cancel()
	logs, err := run.NewReader().ListDir(ctx, signal.LogsDir)
	if err != nil {
		return
	}
	for i := range lacks {
		l := &lacks[i]
		switch {
		case l.Role != nil && len(l.Role.Late) > 0 && l.Role.Late[0].Last == "":
			first := &l.Role.Late[0]
			first.Last = logs.ReadLastLine(ctx, first.Log)
		case l.Role == nil && l.Step == record.PhaseCheck:
			l.Last = logs.ReadLastLine(ctx, signal.LogName(SetupName, l.Nodes[0], size))
		}
	}
}

// StepLabels are the texts about a missing step.
type StepLabels struct {
	OneMissing   string // after a single node
	ManyMissing  string // before several nodes
	Condition    string // the condition to be met, with %s for the nodes
	TimeoutFlags string // the flags that set its timeout
}

var labelsByStep = map[record.Phase]StepLabels{
	record.PhaseJoin: {
		"has not joined", "not joined", "%s has joined", "--join-timeout",
	},
	record.PhaseCheck: {
		"has not passed its checks", "checks not passed", "the checks have passed on %s", "--start-timeout",
	},
}

// setupLabel is before several nodes that lack their checks, of which the first is a setup command.
const setupLabel = "setup command or checks not done"

// LabelsOf returns the texts of a step of nodes.
func LabelsOf(step record.Phase) StepLabels { return labelsByStep[step] }

// DescribeCounts describes how many instances of a role are ready: "srv (2 of 4 ready, needs 3)".
func DescribeCounts(role *roles.Progress) string {
	ready, word, total := role.Ready+role.Done, "ready", len(role.Instances)
	if role.Oneshot {
		ready, word = role.Done, "done"
	}
	text := fmt.Sprintf("%s (%d of %d %s", role.Name, ready, total, word)
	if need := role.Required.Start.Of(total); need < total {
		text += fmt.Sprintf(", needs %d", need)
	}
	return text + ")"
}

// DescribeLate describes an instance that is not ready: how long it has not been, how long it may be,
// and what it does.
func DescribeLate(role *roles.Definition, late roles.LateInstance, now time.Time) string {
	word := map[roles.InstanceStatus]string{roles.StatusUnready: "not ready any more",
		roles.StatusRestarting: "restarting"}[late.Status]
	if word == "" {
		word = "not ready"
		if role.Oneshot {
			word = "not done"
		}
	}
	if !late.Since.IsZero() {
		word += " for " + textutil.FlagDuration(now.Sub(late.Since).Truncate(time.Second))
		if limit := role.StartTimeout(); late.Status == roles.StatusStarting && limit > 0 {
			word += " of " + textutil.FlagDuration(limit)
		}
	}
	if late.Last != "" {
		word += ": " + late.Last
	}
	return word
}

// describe describes what the gate waits for.
func (l UnmetStep) describe(now time.Time, who func([]int) string) string {
	text := DescribeCounts(l.Role)
	if len(l.Role.Late) == 0 {
		return text
	}
	first := l.Role.Late[0]
	text += ": " + first.Name + " on " + who([]int{first.Node}) + ": " +
		DescribeLate(l.Role.Definition, first, now)
	if more := len(l.Role.Late) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
		if l.Role.BuiltIn != "" { // there is one on each node
			text += " on " + who(signal.WithoutNodes(l.Nodes, []int{first.Node}))
		}
	}
	return text
}

// maxPartLength is the maximum number of characters about one step in a line.
const maxPartLength = 241

// WaitFormat formats what the gate waits for.
type WaitFormat struct {
	Size      int                // number of the driver's nodes
	Framework string             // name of the framework that lists nodes
	HasSetup  bool               // the first check is a setup command
	Who       func([]int) string // names nodes
}

// Format describes in one line what the gate waits for, and how long it has waited.
func (f WaitFormat) Format(lacks []UnmetStep, now time.Time, waited time.Duration) string {
	late := make(map[int]bool)
	var parts []string
	for _, l := range lacks {
		var part string
		switch {
		case l.Role != nil:
			part = l.describe(now, f.Who)
		case len(l.Nodes) == 0:
			part = fmt.Sprintf("%s does not report all %d nodes yet", f.Framework, f.Size)
		case l.Step == record.PhaseCheck && f.HasSetup:
			part = setupLabel + ": " + f.Who(l.Nodes)
			if l.Last != "" {
				part += ", of which " + f.Who(l.Nodes[:1]) + " has printed: " + l.Last
			}
		default:
			part = labelsByStep[l.Step].ManyMissing + ": " + f.Who(l.Nodes)
		}
		parts = append(parts, textutil.TruncateText(textutil.StripControls(part), maxPartLength))
		for _, node := range l.Nodes {
			late[node] = true
		}
	}
	line := "still waiting, " + textutil.FlagDuration(waited.Round(time.Second)) + " now"
	if len(late) > 0 {
		line += fmt.Sprintf(", for %d of %d nodes", len(late), f.Size)
	}
	return line + ": " + strings.Join(parts, "; ")
}

// LastReported is why the checks of a node have not passed, as its event log reports last. It is empty
// if there is no reason.
type LastReported string

// SetupRuns is the reason for waiting of a node whose setup command runs.
const SetupRuns = "its setup command runs"

// SetupName is the name of the child that is a setup command.
const SetupName = "setup"

// RecordEvent updates the reason from an event.
func (s *LastReported) RecordEvent(word eventlog.EventType, fields eventlog.Fields) {
	isSetup := fields.Child == SetupName
	switch {
	case word == eventlog.ChecksWaiting, word == eventlog.ChecksDone:
		*s = LastReported(fields.Checks)
	case word == eventlog.ChildStarted && isSetup:
		*s = SetupRuns
	case word == eventlog.ChildExited && isSetup:
		*s = ""
	}
}

// ReminderSchedule decides when the head logs a line about a long wait. It is not safe for
// concurrent use.
type ReminderSchedule struct {
	firstStep record.Phase
	since     time.Time
	lineCount int // number of lines for this step
}

// CheckDue reports whether a line about the first missing step is due, and how long the wait has
// lasted. Without missing steps none is due.
func (v *ReminderSchedule) CheckDue(
	lacks []UnmetStep, now time.Time,
) (waited time.Duration, due bool) {
	step := record.Phase("")
	if len(lacks) > 0 {
		step = lacks[0].Step
		if role := lacks[0].Role; role != nil {
			step = record.Phase("role " + role.Name)
		} else if len(lacks[0].Nodes) == 0 {
			step += ", of no node" // the framework's list of nodes differs from the services that are up
		}
	}
	if step != v.firstStep {
		*v = ReminderSchedule{firstStep: step, since: now}
	}
	waited = now.Sub(v.since)
	if step == "" || waited < reminderAfter(v.lineCount) {
		return waited, false
	}
	for waited >= reminderAfter(v.lineCount) { // missed lines are skipped
		v.lineCount++
	}
	return waited, true
}

// reminderAfter returns the duration of a step at which its nth line is due: soon while a user may
// be watching, rarely when it takes long. A log that is read the next day has a dozen lines an
// hour.
func reminderAfter(n int) time.Duration {
	if soon := []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}; n < len(soon) {
		return soon[n]
	}
	return time.Duration(n-2) * 5 * time.Minute
}
