package daemon

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// account is all that the last words and the advice are made of.
type account struct {
	*signal.Result
	Path  string // of the run directory; empty where there is none
	Rank  int    // who tells
	Host  string
	Size  int
	Names []string // the host of each rank, empty where nobody tells
	// Consequences are all of them, which the result may not bear.
	Consequences []signal.FailedRecord
	Left         []string // what would not die on this node

	Launcher roles.Launcher
	Job      string
	LogDir   string
	Driver   string // its first word; empty where there is none
	Times    Times
	Service  framework.Words
	// Check is what bounds the check phase, where it isn't the setup command's time.
	Check deadline
}

// headWords are the last words of the job: for who comes at night, and has seen
// nothing of it yet. The first line alone tells what to know.
func (a *account) headWords() []string {
	if a.Cause == nil {
		return a.orderlyWords()
	}
	lines := []string{fmt.Sprintf("bringupd: the job %s with code %d%s: %s", a.verb(), a.Code, a.when(), plain(a.Why))}
	lines = append(lines, "  where: "+a.where(), "  when: "+a.clock())
	lines = append(lines, a.quote()...)
	if took := a.tookDown(); took != "" {
		lines = append(lines, "  took down: "+took)
	}
	lines = append(lines, a.besides()...)
	lines = append(lines, a.befell()...)
	lines = append(lines, a.left()...)
	for _, step := range a.Advice {
		lines = append(lines, "  next: "+step)
	}
	lines = append(lines, "  requeue: "+string(health.OutcomeOf(health.Kind(a.Cause.Kind)).Requeue))
	if a.Path != "" {
		lines = append(lines, "  all of it: "+filepath.Join(a.Path, signal.NameResult))
	}
	return lines
}

// orderlyWords are for a job that its driver, or a stop, has ended.
func (a *account) orderlyWords() []string {
	line := "bringupd: " + plain(a.Why)
	if !strings.HasSuffix(line, fmt.Sprintf("exit code %d", a.Code)) {
		line += fmt.Sprintf("; the job's code is %d", a.Code)
	}
	line += " (" + span(a.Took) + " in all"
	if a.ToGate > 0 {
		line += ", " + span(a.ToGate) + " of it to the gate"
	}
	lines := []string{line + ")"}
	if a.Code != 0 {
		lines = append(lines, a.befell()...)
	}
	lines = append(lines, a.left()...)
	for _, step := range a.Advice {
		lines = append(lines, "  next: "+step)
	}
	return lines
}

// nodeWords are the last words of a node that is not the head: a line, and
// where it was this node a second one that tells where to look.
func (a *account) nodeWords() []string {
	if a.Cause == nil {
		return a.left()
	}
	if !a.mine() {
		line := fmt.Sprintf("bringupd: %s ends with the job, code %d: %s", a.name(a.Rank), a.Code, plain(a.Why))
		return append([]string{prose.Cut(line, shortLine)}, a.left()...)
	}
	line := fmt.Sprintf("bringupd: %s has ended the job, code %d: %s", a.name(a.Rank), a.Code, plain(a.Why))
	lines := append([]string{line}, a.left()...)
	switch {
	case a.Cause.Log != "":
		lines = append(lines, "  its log: "+a.log(a.Cause.Log))
	case len(a.Advice) > 0:
		lines = append(lines, "  next: "+a.Advice[0])
	}
	return lines
}

// aloneWords are the last words of a daemon that no run directory connects with
// the others: nobody else can tell what is to be done.
func (a *account) aloneWords() []string {
	lines := []string{fmt.Sprintf("bringupd: %s ends with code %d: %s", a.name(a.Rank), a.Code, plain(a.Why))}
	for _, step := range a.Advice[:min(2, len(a.Advice))] {
		lines = append(lines, "  next: "+step)
	}
	return lines
}

// verb tells a failure from an end that somebody has asked for.
func (a *account) verb() string {
	if gentle(health.Kind(a.Cause.Kind)) {
		return "was ended"
	}
	return "failed"
}

// when tells how far the sequence had come.
func (a *account) when() string {
	switch {
	case a.AfterGate > 0:
		return ", " + span(a.AfterGate) + " after the gate"
	case a.AtPhase != "" && a.AtPhase != "driver":
		return " in phase " + a.AtPhase + ", before the gate"
	default:
		return ""
	}
}

// where tells the node or the nodes that it is about.
func (a *account) where() string {
	ranks, seen := a.blamed(), ""
	if !slices.Contains(ranks, a.Cause.Rank) {
		seen = ", as seen from " + a.name(a.Cause.Rank)
	}
	if len(a.Cause.Lost) == 0 && a.Cause.Kind == string(health.NodesDiffer) {
		return fmt.Sprintf("all %d nodes, in phase %s", a.Size, a.Cause.Phase)
	}
	where := fmt.Sprintf("%s, %d of %d nodes", a.who(ranks), len(ranks), a.Size)
	if len(ranks) == 1 {
		where = fmt.Sprintf("rank %d of %d", ranks[0], a.Size)
		if host := a.host(ranks[0]); host != "" {
			where = host + ", " + where
		}
	}
	if a.Cause.Phase != "" {
		where += ", in phase " + a.Cause.Phase
	}
	return where + seen
}

// clock tells the times by which this can be found in other logs.
func (a *account) clock() string {
	text := "the job took " + span(a.Took)
	if !a.Cause.At.IsZero() {
		text = a.Cause.At.Format(time.DateTime) + " by the clock of " + cmp.Or(a.Cause.Host, a.name(a.Cause.Rank)) + "; " + text
	}
	return text
}

// quote are the last lines of the log that speaks of the cause.
func (a *account) quote() []string {
	if a.Cause.Log == "" {
		return nil
	}
	if len(a.Cause.Lines) == 0 {
		return []string{"  its log is empty: " + a.log(a.Cause.Log)}
	}
	lines := []string{"  its last lines, of " + a.log(a.Cause.Log) + ":"}
	for _, line := range a.Cause.Lines {
		lines = append(lines, "  | "+prose.Cut(plain(line), longLine))
	}
	return lines
}

// tookDown tells what has died of it.
func (a *account) tookDown() string {
	var parts []string
	if a.Driver != "" && a.AfterGate > 0 && !gentle(health.Kind(a.Cause.Kind)) {
		parts = append(parts, "the driver")
	}
	for _, row := range []struct {
		kind health.Kind
		what string
	}{
		{health.ServiceDied, "the services of "},
		{health.SandboxDied, "the sandboxes of "},
	} {
		if ranks := a.ranks(row.kind); len(ranks) > 0 {
			parts = append(parts, row.what+a.who(ranks))
		}
	}
	return strings.Join(parts, "; ")
}

// besides tells what failed, too, without being the cause.
func (a *account) besides() (lines []string) {
	var lost []int
	others := make(map[string][]int)
	var kinds []string
	for _, failure := range a.Consequences {
		switch kind := health.Kind(failure.Kind); {
		case kind == health.Aborted, dragged(failure):
		case len(failure.Lost) > 0 && health.Loss(kind):
			lost = append(lost, failure.Lost...)
		default:
			if others[failure.Kind] == nil {
				kinds = append(kinds, failure.Kind)
			}
			others[failure.Kind] = append(others[failure.Kind], failure.Rank)
		}
	}
	// The cause has told of its own.
	lost = slices.DeleteFunc(lost, func(rank int) bool { return slices.Contains(a.Cause.Lost, rank) })
	if len(lost) > 0 {
		lines = append(lines, "  lost besides: "+a.who(lost))
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		lines = append(lines, fmt.Sprintf("  failed besides: %s (%s)", a.who(others[kind]), kind))
	}
	return lines
}

// mostBefell is how many events are told; the result has more.
const mostBefell = 5

// befell tells what had befallen nodes, of which the driver may have died.
func (a *account) befell() (lines []string) {
	for _, event := range a.Events[:min(len(a.Events), mostBefell)] {
		lines = append(lines, "  before that: "+event.At.Format(time.TimeOnly)+" "+prose.Cut(plain(event.What), shortLine))
	}
	if more := len(a.Events) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("  before that: %d more such events, see events in %s", more, signal.NameResult))
	}
	return lines
}

// dragged tells whether a consequence is something that ran, and died of it.
func dragged(failure signal.FailedRecord) bool {
	kind := health.Kind(failure.Kind)
	return (kind == health.ServiceDied || kind == health.SandboxDied) && failure.Exit != ""
}

// ranks are those whose services or sandboxes it has dragged down.
func (a *account) ranks(kind health.Kind) (ranks []int) {
	for _, failure := range a.Consequences {
		if failure.Kind == string(kind) && dragged(failure) {
			ranks = append(ranks, failure.Rank)
		}
	}
	return ranks
}

// left tells what would not die on this node.
func (a *account) left() (lines []string) {
	for _, what := range a.Left {
		lines = append(lines, "  left running on "+a.name(a.Rank)+": "+plain(what))
	}
	return lines
}

// mine tells whether it is this node that the cause is about.
func (a *account) mine() bool {
	if len(a.Cause.Lost) > 0 {
		return slices.Contains(a.Cause.Lost, a.Rank)
	}
	return a.Cause.Rank == a.Rank
}

// name is one rank for people.
func (a *account) name(rank int) string {
	if host := a.host(rank); host != "" {
		return fmt.Sprintf("rank %d (%s)", rank, host)
	}
	return fmt.Sprintf("rank %d", rank)
}

func (a *account) host(rank int) string {
	switch {
	case rank == a.Rank && a.Host != "":
		return a.Host
	case rank >= 0 && rank < len(a.Names) && a.Names[rank] != strconv.Itoa(rank):
		return a.Names[rank]
	case a.Result != nil && a.Cause != nil && rank == a.Cause.Rank:
		return a.Cause.Host
	}
	return ""
}

// who is a list of ranks for people: their hosts, where those tell them apart.
func (a *account) who(ranks []int) string {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	hosts := make([]string, 0, len(ranks))
	for _, rank := range ranks {
		hosts = append(hosts, a.host(rank))
	}
	if a.Launcher != roles.Local && !slices.Contains(hosts, "") {
		return roles.CompactNodeList(hosts)
	}
	return prose.Ranks(ranks)
}

// log is the path of a log.
func (a *account) log(name string) string { return filepath.Join(a.Path, signal.Logs, name) }

const (
	longLine  = 401 // of what is quoted, with the mark where more was cut off
	shortLine = 241 // of what each of many nodes says
)

// plain is a line without what would move the reader's cursor: of a progress
// bar, the last state.
func plain(line string) string {
	line = strings.TrimRight(line, "\r\n")
	line = strings.ReplaceAll(line[strings.LastIndexByte(line, '\r')+1:], "\n", " ")
	return prose.Plain(strings.ToValidUTF8(line, "?"))
}

// span is a time for people.
func span(d time.Duration) string { return prose.Span(d, time.Minute) }
