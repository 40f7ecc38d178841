package signal

import "strings"

// EventVersion is the version of the form of the lines in Events.
const EventVersion = 1

// EventWord is what a line in Events tells of.
type EventWord string

// The words. docs/run-directory.md has the fields of each.
const (
	EventEnter   EventWord = "enter"        // a phase begins
	EventLeave   EventWord = "leave"        // a phase has ended
	EventTold    EventWord = "published"    // a record of this node's is there for all to see
	EventSaw     EventWord = "saw"          // a record of the head's was seen, for the first time
	EventReached EventWord = "reached"      // the head sees that ranks are in a state
	EventStart   EventWord = "start"        // a child runs
	EventProbe   EventWord = "probe"        // a probe says something else than before
	EventExit    EventWord = "exit"         // a child has ended
	EventWaits   EventWord = "check-waits"  // checks wait for something
	EventCheck   EventWord = "check"        // a check does not pass, or only with a warning
	EventChecked EventWord = "checked"      // all checks have been made
	EventDiffers EventWord = "nodes-differ" // the head finds that nodes are not alike
	EventWatch   EventWord = "gpu-watch"    // the GPUs are watched, or can't be
	EventGPU     EventWord = "gpu"          // something has befallen a GPU
	EventBefell  EventWord = "befallen"     // the head has heard of that
	EventLine    EventWord = "lifeline"     // it is up, or down
	EventShare   EventWord = "share"        // it does not answer and is outwaited, or it answers again
	EventFailed  EventWord = "failed"       // something has failed here
	EventFailure EventWord = "failure"      // the head knows of a failure, wherever
	EventDropped EventWord = "dropped"      // the head goes on without a node
	EventRequest EventWord = "request"      // the head has taken in what somebody outside asks for
	EventExec    EventWord = "exec"         // a command for somebody outside begins
	EventExecEnd EventWord = "exec-exit"    // it has ended
	EventTrace   EventWord = "trace"        // the head has a trace context for all that the run starts
	EventEnd     EventWord = "end"          // the daemon has nothing left to do
)

// EventWords returns all of them.
func EventWords() []EventWord {
	return []EventWord{
		EventEnter, EventLeave, EventTold, EventSaw, EventReached, EventStart, EventProbe, EventExit, EventWaits, EventCheck,
		EventChecked, EventDiffers, EventWatch, EventGPU, EventBefell, EventLine, EventShare, EventFailed, EventFailure, EventDropped,
		EventRequest, EventExec, EventExecEnd, EventTrace, EventEnd,
	}
}

// ParseNodeName takes a name in Nodes of a job of size nodes apart: the rank,
// its state, and the number where the state has one. Anything else in the
// directory is not a node's name. Of a job of unknown size, 0, any width will do.
func ParseNodeName(name string, size int) (rank int, state string, count int64, ok bool) {
	rank, state, count, ok = nodeName(name)
	if ok && size > 0 && (rank >= size || strings.IndexByte(name, '.') != Width(size)) {
		ok = false
	}
	return rank, state, count, ok
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
	n, ok := parseNumber(digits, 1<<31-1)
	return int(n), ok && is
}
