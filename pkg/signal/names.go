package signal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
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
	SeriesPlan     Series = "plan"     // the team, and the facts from which each node plans the roles
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

// AbortName returns the name in ControlDir of the abort of a member.
func AbortName(member, size int) string { return abortPrefix + "." + memberText(member, size) }

// LogName returns the name in LogsDir of a node's log. The parameter what is the child or the
// daemon that writes the log: LogName("worker", 7, 64) returns worker-0007.log.
func LogName(what string, node, size int) string {
	return fmt.Sprintf("%s-%0*d.log", what, IndexWidth(size), node)
}

// LogPrefix returns the first part of the names of the logs of a child: ray-worker for "ray worker".
func LogPrefix(child string) string { return strings.ReplaceAll(child, " ", "-") }

// RankLogPrefix is the first part of the name of a rank's log. The second part is the rank's number
// in the world instead of the node index.
const RankLogPrefix = "rank"

// RankLogName returns the name in LogsDir of the log of a rank that has been started again
// generation times: rank-0003.log, or rank-0003.g1.log.
func RankLogName(rank, generation int) string {
	name := LogName(RankLogPrefix, rank, 0)
	if generation == 0 {
		return name
	}
	return strings.TrimSuffix(name, ".log") + generationSeparator + strconv.Itoa(generation) + ".log"
}

const generationSeparator = ".g"

// ParseLogName parses a name in LogsDir: the first part, and the number, or -1 if there is one log
// for all nodes.
func ParseLogName(name string) (what string, node int, ok bool) {
	stem, isLog := strings.CutSuffix(name, ".log")
	for _, r := range stem {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-", r) {
			return "", 0, false
		}
	}
	if strings.HasPrefix(stem, RankLogPrefix+"-") {
		stem, _, _ = strings.Cut(stem, generationSeparator)
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

// StartName returns the name in ControlDir by which the head starts a role.
func StartName(role string) string { return startPrefix + "." + role }

// EndName returns the name in ControlDir by which the head stops a level of roles, from 1.
func EndName(level int) string { return endPrefix + "." + strconv.Itoa(level) }

// LostName returns the name in ControlDir by which a member that was taken for lost, and runs again,
// learns that its part in the run is over.
func LostName(member, size int) string { return lostPrefix + "." + memberText(member, size) }

// NodesLost returns the indices of the nodes that were taken for lost while the run went on, in a listing
// of ControlDir of a run of size nodes.
func (l Listing) NodesLost(size int) (lost []int) {
	for _, name := range l.names {
		if text, is := strings.CutPrefix(name, lostPrefix+"."); is {
			if member, ok := parseMember(text, size); ok && member < size {
				lost = append(lost, member)
			}
		}
	}
	return sortUnique(lost)
}

// Order is an order of the head for a generation of an instance, or a fact about it.
type Order string

// The orders.
const (
	OrderStop  Order = "stop"  // stops all generations of the instance before this one
	OrderStart Order = "start" // starts this generation
	// OrderConnect lets the other nodes of a cluster connect to its first node, on which this generation
	// has its head's service.
	OrderConnect Order = "head"
)

// OrderHang returns the order by which the head gives the failure of a generation that hangs to one
// of its nodes.
func OrderHang(node int) Order { return Order(fmt.Sprintf("hang-%d", node)) }

// OrderName returns the name in ControlDir of an order.
func OrderName(instance, generation int, order Order) string {
	return fmt.Sprintf("%s.%04d.g%d.%s", instancePrefix, instance, generation, order)
}
