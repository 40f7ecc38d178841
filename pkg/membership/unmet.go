package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Requirements has the requirements that the gate has at present, besides that every node joins.
type Requirements struct {
	NeedChecks       bool // each node must pass its checks
	NeedSandboxes    bool // more sandboxes must become ready
	NeedServices     bool // each node must have a service
	HeadServiceUp    bool // the head's own service, for which the others wait, is up
	FrameworkPending bool // the framework is queried for its nodes, and has not listed all of them
}

// UnmetStep is a step that nodes have not completed.
type UnmetStep struct {
	Step  record.Phase
	Nodes []int // sorted; empty if no single node is concerned
}

// UnmetSteps returns the steps for which the gate waits, in the order of the sequence. It returns
// each node with its first missing step only, because later steps depend on it. The exception are
// sandbox and service, which start concurrently, so that both may be missing. The function missing
// returns the sorted indices of the nodes that should be in a state but are not.
func (a Requirements) UnmetSteps(missing func(state record.State) []int) (all []UnmetStep) {
	late := make(map[int]bool) // nodes that lack an earlier step
	lack := func(step record.Phase, state record.State) []int {
		nodes := slices.DeleteFunc(missing(state), func(node int) bool { return late[node] })
		if len(nodes) > 0 {
			all = append(all, UnmetStep{step, nodes})
		}
		return nodes
	}
	first := func(step record.Phase, state record.State) {
		for _, node := range lack(step, state) {
			late[node] = true
		}
	}
	// Join and check block all later steps of a node; sandbox and service do not.
	first(record.PhaseJoin, record.StateJoined)
	if a.NeedChecks {
		first(record.PhaseCheck, record.StateChecked)
	}
	if a.NeedSandboxes {
		lack(record.PhaseSandbox, record.StateSandboxReady)
	}
	switch {
	case !a.NeedServices:
	case a.HeadServiceUp:
		lack(record.PhaseWorkers, record.StateServiceUp)
	case !late[0]:
		all = append(all, UnmetStep{Step: record.PhaseHead})
	}
	if len(all) == 0 && a.FrameworkPending {
		all = append(all, UnmetStep{Step: record.PhaseWorkers})
	}
	return all
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
		"has not passed its checks", "checks not passed", "the checks have passed on %s", startTimeoutFlag,
	},
	record.PhaseSandbox: {
		"its sandbox is not ready", "sandbox not ready", "the sandbox is ready on %s", startTimeoutFlag,
	},
	record.PhaseHead: {
		"the head's service is not up", "", "the head's service is up", startTimeoutFlag,
	},
	record.PhaseWorkers: {
		"its service is not up", "service not up", "the service is up on %s", startTimeoutFlag,
	},
}

const startTimeoutFlag = "--start-timeout"

// LabelsOf returns the texts of a step, or none if the step cannot be missing.
func LabelsOf(step record.Phase) StepLabels { return labelsByStep[step] }

// maxPartLength is the maximum number of characters about one step in a line.
const maxPartLength = 241

// FormatWait describes in one line for which steps the gate waits, and how long it has waited. The
// function who returns names of nodes. framework is the name of the framework that lists nodes, and
// size is the number of the driver's nodes.
func FormatWait(lacks []UnmetStep, size int, waited time.Duration, framework string, who func([]int) string) string {
	late := make(map[int]bool)
	var parts []string
	for _, l := range lacks {
		var part string
		switch {
		case len(l.Nodes) > 0:
			part = labelsByStep[l.Step].ManyMissing + ": " + who(l.Nodes)
		case l.Step == record.PhaseHead:
			part = labelsByStep[record.PhaseHead].OneMissing
		default:
			part = fmt.Sprintf("%s does not report all %d nodes yet", framework, size)
		}
		parts = append(parts, textutil.TruncateText(textutil.StripControls(part), maxPartLength))
		for _, node := range l.Nodes {
			late[node] = true
		}
	}
	line := "still waiting, " + textutil.FlagDuration(waited.Round(time.Second)) + " now"
	if len(late) > 0 {
		line += fmt.Sprintf(", for %d of %d nodes", len(late), size)
	}
	return line + ": " + strings.Join(parts, "; ")
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
		if len(lacks[0].Nodes) == 0 {
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
