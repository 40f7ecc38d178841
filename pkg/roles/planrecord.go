package roles

import (
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// PlanRecord is the record with the facts from which each node makes the same plan of the roles.
type PlanRecord struct {
	record.Header
	// Offers are those of the members of the team, in the order of their places.
	Offers []NodeFacts `json:"offers"`
	// Generations has the first generation of each instance that a spare node has taken over, by the
	// number of the instance.
	Generations map[int]int `json:"generations,omitempty"`
	// Roles has what observers need to make the same plan, as [Describe] returns it.
	Roles []Definition `json:"roles,omitempty"`
}

// Describe returns the definitions for a [PlanRecord]. Commands and variables, which may contain
// secrets, are never a part of their JSON form.
func Describe(defs []Definition) []Definition {
	described := slices.Clone(defs)
	for i := range described {
		ready := &described[i].Ready
		if ready.Probe == "" {
			*ready = ReadyProbe{}
		}
		ready.Probe = describeProbe(ready.Probe)
	}
	return described
}

// describeProbe returns a probe without secrets: of a command only that it is one.
func describeProbe(probe string) string {
	if kind, _, isCommand := strings.Cut(probe, ":"); isCommand && kind == "exec" {
		return kind
	}
	return textutil.RedactText(probe)
}
