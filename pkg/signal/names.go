package signal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// The directories of a run directory.
const (
	Control = "control" // written by the head, polled by all nodes
	Nodes   = "nodes"   // a few names per node, polled only by the head
	Logs    = "logs"
	Events  = "events"
	Exec    = "exec" // used by pkg/request; made at its first use
)

// The names in Control that the head writes.
const (
	NameJob   = "job"   // the attempt
	NameHead  = "head"  // the head's service is up
	NameRanks = "ranks" // the nodes of a world's ranks
	NameGo    = "go"    // the gate is open
	NameLook  = "look"  // the driver has ended, and services stay up for a while
	NameDrain = "drain" // the orderly end
	NameOver  = "over"  // after an abort: the head has finished
	NameStop  = "stop"  // a request from outside for the orderly end
	// NameResult is in the run directory itself.
	NameResult = "result.json"
)

// The states of a node, which are the second part of a name in Nodes.
const (
	Joined  = "joined"  // the daemon has read the job record and can write
	Checked = "checked" // the node's own checks have passed; see CheckedName
	Sandbox = "sandbox" // the node's sandbox is ready
	Up      = "up"      // the node's service is up
	Failed  = "failed"  // the node has seen a failure; the record has the cause
	// SandboxFailed is like Failed, for a sandbox in a separate step. Its daemon has the same node
	// index as the node's other daemon, so it needs another name.
	SandboxFailed = "sandbox-failed"
	// BeatState is the state in the names of heartbeats, also of those of the head in Control. The
	// third part of the name is the number of the heartbeat. SandboxBeat is the same for the separate
	// daemon of a sandbox.
	BeatState   = "beat"
	SandboxBeat = "sandbox-beat"
	Slots       = "slots" // the third part is the number of ranks that the node can have
	Idle        = "idle"  // the node's ranks are idle if the third part is odd, and active again otherwise
	Ended       = "ended" // all ranks of the node have ended
	Done        = "done"  // no process of the daemon is left on the node
	Event       = "event" // an event of the node that did not end the run; the third part is the event's number
	abort       = "abort" // in Control: an abort record, by node index
	team        = "team"  // in Control: the members of the team, by generation
)

// Width returns the number of digits of node indices in a job of size nodes, with leading zeros so
// that names sort by index: at least four.
func Width(size int) int {
	width := 4
	for rest := size - 1; rest >= 10_000; rest /= 10 {
		width++
	}
	return width
}

// NodeName returns the name in Nodes for a node's state.
func NodeName(rank, size int, state string) string {
	return fmt.Sprintf("%0*d.%s", Width(size), rank, state)
}

// UpSince returns the state for a node with a running service. The node has had its present place
// in the team since the given generation.
func UpSince(generation int) string {
	if generation == 0 {
		return Up
	}
	return fmt.Sprintf("%s-%d", Up, generation)
}

// CheckedName returns the name in Nodes for a node that has passed its checks. The number kind is
// the same for all nodes of one kind; 0 means that the kind is unknown.
func CheckedName(rank, size int, kind int64) string {
	if kind == 0 {
		return NodeName(rank, size, Checked)
	}
	return beatName(rank, size, Checked, kind)
}

// UnfitEvent is the number of the first event that makes one of a node's GPUs unfit for another
// job. So the name alone shows it, however many other events there are.
const UnfitEvent = 0

// EventName returns the name in Nodes of a node's nth event, or of UnfitEvent.
func EventName(rank, size, n int) string { return beatName(rank, size, Event, int64(n)) }

// SlotsName returns the name in Nodes for the number of ranks that a node can have.
func SlotsName(rank, size, slots int) string { return beatName(rank, size, Slots, int64(slots)) }

// IdleName returns the name in Nodes of the nth change between idle and active ranks of a node:
// they are idle if n is odd.
func IdleName(rank, size, n int) string { return beatName(rank, size, Idle, int64(n)) }

// AbortName returns the name in Control of the abort of a node.
func AbortName(rank, size int) string {
	return fmt.Sprintf("%s.%0*d", abort, Width(size), rank)
}

// TeamName returns the name in Control of a generation's team.
func TeamName(generation int) string {
	return fmt.Sprintf("%s.%0*d", team, Width(1), generation)
}

// LogName returns the name in Logs of a node's log. The parameter what is the child or the daemon
// that writes the log: LogName("worker", 7, 64) returns worker-0007.log.
func LogName(what string, rank, size int) string {
	return fmt.Sprintf("%s-%0*d.log", what, Width(size), rank)
}

// OfRank is the first part of the name of a rank's log. The second part is the rank's number in the
// world instead of the node index.
const OfRank = "rank"

// ParseLogName parses a name in Logs: the first part, and the number, or -1 if there is one log for
// all nodes.
func ParseLogName(name string) (what string, rank int, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".log")
	for _, r := range stem {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-", r) {
			return "", 0, false
		}
	}
	if at := strings.LastIndexByte(stem, '-'); at > 0 {
		if rank, ranked := parseRank(stem[at+1:]); ranked {
			return stem[:at], rank, isLog
		}
	}
	return stem, -1, isLog && stem != ""
}

// EventsName returns the name in Events of the timeline of a node's daemon: 0007.jsonl, or
// 0007.sandbox-daemon.jsonl for another kind of daemon.
func EventsName(kind string, rank, size int) string {
	name := fmt.Sprintf("%0*d", Width(size), rank)
	if kind != "daemon" {
		name += "." + kind
	}
	return name + ".jsonl"
}

func beatName(rank, size int, state string, count int64) string {
	return fmt.Sprintf("%s.%06d", NodeName(rank, size, state), count)
}

// counted reports whether a name of that state must end with a number.
func counted(state string) bool {
	return state == BeatState || state == SandboxBeat || state == Event || state == Slots || state == Idle
}

// ParseNodeName parses a name in Nodes of a job of size nodes: the node index, its state, and the
// number if the state has one. Other names are rejected, including those with another width, which
// would be a second name for the same node. If size is 0 (unknown), any width is accepted.
func ParseNodeName(name string, size int) (rank int, state string, count int64, ok bool) {
	digits, rest, _ := strings.Cut(name, ".")
	state, tail, more := strings.Cut(rest, ".")
	rank, ok = parseRank(digits)
	ok = ok && state != "" && (size == 0 || rank < size && len(digits) == Width(size))
	if ok && more {
		count, ok = parseNumber(tail, 63)
		ok = ok && (counted(state) || state == Checked)
	}
	if !ok || !more && counted(state) {
		return 0, "", 0, false
	}
	return rank, state, count, true
}

// numbered returns the number in a name in Control, if its first part is kind.
func numbered(name, kind string) (int, bool) {
	what, digits, _ := strings.Cut(name, ".")
	if what != kind {
		return 0, false
	}
	return parseRank(digits)
}

// parseRank parses the padded index of a node.
func parseRank(digits string) (int, bool) {
	rank, ok := parseNumber(digits, 31)
	return int(rank), ok && len(digits) >= Width(1)
}

// parseNumber parses a number of up to the given number of bits. It accepts only digits, so that
// two names never have the same meaning.
func parseNumber(digits string, bits int) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, bits)
	return int64(n), err == nil
}

// ParseEventsName parses the name of a timeline: the node index, and the kind of daemon that writes
// it.
func ParseEventsName(name string) (rank int, kind string, ok bool) {
	stem, isTimeline := strings.CutSuffix(name, ".jsonl")
	digits, kind, named := strings.Cut(stem, ".")
	if !named {
		kind = "daemon"
	}
	rank, ok = parseRank(digits)
	return rank, kind, ok && isTimeline && kind != ""
}

// ParseUp reports whether the state means that a service is up, and since which generation of the
// team in its place.
func ParseUp(state string) (generation int, ok bool) {
	if state == Up {
		return 0, true
	}
	digits, is := strings.CutPrefix(state, Up+"-")
	n, ok := parseNumber(digits, 31)
	return int(n), ok && is
}
