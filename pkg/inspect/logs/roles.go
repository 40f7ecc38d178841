package logs

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/inspect/roleview"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// roleLog is the information in the name of a log of a role: judge-1.log, judge-1.3.log of a process
// of a larger instance, judge-1.g2.log and judge-1.3.g2.log of a restart.
type roleLog struct {
	role           string
	index, process int    // process is -1 if the name has none
	stem           string // without the generation
}

// parseRoleLog parses the name of a log of one of the roles.
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
	role, index, process, ok := roleview.ParseWord(stem[:at] + "." + strings.Join(parts, "."))
	return roleLog{role, index, process, stem}, ok
}

// IsRoleWord reports whether a word selects the logs of a role of a run with this plan: judge, judge.1
// or judge.1.3.
func IsRoleWord(word string, plan *record.Plan) bool {
	role, _, _, ok := roleview.ParseWord(word)
	return ok && plan != nil && slices.Contains(plan.Roles, role)
}

// matches reports whether a word for a role selects the log.
func (l roleLog) matches(word string) bool {
	role, index, process, ok := roleview.ParseWord(word)
	return ok && role == l.role && (index < 0 || index == l.index) && (process < 0 || process == l.process)
}

// roleLogFilter is [logFilter] for a run with roles. A node has the logs of its processes of roles, and
// that of its daemon. Without a word it selects those of the primary roles, or of all if none is.
func roleLogFilter(ctx context.Context, run *signal.Dir, plan *record.Plan, word string, node func(context.Context, string) (int, error)) (func(name string, rank int) bool, error) {
	if IsRoleWord(word, plan) {
		return func(name string, _ int) bool {
			log, ok := parseRoleLog(name, plan.Roles)
			return ok && log.matches(word)
		}, nil
	}
	selected := 0
	if word != "" && word != "head" {
		var err error
		if selected, err = node(ctx, word); err != nil {
			return nil, err
		}
	}
	view, err := roleview.ReadRun(ctx, run.Path())
	switch {
	case errors.Is(err, roleview.ErrNoPlan):
		view = new(roleview.View) // no role has started
	case err != nil:
		return nil, err
	}
	nodes, primaries := view.LogNodes(), view.Primaries()
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
