package runs

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// roleLog is the information in the name of a log of a role: judge-1.log, judge-1.3.log of a process
// of a larger instance, judge-1.g2.log and judge-1.3.g2.log of a restart.
type roleLog struct {
	roleWord
	stem string // without the generation
}

func parseRoleLog(name string, roles []string) (log roleLog, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".log")
	at := strings.LastIndexByte(stem, '-')
	if !isLog || at <= 0 || !slices.Contains(roles, stem[:at]) {
		return log, false
	}
	parts := strings.Split(stem[at+1:], ".")
	if last := parts[len(parts)-1]; strings.HasPrefix(last, "g") && len(parts) > 1 {
		if _, err := strconv.ParseUint(last[1:], 10, 31); err != nil {
			return log, false
		}
		parts, stem = parts[:len(parts)-1], strings.TrimSuffix(stem, "."+last)
	}
	word, ok := parseRoleWord(stem[:at] + "." + strings.Join(parts, "."))
	return roleLog{word, stem}, ok
}

func (l roleLog) matches(w roleWord) bool {
	return w.role == l.role && (w.index < 0 || w.index == l.index) && (w.process < 0 || w.process == l.process)
}

// IsRoleWord reports whether a word selects the logs of a role of a run with this plan: judge, judge.1
// or judge.1.3, or the name of such a log, with ".log" or without.
func IsRoleWord(word string, plan *record.Plan) bool {
	_, is := findRoleWord(word, plan)
	return is
}

func findRoleWord(word string, plan *record.Plan) (found roleWord, is bool) {
	if plan == nil {
		return found, false
	}
	if parsed, ok := parseRoleWord(word); ok && slices.Contains(plan.Roles, parsed.role) {
		return parsed, true
	}
	log, is := parseRoleLog(strings.TrimSuffix(word, ".log")+".log", plan.Roles)
	return log.roleWord, is
}

// roleLogFilter is [SelectLogs] for a run with roles. A node has the logs of its processes of roles, and
// that of its daemon. Without a word it selects those of the primary roles, or of all if none is.
func roleLogFilter(
	ctx context.Context, run *signal.Dir, plan *record.Plan, word string, node NodeFinder,
) (LogFilter, error) {
	if wanted, is := findRoleWord(word, plan); is {
		return func(name string, _ int) bool {
			log, ok := parseRoleLog(name, plan.Roles)
			return ok && log.matches(wanted)
		}, nil
	}
	selected := 0
	if word != "" && word != "head" {
		var err error
		if selected, err = node(ctx, word); err != nil {
			return nil, err
		}
	}
	placed, err := readRoles(ctx, run.Path())
	switch {
	case errors.Is(err, timeline.ErrNoPlan):
		placed = new(timeline.PlacedRoles) // no role has started
	case err != nil:
		return nil, err
	}
	nodes, primaries := placed.LogNodes(), primaryRoles(placed)
	return func(name string, rank int) bool {
		log, ok := parseRoleLog(name, plan.Roles)
		switch of, known := nodes[log.stem]; {
		case !ok:
			return word != "" && rank == selected
		case word == "":
			return len(primaries) == 0 || slices.Contains(primaries, log.role)
		default:
			return known && of == selected
		}
	}, nil
}

func primaryRoles(placed *timeline.PlacedRoles) (names []string) {
	for _, role := range placed.Roles {
		if role.Primary {
			names = append(names, role.Name)
		}
	}
	return names
}
