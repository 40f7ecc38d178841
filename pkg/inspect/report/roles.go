package report

import (
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// RoleExit is the exit of an instance of a role.
type RoleExit struct {
	Instance  string        `json:"instance"` // such as judge.1
	NodeIndex int           `json:"rank"`
	Host      string        `json:"host"`
	At        time.Duration `json:"at_ns"`
	What      string        `json:"what"`
	Follows   string        `json:"follows,omitempty"` // what follows from it, in words
	Lines     []string      `json:"lines,omitempty"`   // last lines of its log
}

// maxRoleExits is the maximum number of exits in a report. Restarts are bounded for each instance,
// but a run may have thousands of them.
const maxRoleExits = 200

// roleStates returns the states of the roles as of when the run was read.
func (l viewBuilder) roleStates() []timeline.RoleStatus {
	return timeline.SummarizeRun(l.run, timeline.Observation{Now: l.run.ReadAt}).Roles
}

// roleExits returns the exits of instances that the head has recorded, by time: the first ones if
// there are too many.
func (l viewBuilder) roleExits() (exits []RoleExit) {
	for _, event := range l.run.Events {
		if event.Name != eventlog.InstanceExited || event.Subject == nil || len(exits) == maxRoleExits {
			continue
		}
		node := *event.Subject
		exits = append(exits, RoleExit{
			Instance: sanitizeLine(event.Child, 80), NodeIndex: node, Host: l.hostName(node), At: l.sinceStart(event.At),
			What: sanitizeSentence(event.What), Follows: sanitizeLine(event.Reason, 80), Lines: sanitizeLines(event.Lines),
		})
	}
	return exits
}

// sanitizeLines cleans lines of a log.
func sanitizeLines(lines []string) []string {
	return mapSlice(lines, func(line string) string { return sanitizeLine(line, maxLineLength) })
}

// ExitsOn returns the exits on a node.
func (v *View) ExitsOn(node int) (exits []RoleExit) {
	for _, exit := range v.Exits {
		if exit.NodeIndex == node {
			exits = append(exits, exit)
		}
	}
	return exits
}
