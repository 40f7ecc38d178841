package signal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// The directories of a run directory.
const (
	ControlDir = "control" // written by the head, polled by all nodes
	NodesDir   = "nodes"   // a few names per node, polled only by the head
	LogsDir    = "logs"
	EventsDir  = "events"
	ExecDir    = "exec" // used by pkg/exec; made at its first use
)

// The names in ControlDir that the head writes.
const (
	NameJob          = "job"          // the attempt
	NameHead         = "head"         // the head's service is up
	NameRanks        = "ranks"        // the nodes of a world's ranks
	NameGateOpen     = "go"           // the gate is open
	NameDriverEnded  = "driver-ended" // the driver has ended, and services stay up for a while
	NameOrderlyEnd   = "drain"        // the orderly end
	NameHeadFinished = "finished"     // after an abort: the head has finished
	NameStop         = "stop"         // a request from outside for the orderly end
	// NameResult is in the run directory itself.
	NameResult = "result.json"
)

// FlightRecorderPrefix begins the names in LogsDir of the dumps of torch's flight recorder. The number
// of the rank follows; torch writes them itself.
const FlightRecorderPrefix = "flight-recorder-rank_"

// Prefixes of names in ControlDir.
const (
	abortPrefix    = "abort" // an abort record, by node index
	startPrefix    = "start" // a role may start, by its name
	instancePrefix = "inst"  // an order for an instance
	lostPrefix     = "lost"  // a member that was taken for lost
	endPrefix      = "end"   // a level of roles is to stop, by its number
)

// Series is a record in ControlDir of which there are several: the one with the highest number is
// valid.
type Series string

// The series of records.
const (
	SeriesTeam     Series = "team"     // the members of the team, by generation
	SeriesPlan     Series = "plan"     // the facts from which each node plans the roles
	SeriesLive     Series = "live"     // the instances that are ready
	SeriesProgress Series = "progress" // the progress of the job; only the newest is kept
)

// Name returns the name of the nth record.
func (s Series) Name(n int) string {
	if s == SeriesLive {
		return fmt.Sprintf("%s.%06d", s, n)
	}
	return fmt.Sprintf("%s.%04d", s, n)
}

// Newest returns the highest number of the records of a series in a listing of ControlDir, or -1 if
// there are none.
func (l Listing) Newest(s Series) int {
	newest := -1
	for _, name := range l.names {
		if number, ok := parseNumbered(name, string(s)); ok {
			newest = max(newest, number)
		}
	}
	return newest
}

// IndexWidth returns the number of digits of node indices in a job of size nodes, with leading
// zeros so that names sort by index: at least four.
func IndexWidth(size int) int {
	width := 4
	for rest := size - 1; rest >= 10_000; rest /= 10 {
		width++
	}
	return width
}

// NodeName returns the name in NodesDir for the state of a node, or of another member: see
// [record.MemberIndex].
func NodeName(member, size int, state record.State) string {
	return memberText(member, size) + "." + string(state)
}

// memberText returns the index of a node as it is in names: with leading zeros, and, for a daemon of
// a further step, with the number of the step, as in 0007-1.
func memberText(member, size int) string {
	width := IndexWidth(size)
	if step := record.StepOfMember(member, size); step > 0 {
		return fmt.Sprintf("%0*d-%d", width, record.NodeOfMember(member, size), step)
	}
	return fmt.Sprintf("%0*d", width, member)
}

// parseMember splits the text of a member of a further step, such as 0007-1, from the rest of a
// name, and returns its index. The rest begins with the text of the node alone.
func parseMember(name string, size int) (member int, ofNode string, ok bool) {
	text, rest, _ := strings.Cut(name, ".")
	digits, number, has := strings.Cut(text, "-")
	node, isNode := parseIndex(digits)
	step, isStep := parseNumber(number, 16)
	member = record.MemberIndex(node, int(step), size)
	ok = has && isNode && isStep && step > 0 && node < size && text == memberText(member, size)
	return member, digits + "." + rest, ok
}

// ServiceUpState returns the state for a node with a running service. The node has had its present
// place in the team since the given generation.
func ServiceUpState(generation int) record.State {
	if generation == 0 {
		return record.StateServiceUp
	}
	return record.State(fmt.Sprintf("%s-%d", record.StateServiceUp, generation))
}

// CheckedName returns the name in NodesDir for a node that has passed its checks. The number kind
// is the same for all nodes of one kind; 0 means that the kind is unknown.
func CheckedName(node, size int, kind int64) string {
	if kind == 0 {
		return NodeName(node, size, record.StateChecked)
	}
	return numberedName(node, size, record.StateChecked, kind)
}

// UnfitEventNumber is the number of the first event that makes one of a node's GPUs unfit for
// another job. So the name alone shows it, however many other events there are.
const UnfitEventNumber = 0

// EventName returns the name in NodesDir of a node's nth event, or of UnfitEventNumber.
func EventName(node, size, n int) string {
	return numberedName(node, size, record.StateEvent, int64(n))
}

// SlotsName returns the name in NodesDir for the number of ranks that a node can have.
func SlotsName(node, size, slots int) string {
	return numberedName(node, size, record.StateSlots, int64(slots))
}

// IdleName returns the name in NodesDir of the nth change between idle and active ranks of a node:
// they are idle if n is odd.
func IdleName(node, size, n int) string { return numberedName(node, size, record.StateIdle, int64(n)) }

// StepName returns the name in NodesDir for the step that the slowest rank of a node has reached, in
// thousandths. rank is -1 for the driver.
func StepName(node, size, rank int, step float64) string {
	return numberedName(node, size, stepState(rank), int64(math.Round(step*stepFraction)))
}

// stepFraction is the number of units of a step in a name.
const stepFraction = 1000

func stepState(rank int) record.State {
	if rank < 0 {
		return record.StateStep
	}
	return record.State(fmt.Sprintf("%s-%d", record.StateStep, rank))
}

// IsStepState reports whether a state is that of a [StepName].
func IsStepState(state record.State) bool {
	_, is := parseStepState(state)
	return is
}

// parseStepState returns the rank of a state in a StepName, or -1 for the driver.
func parseStepState(state record.State) (rank int, ok bool) {
	if state == record.StateStep {
		return -1, true
	}
	digits, is := strings.CutPrefix(string(state), string(record.StateStep)+"-")
	n, ok := parseNumber(digits, 31)
	return int(n), ok && is && digits == strconv.Itoa(int(n))
}

// AbortName returns the name in ControlDir of the abort of a member.
func AbortName(member, size int) string { return abortPrefix + "." + memberText(member, size) }

// LogName returns the name in LogsDir of a node's log. The parameter what is the child or the
// daemon that writes the log: LogName("worker", 7, 64) returns worker-0007.log.
func LogName(what string, node, size int) string {
	return fmt.Sprintf("%s-%0*d.log", what, IndexWidth(size), node)
}

// RankLogPrefix is the first part of the name of a rank's log. The second part is the rank's number
// in the world instead of the node index.
const RankLogPrefix = "rank"

// ParseLogName parses a name in LogsDir: the first part, and the number, or -1 if there is one log
// for all nodes.
func ParseLogName(name string) (what string, node int, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".log")
	for _, r := range stem {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-", r) {
			return "", 0, false
		}
	}
	if at := strings.LastIndexByte(stem, '-'); at > 0 {
		if node, ok := parseIndex(stem[at+1:]); ok {
			return stem[:at], node, isLog
		}
	}
	return stem, -1, isLog && stem != ""
}

// EventsName returns the name in EventsDir of the timeline of a node's daemon: 0007.jsonl, or
// 0007.sandbox-daemon.jsonl for another kind of daemon.
func EventsName(kind string, node, size int) string {
	name := fmt.Sprintf("%0*d", IndexWidth(size), node)
	if kind != "daemon" {
		name += "." + kind
	}
	return name + ".jsonl"
}

func numberedName(node, size int, state record.State, count int64) string {
	return fmt.Sprintf("%s.%06d", NodeName(node, size, state), count)
}

// hasNumber reports whether a name of that state must end with a number.
func hasNumber(state record.State) bool {
	switch state {
	case record.StateHeartbeat, record.StateEvent, record.StateSlots, record.StateIdle:
		return true
	default:
		return IsStepState(state)
	}
}

// ParseNodeName parses a name in NodesDir of a job of size nodes: the node index, its state, and
// the number if the state has one. Other names are rejected, including those with another width,
// which would be a second name for the same node. If size is 0 (unknown), any width is accepted.
func ParseNodeName(name string, size int) (node int, state record.State, count int64, ok bool) {
	digits, rest, _ := strings.Cut(name, ".")
	word, tail, more := strings.Cut(rest, ".")
	state = record.State(word)
	node, ok = parseIndex(digits)
	ok = ok && state != "" && (size == 0 || node < size && len(digits) == IndexWidth(size))
	if ok && more {
		count, ok = parseNumber(tail, 63)
		ok = ok && (hasNumber(state) || state == record.StateChecked)
	}
	if !ok || !more && hasNumber(state) {
		return 0, "", 0, false
	}
	return node, state, count, true
}

// ParseStepMemberName parses a name in NodesDir of a member of a further job step, such as
// 0007-1.joined, in a job of size nodes: its member index, its state, and the number if the state has
// one.
func ParseStepMemberName(name string, size int) (member int, state record.State, count int64, ok bool) {
	member, ofNode, ok := parseMember(name, size)
	if !ok {
		return 0, "", 0, false
	}
	_, state, count, ok = ParseNodeName(ofNode, size)
	return member, state, count, ok
}

// parseNumbered returns the number in a name in ControlDir, if its first part is kind.
func parseNumbered(name, kind string) (int, bool) {
	what, digits, _ := strings.Cut(name, ".")
	if what != kind {
		return 0, false
	}
	return parseIndex(digits)
}

func parseIndex(digits string) (int, bool) {
	index, ok := parseNumber(digits, 31)
	return int(index), ok && len(digits) >= IndexWidth(1)
}

// parseNumber parses a number of up to the given number of bits. It accepts only digits, so that
// two names never have the same meaning.
func parseNumber(digits string, bits int) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, bits)
	return int64(n), err == nil
}

// ParseEventsName parses the name of a timeline: the node index, and the kind of daemon that writes
// it.
func ParseEventsName(name string) (node int, kind string, ok bool) {
	stem, isTimeline := strings.CutSuffix(name, ".jsonl")
	digits, kind, named := strings.Cut(stem, ".")
	if !named {
		kind = "daemon"
	}
	node, ok = parseIndex(digits)
	return node, kind, ok && isTimeline && kind != ""
}

// ParseServiceUpState reports whether the state means that a service is up, and since which
// generation of the team in its place.
func ParseServiceUpState(state record.State) (generation int, ok bool) {
	if state == record.StateServiceUp {
		return 0, true
	}
	digits, is := strings.CutPrefix(string(state), string(record.StateServiceUp)+"-")
	n, ok := parseNumber(digits, 31)
	return int(n), ok && is
}
