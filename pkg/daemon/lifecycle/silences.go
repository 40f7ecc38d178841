package lifecycle

import (
	"fmt"
	"slices"
	"time"

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
	since     time.Time // of the error, by this node's clock
}

// ReportSilence reports that a child has printed an error and nothing since, for the given time, or
// without an error that this is over.
func (n *NodeEvents) ReportSilence(child, errorLine string, silent time.Duration) {
	name := fmt.Sprintf("%s (%s)", child, n.Host)
	if child == service.DriverName {
		name = "the " + name
	}
	rec := silenceEvent(n.Header(), child, name, errorLine, silent)
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

// addSilence adds the event of a process, and logs the first ones. mu must be held.
func (c *NodeEventLog) addSilence(rec record.Event) {
	event := rec.Silence
	c.silent = slices.DeleteFunc(c.silent, func(s silentProcess) bool {
		return s.node == rec.NodeIndex && s.child == event.Child
	})
	if event.Error == "" {
		c.Log.Info(rec.Message)
		return
	}
	if c.warnings++; c.warnings <= maxSilenceWarnings {
		c.Log.Warn(rec.Message)
	}
	c.silent = append(c.silent, silentProcess{
		node: rec.NodeIndex, child: event.Child, name: event.Name, errorLine: event.Error,
		since: time.Now().Add(-event.For)})
}

// describeSilences returns a clause, which follows why a timeout has expired, about the processes
// that have printed an error and nothing since, and the error of the first of them: the likely
// reason. Both are empty if there are none. A node that is lost has no processes.
func (c *NodeEventLog) describeSilences(isLost func(node int) bool) (clause, errorLine string) {
	c.mu.Lock()
	silent := slices.Clone(c.silent)
	c.mu.Unlock()
	silent = slices.DeleteFunc(silent, func(s silentProcess) bool { return isLost(s.node) })
	if len(silent) == 0 {
		return "", ""
	}
	first := slices.MinFunc(silent, func(a, b silentProcess) int { return a.since.Compare(b.since) })
	clause = fmt.Sprintf(": %s printed %s %s ago and nothing since", first.name, first.errorLine,
		formatSilence(time.Since(first.since)))
	if more := len(silent) - 1; more > 0 {
		clause += fmt.Sprintf(", and %d more likewise", more)
	}
	return clause, first.errorLine
}
