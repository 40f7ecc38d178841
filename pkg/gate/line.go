package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Words are what is told of a step that somebody lacks.
type Words struct {
	Lacks  string // behind one who lacks it
	Late   string // before all who lack it
	Mended string // what has to become true, of %s
	Flags  string // that set its deadline
}

var words = map[string]Words{
	Join:    {"has not joined", "not joined", "%s has joined", "--join-timeout"},
	Check:   {"has not passed its checks", "checks not passed", "the checks have passed on %s", "--setup-timeout, --check-timeout"},
	Sandbox: {"its sandbox is not ready", "sandbox not ready", "the sandbox is ready on %s", "--sandbox-timeout"},
	Head:    {"the head's service is not up", "", "the head's service is up", "--service-timeout"},
	Workers: {"its service is not up", "service not up", "the service is up on %s", "--service-timeout"},
}

// WordsOf returns those of a step; of one that nobody can lack, none.
func WordsOf(step string) Words { return words[step] }

// longestPart bounds in characters what a line says of one step.
const longestPart = 241

// Line tells in one line what is waited for, and for how long: who names ranks,
// why has what nodes themselves tell of a step, and framework is who counts
// them. size is how many nodes the driver gets.
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
