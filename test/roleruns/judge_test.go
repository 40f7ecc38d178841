package roleruns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// seen is the outcome of a run.
type seen struct {
	code   int               // exit code of bringupd local
	result *record.Result    // nil if there is none
	left   []jobtest.Process // processes that are still running
	starts []string          // the generations of processes that have started: judge.1.0.g2
	ends   []string          // lines: term or end, and the process
	second []string          // second copies of processes that the processes have found
}

// observe returns the outcome of a run that has ended.
func (j *job) observe() seen {
	got := seen{code: j.Cmd.ProcessState.ExitCode(), left: j.Left()}
	if result := new(record.Result); j.Read(result, signal.NameResult) {
		got.result = result
	}
	starts, _ := os.ReadDir(filepath.Join(j.Dir, startsDir))
	for _, start := range starts {
		if !strings.HasSuffix(start.Name(), "~") {
			got.starts = append(got.starts, start.Name())
		}
	}
	got.ends, got.second = j.lines(endsName), j.lines(violationName)
	return got
}

// lines returns the lines of a file of the run.
func (j *job) lines(name string) []string {
	text, err := os.ReadFile(filepath.Join(j.Dir, name))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// judge returns everything that is wrong with the outcome of a run, or nil.
func judge(s schedule, p prediction, got seen) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(got.left) > 0 {
		bad("still running: %v", got.left)
	}
	for _, line := range got.second {
		bad("a second copy, or a process that cannot run: %s", line)
	}
	ends := p.ends
	if len(ends) == 0 {
		ends = []ending{{orderly: true}}
	}
	var reasons []string
	isFull := got.result == nil && len(s.steps) > 0 && s.steps[len(s.steps)-1][0].kind == fillShare
	for _, end := range ends {
		if isFull && got.code == end.code {
			continue // the result may need space
		}
		if reason := judgeEnd(end, got); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) == len(ends) {
		bad("%s", strings.Join(slices.Compact(reasons), "; or "))
	}
	wrong = append(wrong, judgeStarts(p, got, ends[0].early)...)
	if ends[0].orderly && !ends[0].early {
		wrong = append(wrong, judgeOrder(s, p.models[len(p.models)-1], got)...)
	}
	return wrong
}

// judgeEnd compares the end of a run with a predicted one. A run that is stopped has the code of
// its primary processes, which end with 0, only if one of them has run.
func judgeEnd(want ending, got seen) string {
	isPrimary := func(name string) bool { return strings.HasPrefix(name, "primary") }
	if want.stopped && got.code == 0 && slices.ContainsFunc(got.starts, isPrimary) {
		want.code = 0
	}
	if got.code != want.code {
		return fmt.Sprintf("bringupd ended with %d, want %d", got.code, want.code)
	}
	if got.result == nil || got.result.Code != want.code {
		return fmt.Sprintf("the result is %+v, want the code %d", got.result, want.code)
	}
	cause := got.result.Cause
	switch {
	case want.stopped:
		return ""
	case want.orderly && cause != nil:
		return "there is a cause: " + cause.Message
	case want.orderly:
		return ""
	case cause == nil:
		return "there is no cause"
	case want.losses != nil:
		isOther := func(node int) bool { return !slices.Contains(want.losses, node) }
		lost := cause.LostNodes
		if !health.IsPeerLoss(cause.Kind) || len(lost) == 0 || slices.ContainsFunc(lost, isOther) {
			return fmt.Sprintf("the cause is %s of nodes %v, want one of %v", cause.Kind, lost, want.losses)
		}
		return ""
	case cause.Kind != want.kind || !strings.Contains(cause.Message, want.how):
		return fmt.Sprintf("the cause is %s: %s, want %s: %q", cause.Kind, cause.Message, want.kind, want.how)
	case want.kind == health.DaemonDied && !slices.Equal(cause.LostNodes, []int{want.node}):
		return fmt.Sprintf("the nodes %v are blamed, want %d: %s", cause.LostNodes, want.node, cause.Message)
	case want.child != "" && (cause.Child != want.child || cause.NodeIndex != want.node):
		return fmt.Sprintf("the cause is %s of node %d, want %s of node %d: %s", cause.Child,
			cause.NodeIndex, want.child, want.node, cause.Message)
	}
	return ""
}

// judgeStarts compares the generations that have started with the predicted ones. At a failure
// during the start, some may be missing, and in the last step also the restarts of other instances.
func judgeStarts(p prediction, got seen, early bool) (wrong []string) {
	last := p.models[len(p.models)-1]
	before := last
	if len(p.models) > 1 && (last.end != nil || len(p.others) > 0) { // or after two losses
		before = p.models[len(p.models)-2]
	}
	need, may := make(map[string]bool), make(map[string]bool)
	for _, r := range last.roles {
		for i, s := range last.states[r.name] {
			for rank := range s.done {
				for generation := range s.generation + 1 {
					name := nameOf(fault{role: r.name, index: i, rank: rank}, generation)
					may[name] = true
					need[name] = !early && generation <= before.states[r.name][i].generation &&
						(generation == 0 || generation != s.failedStart)
				}
			}
		}
	}
	for _, name := range got.starts {
		if !may[name] {
			wrong = append(wrong, name+" has started and should not")
		}
		delete(need, name)
	}
	for name, needed := range need {
		if needed {
			wrong = append(wrong, name+" has not started")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// judgeOrder checks that the processes of a role have been stopped after those of the levels before
// it have ended, each once.
func judgeOrder(s schedule, m *model, got seen) (wrong []string) {
	first, last := make(map[int]int), make(map[int]int) // lines of each level: the first stop, and the last end
	counts := make(map[string]int)
	for at, line := range got.ends {
		what, name, _ := strings.Cut(line, " ")
		r, index, generation := parseName(s, name)
		if r == nil || m.states[r.name][index].generation != generation || m.states[r.name][index].lost {
			continue // it was stopped before the end
		}
		counts[line]++
		level := endLevel(s.roles, r)
		if _, known := first[level]; !known {
			first[level] = at
		}
		if what == "end" {
			last[level] = at
		}
	}
	for level, at := range first {
		for other, end := range last {
			if other < level && end > at {
				wrong = append(wrong, fmt.Sprintf("level %d was stopped (%s) before the end of "+
					"level %d (%s)", level, got.ends[at], other, got.ends[end]))
			}
		}
	}
	for _, r := range s.roles {
		for i, state := range m.states[r.name] {
			for rank := range state.done {
				if r.primary || state.lost || state.done[rank] {
					continue
				}
				name := nameOf(fault{role: r.name, index: i, rank: rank}, state.generation)
				// The run may end before a restart.
				if counts["term "+name] != 1 && slices.Contains(got.starts, name) {
					wrong = append(wrong, fmt.Sprintf("%s was told to stop %d times", name, counts["term "+name]))
				}
				if !r.behaviour.stubborn && counts["end "+name] != 1 {
					wrong = append(wrong, name+" had no time to end")
				}
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// parseName parses the name of a generation of a process.
func parseName(s schedule, name string) (r *role, index, generation int) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return nil, 0, 0
	}
	at := slices.IndexFunc(s.roles, func(r *role) bool { return r.name == parts[0] })
	index, _ = strconv.Atoi(parts[1])
	generation, err := strconv.Atoi(strings.TrimPrefix(parts[3], "g"))
	if at < 0 || err != nil {
		return nil, 0, 0
	}
	return s.roles[at], index, generation
}
