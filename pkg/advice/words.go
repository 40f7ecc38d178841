package advice

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// HeadWords returns the final message of the job, for a reader without other information. The first
// line has the most important facts.
func (a *Account) HeadWords() []string {
	if a.Cause == nil {
		return a.orderlyWords()
	}
	verb := "failed"
	if health.Gentle(a.kind()) {
		verb = "was ended"
	}
	lines := slices.Concat([]string{
		fmt.Sprintf("bringupd: the job %s with code %d%s: %s", verb, a.Code, a.when(), prose.Said(a.Why)),
		"  where: " + a.where(),
		"  when: " + a.clock(),
	}, a.Quote(), a.tookDown(), a.besides(), a.befell(), a.left(), a.next(len(a.Advice)),
		[]string{"  requeue: " + string(health.OutcomeOf(a.kind()).Requeue)})
	if a.Path != "" {
		lines = append(lines, "  all of it: "+filepath.Join(a.Path, signal.NameResult))
	}
	return lines
}

// orderlyWords returns the message of a job that its driver, or a stop, has ended.
func (a *Account) orderlyWords() []string {
	line := "bringupd: " + prose.Said(a.Why)
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
	return slices.Concat(lines, a.left(), a.next(len(a.Advice)))
}

// NodeWords returns the final message of a node that is not the head: one line, and if this node
// has caused the end a second one with its logs.
func (a *Account) NodeWords() []string {
	if a.Cause == nil {
		return a.left()
	}
	const line = "bringupd: %s %s, code %d: %s"
	if health.Gentle(a.kind()) || !slices.Contains(a.blamed(), a.ID.Rank) { // a signal to this node has not ended the job
		words := fmt.Sprintf(line, a.name(a.ID.Rank), "ends with the job", a.Code, prose.Said(a.Why))
		return append([]string{prose.Cut(words, shortLine)}, a.left()...)
	}
	lines := append([]string{fmt.Sprintf(line, a.name(a.ID.Rank), "has ended the job", a.Code, prose.Said(a.Why))}, a.left()...)
	if len(a.Cause.Lines) > 0 {
		return append(lines, "  its log: "+a.log(a.Cause.Log))
	}
	return append(lines, a.next(1)...)
}

// AloneWords returns the final message of a daemon without a run directory. No other daemon can
// print the advice.
func (a *Account) AloneWords() []string {
	line := fmt.Sprintf("bringupd: %s ends with code %d: %s", a.name(a.ID.Rank), a.Code, prose.Said(a.Why))
	return append([]string{line}, a.next(2)...)
}

// next returns the first steps of the advice.
func (a *Account) next(most int) (lines []string) {
	for _, step := range a.Advice[:min(most, len(a.Advice))] {
		lines = append(lines, "  next: "+step)
	}
	return lines
}

func (a *Account) kind() health.Kind { return health.Kind(a.Cause.Kind) }

// when describes the progress of the sequence.
func (a *Account) when() string {
	phase := a.AtPhase
	if a.kind() == health.Deadline { // it has its own phase, even if the head has entered another one since
		phase = cmp.Or(a.Cause.Phase, phase)
	}
	switch {
	case a.AfterGate > 0:
		return ", " + span(a.AfterGate) + " after the gate"
	case phase != "" && phase != "driver":
		return " in phase " + phase + ", before the gate"
	default:
		return ""
	}
}

// where returns the nodes that the cause is about.
func (a *Account) where() string {
	ranks, seen := a.blamed(), ""
	if !slices.Contains(ranks, a.Cause.Rank) {
		seen = ", as seen from " + a.name(a.Cause.Rank)
	}
	if len(a.Cause.Lost) == 0 && a.kind() == health.NodesDiffer {
		return fmt.Sprintf("all %d nodes, in phase %s", a.ID.Size, a.Cause.Phase)
	}
	where := fmt.Sprintf("%s, %d of %d nodes", a.who(ranks), len(ranks), a.ID.Size)
	if len(ranks) == 1 {
		where = fmt.Sprintf("%s %d of %d", nodeWord(a.world()), ranks[0], a.ID.Size)
		if host := a.host(ranks[0]); host != "" {
			where = host + ", " + where
		}
	}
	if of := a.Cause.WorldRank; of != nil {
		where = inWorld(*of) + ", on " + where
	}
	if a.Cause.Phase != "" {
		where += ", in phase " + a.Cause.Phase
	}
	return where + seen
}

// world reports whether the driver runs as ranks, or the cause is a rank.
func (a *Account) world() bool { return a.World || a.Cause != nil && a.Cause.WorldRank != nil }

// nodeWord returns the word before a node's index: rank, except with a world, which has ranks of
// its own.
func nodeWord(world bool) string {
	if world {
		return "node"
	}
	return "rank"
}

// inWorld returns a rank of the world with its resources.
func inWorld(rank signal.WorldRank) string {
	words := rank.String() + " of the world"
	if rank.GPUs != "" {
		words += ", " + rank.Cards()
	}
	return words
}

// clock returns the times by which the failure can be found in other logs.
func (a *Account) clock() string {
	text := "the job took " + span(a.Took)
	if !a.Cause.At.IsZero() {
		text = a.Cause.At.Format(time.DateTime) + " by the clock of " + cmp.Or(a.Cause.Host, a.name(a.Cause.Rank)) + "; " + text
	}
	return text
}

// Quote returns the last lines of the log about the cause.
func (a *Account) Quote() []string {
	if a.Cause.Log == "" {
		return nil
	}
	if len(a.Cause.Lines) == 0 {
		return []string{"  it printed nothing, so there is no " + a.log(a.Cause.Log)}
	}
	lines := []string{"  its last lines, of " + a.log(a.Cause.Log) + ":"}
	for _, line := range a.Cause.Lines {
		lines = append(lines, "  | "+prose.Cut(prose.Said(line), longLine))
	}
	return lines
}

// tookDown returns what has died as a consequence.
func (a *Account) tookDown() []string {
	var parts []string
	switch {
	case a.Cause.WorldRank != nil:
		parts = append(parts, "the other ranks")
	case a.World && a.AfterGate > 0 && !health.Gentle(a.kind()):
		parts = append(parts, "the ranks")
	case a.Driver != "" && a.AfterGate > 0 && !health.Gentle(a.kind()):
		parts = append(parts, "the driver")
	}
	dragged := make(map[health.Kind][]int)
	for _, failure := range a.Consequences {
		if isDragged(failure) {
			dragged[health.Kind(failure.Kind)] = append(dragged[health.Kind(failure.Kind)], failure.Rank)
		}
	}
	if ranks := dragged[health.ServiceDied]; len(ranks) > 0 {
		parts = append(parts, "the services of "+a.who(ranks))
	}
	if ranks := dragged[health.SandboxDied]; len(ranks) > 0 {
		parts = append(parts, "the sandboxes of "+a.who(ranks))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"  took down: " + strings.Join(parts, "; ")}
}

// isDragged reports whether a consequence is a process that died because of the cause.
func isDragged(failure signal.FailedRecord) bool {
	kind := health.Kind(failure.Kind)
	return (kind == health.ServiceDied || kind == health.SandboxDied) && failure.Exit != ""
}

// besides returns other failures, which are neither the cause nor died because of it.
func (a *Account) besides() (lines []string) {
	var lost, ofWorld []int
	others := make(map[string][]int)
	for _, failure := range a.Consequences {
		switch kind := health.Kind(failure.Kind); {
		case kind == health.Aborted, isDragged(failure):
		case failure.WorldRank != nil:
			ofWorld = append(ofWorld, failure.WorldRank.Number)
		case len(failure.Lost) > 0 && health.Loss(kind):
			lost = append(lost, failure.Lost...)
		default:
			others[failure.Kind] = append(others[failure.Kind], failure.Rank)
		}
	}
	// The line about the cause already has the nodes that it lost.
	lost = slices.DeleteFunc(lost, func(rank int) bool { return slices.Contains(a.Cause.Lost, rank) })
	if len(lost) > 0 {
		lines = append(lines, "  lost besides: "+a.who(lost))
	}
	if len(ofWorld) > 0 {
		slices.Sort(ofWorld)
		lines = append(lines, "  failed besides: "+prose.Ranks(slices.Compact(ofWorld))+" of the world")
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		lines = append(lines, fmt.Sprintf("  failed besides: %s (%s)", a.who(others[kind]), kind))
	}
	return lines
}

// mostBefell is the maximum number of events in the message; the result has more.
const mostBefell = 5

// befell returns events of nodes that may have made the driver fail.
func (a *Account) befell() (lines []string) {
	for _, event := range a.Events[:min(len(a.Events), mostBefell)] {
		lines = append(lines, "  before that: "+event.At.Format(time.TimeOnly)+" "+prose.Cut(prose.Said(event.What), shortLine))
	}
	if more := len(a.Events) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("  before that: %d more such events, see events in %s", more, signal.NameResult))
	}
	return lines
}

// left returns processes on this node that could not be ended.
func (a *Account) left() (lines []string) {
	for _, what := range a.Left {
		lines = append(lines, "  left running on "+a.name(a.ID.Rank)+": "+prose.Said(what))
	}
	return lines
}

// Name returns the name of a node for messages, with its host if that is known: a rank or, if the
// driver is a world of ranks, a node.
func Name(rank int, id roles.Identity, world bool) string {
	return nameOf(rank, id.HostOf(rank), world)
}

func nameOf(rank int, host string, world bool) string {
	if host == "" {
		return fmt.Sprintf("%s %d", nodeWord(world), rank)
	}
	return fmt.Sprintf("%s %d (%s)", nodeWord(world), rank, host)
}

func (a *Account) name(rank int) string { return nameOf(rank, a.host(rank), a.world()) }

// host returns the host of a node, or an empty string if it is unknown.
func (a *Account) host(rank int) string {
	switch {
	case rank == a.ID.Rank && a.ID.Host != "":
		return a.ID.Host
	case rank >= 0 && rank < len(a.Names) && a.Names[rank] != strconv.Itoa(rank):
		return a.Names[rank]
	case a.Cause != nil && rank == a.Cause.Rank:
		return a.Cause.Host
	}
	return ""
}

// Names returns a list of nodes for messages: their hosts, if these are known and distinct.
func Names(ranks []int, id roles.Identity, world bool) string {
	return namesOf(ranks, id.Launcher, world, id.HostOf)
}

func namesOf(ranks []int, launcher roles.Launcher, world bool, hostOf func(rank int) string) string {
	hosts := make([]string, 0, len(ranks))
	for _, rank := range ranks {
		hosts = append(hosts, hostOf(rank))
	}
	if launcher == roles.Local || slices.Contains(hosts, "") {
		return prose.Noun(len(ranks), nodeWord(world)) + " " + prose.Ranges(ranks)
	}
	return roles.CompactNodeList(hosts)
}

// who returns a list of nodes for messages; ranks may be unsorted and have duplicates.
func (a *Account) who(ranks []int) string {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	return namesOf(slices.Compact(ranks), a.ID.Launcher, a.world(), a.host)
}

// log returns the path of a log.
func (a *Account) log(name string) string { return filepath.Join(a.Path, signal.Logs, name) }

const (
	longLine  = 401 // characters of a quoted line, including the ellipsis
	shortLine = 241 // characters of the message of each of many nodes
)

// span formats a time.
func span(d time.Duration) string { return prose.Span(d, time.Minute) }
