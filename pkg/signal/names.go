package signal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// The directories of a run directory.
const (
	Control = "control" // written by the head, watched by all
	Nodes   = "nodes"   // a few names a node, watched by the head alone
	Logs    = "logs"
	Events  = "events"
	Exec    = "exec" // of pkg/request; made by the first who needs it
)

// The names in Control that the head writes.
const (
	NameJob   = "job"   // the attempt
	NameHead  = "head"  // the head's service is up
	NameRanks = "ranks" // which ranks of a world run where
	NameGo    = "go"    // the gate is open
	NameLook  = "look"  // the driver has ended, and all else stays for a while
	NameDrain = "drain" // the orderly end
	NameOver  = "over"  // after an abort: the head has done all it will do
	NameStop  = "stop"  // somebody outside asks for the orderly end
	// NameResult stands in the run directory itself.
	NameResult = "result.json"
)

// The states of a node, which are the second part of a name in Nodes.
const (
	Joined  = "joined"  // the daemon has read the job and can write
	Checked = "checked" // the node's own checks have passed; see CheckedName
	Sandbox = "sandbox" // the node's sandbox is ready
	Up      = "up"      // the node's service is up
	Failed  = "failed"  // a cause
	// SandboxFailed is the cause that a sandbox in a step of its own writes:
	// its daemon bears the rank of the node's other one.
	SandboxFailed = "sandbox-failed"
	// BeatState is the pulse, also the head's in Control; the third part of
	// the name counts. SandboxBeat is that of a sandbox's own daemon.
	BeatState   = "beat"
	SandboxBeat = "sandbox-beat"
	Slots       = "slots" // the node may have so many ranks; the third part is that number
	Idle        = "idle"  // the ranks of the node do nothing, where the third part is odd, or do something again
	Ended       = "ended" // all ranks of the node have
	Done        = "done"  // ended
	Event       = "event" // something befell the node that ended nothing; the third part counts
	abort       = "abort" // in Control: the end with a cause, by rank
	team        = "team"  // in Control: who is in it, by generation
)

// Width returns the number of digits that ranks of a job of size nodes are
// padded to, so that names sort by rank: at least four.
func Width(size int) int {
	width := 4
	for rest := size - 1; rest >= 10_000; rest /= 10 {
		width++
	}
	return width
}

// NodeName returns the name in Nodes that says that rank is in state.
func NodeName(rank, size int, state string) string {
	return fmt.Sprintf("%0*d.%s", Width(size), rank, state)
}

// UpSince returns the state of a node whose service is up in the place that it
// has had since a generation of the team.
func UpSince(generation int) string {
	if generation == 0 {
		return Up
	}
	return fmt.Sprintf("%s-%d", Up, generation)
}

// CheckedName returns the name in Nodes that says that rank is fit, and by a
// number what kind of node it is: nodes of one kind bear the same. 0 says nothing
// of that.
func CheckedName(rank, size int, kind int64) string {
	if kind == 0 {
		return NodeName(rank, size, Checked)
	}
	return beatName(rank, size, Checked, kind)
}

// UnfitEvent is the number of the first event of a node after which a GPU of it is not fit for another job: the name
// alone tells, however many others there are.
const UnfitEvent = 0

// EventName returns the name in Nodes of the nth thing that befell rank, or of UnfitEvent.
func EventName(rank, size, n int) string { return beatName(rank, size, Event, int64(n)) }

// SlotsName returns the name in Nodes that says how many ranks a node may have.
func SlotsName(rank, size, slots int) string { return beatName(rank, size, Slots, int64(slots)) }

// IdleName returns the name in Nodes that says for the nth time whether the ranks of a
// node do nothing: every other time they do something again.
func IdleName(rank, size, n int) string { return beatName(rank, size, Idle, int64(n)) }

// AbortName returns the name in Control of the abort that rank publishes.
func AbortName(rank, size int) string {
	return fmt.Sprintf("%s.%0*d", abort, Width(size), rank)
}

// TeamName returns the name in Control of a generation's team.
func TeamName(generation int) string {
	return fmt.Sprintf("%s.%0*d", team, Width(1), generation)
}

// LogName returns the name in Logs of what `what` says on rank.
func LogName(what string, rank, size int) string {
	return fmt.Sprintf("%s-%0*d.log", what, Width(size), rank)
}

// OfRank is what a log is of that is a rank's of the job's world: its number stands where
// others have a node's.
const OfRank = "rank"

// ParseLogName takes a name in Logs apart: what it is of, and the rank; -1 where
// there is one for all nodes.
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

// EventsName returns the name in Events of the timeline of the rank's daemon:
// 0007.jsonl, and 0007.sandbox-daemon.jsonl where the kind of daemon is another.
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

// counted tells whether a name of that state must end with a number.
func counted(state string) bool {
	return state == BeatState || state == SandboxBeat || state == Event || state == Slots || state == Idle
}

// ParseNodeName takes a name in Nodes of a job of size nodes apart: the rank,
// its state, and the number where the state has one. Anything else in the
// directory is not a node's name, nor is one of another width, which would be a
// second one for the same rank. Of a job of unknown size, 0, any width will do.
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

// numbered takes the number out of a name in Control of that kind.
func numbered(name, kind string) (int, bool) {
	what, digits, _ := strings.Cut(name, ".")
	if what != kind {
		return 0, false
	}
	return parseRank(digits)
}

// parseRank parses the padded number of a rank.
func parseRank(digits string) (int, bool) {
	rank, ok := parseNumber(digits, 31)
	return int(rank), ok && len(digits) >= Width(1)
}

// parseNumber parses a number of so many bits: digits alone, so that a name is
// no other name's twin.
func parseNumber(digits string, bits int) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, bits)
	return int64(n), err == nil
}

// ParseEventsName takes the name of a timeline apart: the rank, and the kind of
// daemon that writes it.
func ParseEventsName(name string) (rank int, kind string, ok bool) {
	stem, isTimeline := strings.CutSuffix(name, ".jsonl")
	digits, kind, named := strings.Cut(stem, ".")
	if !named {
		kind = "daemon"
	}
	rank, ok = parseRank(digits)
	return rank, kind, ok && isTimeline && kind != ""
}

// ParseUp tells whether the state is that a service is up, and since which
// generation of the team in its place.
func ParseUp(state string) (generation int, ok bool) {
	if state == Up {
		return 0, true
	}
	digits, is := strings.CutPrefix(state, Up+"-")
	n, ok := parseNumber(digits, 31)
	return int(n), ok && is
}
