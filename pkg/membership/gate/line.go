package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// StepLabels are the texts about a missing step.
type StepLabels struct {
	OneMissing   string // after a single node
	ManyMissing  string // before several nodes
	Condition    string // the condition to be met, with %s for the nodes
	TimeoutFlags string // the flags that set its timeout
}

var labelsByStep = map[record.Phase]StepLabels{
	record.PhaseJoin:    {"has not joined", "not joined", "%s has joined", "--join-timeout"},
	record.PhaseCheck:   {"has not passed its checks", "checks not passed", "the checks have passed on %s", "--start-timeout"},
	record.PhaseSandbox: {"its sandbox is not ready", "sandbox not ready", "the sandbox is ready on %s", "--start-timeout"},
	record.PhaseHead:    {"the head's service is not up", "", "the head's service is up", "--start-timeout"},
	record.PhaseWorkers: {"its service is not up", "service not up", "the service is up on %s", "--start-timeout"},
}

// LabelsOf returns the texts of a step, or none if the step cannot be missing.
func LabelsOf(step record.Phase) StepLabels { return labelsByStep[step] }

// maxPartLength is the maximum number of characters about one step in a line.
const maxPartLength = 241

// FormatWait describes in one line for which steps the gate waits, and how long it has waited. The
// function who returns names of nodes, and why has the nodes' own reasons by step. framework is the
// name of the framework that lists nodes, and size is the number of the driver's nodes.
func FormatWait(lacks []UnmetStep, size int, waited time.Duration, framework string, who func([]int) string, why map[record.Phase]string) string {
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
		if why[l.Step] != "" {
			part += " (" + why[l.Step] + ")"
		}
		parts = append(parts, textutil.TruncateText(textutil.StripControls(strings.ReplaceAll(part, "\n", " ")), maxPartLength))
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
