package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Words are the texts about a missing step.
type Words struct {
	Lacks  string // after a single node
	Late   string // before several nodes
	Mended string // the condition to be met, with %s for the nodes
	Flags  string // the flags that set its timeout
}

var words = map[string]Words{
	Join:    {"has not joined", "not joined", "%s has joined", "--join-timeout"},
	Check:   {"has not passed its checks", "checks not passed", "the checks have passed on %s", "--setup-timeout, --check-timeout"},
	Sandbox: {"its sandbox is not ready", "sandbox not ready", "the sandbox is ready on %s", "--sandbox-timeout"},
	Head:    {"the head's service is not up", "", "the head's service is up", "--service-timeout"},
	Workers: {"its service is not up", "service not up", "the service is up on %s", "--service-timeout"},
}

// WordsOf returns the texts of a step, or none if the step cannot be missing.
func WordsOf(step string) Words { return words[step] }

// longestPart is the maximum number of characters about one step in a line.
const longestPart = 241

// Line describes in one line for which steps the gate waits, and how long it has waited. The
// function who returns names of nodes, and why has the nodes' own reasons by step. framework is the
// name of the framework that lists nodes, and size is the number of the driver's nodes.
func Line(lacks []Lack, size int, waited time.Duration, framework string, who func([]int) string, why map[string]string) string {
	late := make(map[int]bool)
	var parts []string
	for _, l := range lacks {
		var part string
		switch {
		case len(l.Ranks) > 0:
			part = words[l.Step].Late + ": " + who(l.Ranks)
		case l.Step == Head:
			part = words[Head].Lacks
		default:
			part = fmt.Sprintf("%s does not count all %d nodes yet", framework, size)
		}
		if why[l.Step] != "" {
			part += " (" + why[l.Step] + ")"
		}
		parts = append(parts, prose.Cut(prose.Plain(strings.ReplaceAll(part, "\n", " ")), longestPart))
		for _, rank := range l.Ranks {
			late[rank] = true
		}
	}
	line := "still waiting, " + prose.FlagTime(waited.Round(time.Second)) + " now"
	if len(late) > 0 {
		line += fmt.Sprintf(", for %d of %d nodes", len(late), size)
	}
	return line + ": " + strings.Join(parts, "; ")
}
