package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// lackWords are what ranks lack by the step, in a line about many of them.
var lackWords = map[string]string{Join: "not joined", Check: "checks not passed", Sandbox: "sandbox not ready", Workers: "service not up"}

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
			part = lackWords[l.Step] + ": " + who(l.Ranks)
		case l.Step == Head:
			part = Words(Head)
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

// Words say what a node that lacks a step lacks.
func Words(step string) string {
	switch step {
	case Join:
		return "has not joined"
	case Check:
		return "has not passed its checks"
	case Sandbox:
		return "its sandbox is not ready"
	case Head:
		return "the head's service is not up"
	default:
		return "its service is not up"
	}
}
