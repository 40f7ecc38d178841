package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// silentProcess is a process that has printed an error and nothing since, as the head knows it.
type silentProcess struct {
	node      int
	child     string
	name      string // with that of its node
	errorLine string
	log       string    // its name in LogsDir
	since     time.Time // of the error, by this node's clock
}

// ReportSilence reports that a child with a log has printed an error and nothing since, for the given
// time, or without an error that this is over.
func (n *NodeEvents) ReportSilence(child, log, errorLine string, silent time.Duration) {
	name := fmt.Sprintf("%s (%s)", child, n.Host)
	if child == service.DriverName {
		name = "the " + name
	}
	rec := silenceEvent(n.Header(), child, name, errorLine, silent)
	rec.Silence.Log = log
	n.Events.WriteEvent(eventlog.ChildSilent, eventlog.Fields{
		ObjectFields:  eventlog.ObjectFields{Child: child},
		FailureFields: eventlog.FailureFields{What: rec.Message}})
	n.Report(rec)
}

// silenceEvent returns the event that a process has printed an error and nothing since, for the
// given time. Without an error, that is over. name is that of the process, with that of its node.
func silenceEvent(
	header record.Header, child, name, errorLine string, silent time.Duration,
) record.Event {
	what := fmt.Sprintf("%s has gone on, or has ended", name)
	if errorLine != "" {
		what = fmt.Sprintf("%s printed %s %s ago and nothing since, and has not ended", name, errorLine,
			formatSilence(silent))
	}
	return record.Event{Header: header, Message: what, Silence: &record.Silence{
		Child: child, Name: name, Error: errorLine, For: silent}}
}

// maxSilenceWarnings is the maximum number of warnings about silent processes: all processes of a
// job may fall silent after one has failed.
const maxSilenceWarnings = 10

// addSilence adds the event of a process, which [NodeEventLog.LogSilences] logs. mu must be held.
func (c *NodeEventLog) addSilence(rec record.Event) {
	event := rec.Silence
	c.silent = slices.DeleteFunc(c.silent, func(s silentProcess) bool {
		return s.node == rec.NodeIndex && s.child == event.Child
	})
	c.unlogged = append(c.unlogged, unloggedSilence{rec, time.Now()})
	if event.Error == "" {
		return
	}
	c.silent = append(c.silent, silentProcess{
		node: rec.NodeIndex, child: event.Child, name: event.Name, errorLine: event.Error, log: event.Log,
		since: time.Now().Add(-event.For)})
}

// unloggedSilence is the event of a process that is not logged yet, and when the head received it.
type unloggedSilence struct {
	record.Event
	at time.Time
}

// silenceGroup is what processes have in common whose events are logged with one line: their error,
// and their names except for the number of a rank.
type silenceGroup struct{ before, after, errorLine string }

// rankNames matches the name of a rank, which may have that of its world before or after it.
var rankNames = textutil.CompileLazily(`^(.*\b)rank (\d+)(.*)$`)

// LogSilences logs the events of processes together if the first one is as old as given, so that
// ranks of a world with the same error, on whatever nodes, have one line.
func (c *NodeEventLog) LogSilences(age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unlogged) == 0 || time.Since(c.unlogged[0].at) < age {
		return
	}
	groups := make(map[silenceGroup][]unloggedSilence)
	var order []silenceGroup
	for _, one := range c.unlogged {
		key := silenceGroup{before: one.Silence.Name, errorLine: one.Silence.Error}
		if parts := rankNames().FindStringSubmatch(one.Silence.Child); parts != nil {
			key = silenceGroup{parts[1], parts[3], one.Silence.Error}
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], one)
	}
	c.unlogged = nil
	for _, key := range order {
		what := groups[key][0].Message
		if len(groups[key]) > 1 {
			what = describeRanks(key, groups[key])
		}
		if key.errorLine == "" {
			c.Log.Info(what)
		} else if c.warnings++; c.warnings <= maxSilenceWarnings {
			c.Log.Warn(what)
		}
	}
}

// describeRanks describes what several ranks of a world have done, of which each may have several
// events.
func describeRanks(key silenceGroup, events []unloggedSilence) string {
	var ranks, nodes []int
	longest := time.Duration(0)
	for _, one := range events {
		if parts := rankNames().FindStringSubmatch(one.Silence.Child); parts != nil {
			rank, _ := strconv.Atoi(parts[2]) // the pattern admits digits only
			ranks = append(ranks, rank)
		}
		nodes = append(nodes, one.NodeIndex)
		longest = max(longest, one.Silence.For)
	}
	slices.Sort(ranks)
	slices.Sort(nodes)
	ranks, nodes = slices.Compact(ranks), slices.Compact(nodes)
	if len(ranks) < 2 {
		return events[len(events)-1].Message
	}
	name := fmt.Sprintf("%s%s%s (%s)", key.before, textutil.FormatIndices("rank", ranks), key.after,
		textutil.FormatIndices("node", nodes))
	if key.errorLine == "" {
		return name + " have gone on, or have ended"
	}
	return fmt.Sprintf("%s printed %s %s ago and nothing since, and have not ended", name, key.errorLine,
		formatSilence(longest))
}

// describeSilences describes the processes that have printed an error and nothing since, and the error
// and the log of the first of them: the likely reason. It is empty if there are none. A node that is
// lost has no processes.
func (c *NodeEventLog) describeSilences(isLost func(node int) bool) (s Suspect) {
	c.mu.Lock()
	silent := slices.Clone(c.silent)
	c.mu.Unlock()
	silent = slices.DeleteFunc(silent, func(s silentProcess) bool { return isLost(s.node) })
	if len(silent) == 0 {
		return s
	}
	first := slices.MinFunc(silent, func(a, b silentProcess) int { return a.since.Compare(b.since) })
	s = Suspect{ErrorLine: first.errorLine, Log: first.log}
	s.Clause = fmt.Sprintf(": %s printed %s %s ago and nothing since", first.name, first.errorLine,
		formatSilence(time.Since(first.since)))
	if more := len(silent) - 1; more > 0 {
		s.Clause += fmt.Sprintf(", and %d more likewise", more)
	}
	return s
}
