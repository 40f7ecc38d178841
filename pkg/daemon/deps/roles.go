package deps

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
)

// planRoles describes the roles, one per line, in the order in which they start. Their places are
// known when all nodes have joined.
func (c Config) planRoles() (lines []string) {
	defs := c.Roles.Definitions
	for _, level := range roles.StartLevels(defs) {
		for _, name := range level {
			for i := range defs {
				if defs[i].Name == name {
					lines = append(lines, planRole(&defs[i]))
				}
			}
		}
	}
	return lines
}

// planRole describes a role in a line.
func planRole(d *roles.Definition) string {
	line := fmt.Sprintf("role %s: run %q on %s", d.Name, strings.TrimSpace(d.Program.Command), describeNodes(d.Placement))
	if len(d.After) > 0 {
		line += " after " + strings.Join(d.After, ", ")
	}
	switch {
	case d.Oneshot:
		line += fmt.Sprintf(", done when it has ended with 0, within %s", d.Timeout)
	case d.Ready.Probe != "":
		line += fmt.Sprintf(", ready by %s within %s", d.Ready.Probe, d.Ready.Timeout)
	case d.IsUnprobed():
		line += ", ready once it runs, listed once it listens"
	}
	if d.HangTimeout > 0 {
		line += fmt.Sprintf(", ended when it shows no sign of activity for %s", d.HangTimeout)
	}
	if d.Restarts.Max > 0 {
		line += fmt.Sprintf("; at most %d restarts of an instance within %s", d.Restarts.Max, d.Restarts.Window)
	}
	return line
}

func describeNodes(p roles.Placement) (text string) {
	switch p.Nodes {
	case roles.NodesRest:
		text = "the remaining nodes"
	case roles.NodesAll:
		text = "all nodes"
	case roles.NodesHead:
		text = "the first node"
	default:
		text = fmt.Sprintf("%d nodes", p.Nodes)
	}
	if len(p.With) > 0 {
		text += " of " + strings.Join(p.With, ", ")
	}
	return text
}

// planPrimaries describes which roles end the job.
func (c Config) planPrimaries() []string {
	var primaries []string
	for _, d := range c.Roles.Definitions {
		if d.Primary {
			primaries = append(primaries, d.Name)
		}
	}
	if len(primaries) == 0 {
		return []string{"end: no role is primary; the job stays up until it is stopped"}
	}
	return []string{"end: when all primary roles have ended with 0, or one fails: " + strings.Join(primaries, ", ")}
}
