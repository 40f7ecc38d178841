package roles

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Describe returns the part of the definitions that is published for observers.
func Describe(defs []Definition) (planned []record.PlannedRole) {
	for _, def := range defs {
		role := record.PlannedRole{
			Name: def.Name, Primary: def.Primary, Oneshot: def.Oneshot, After: def.After,
			NeedStart: int(def.Required.Start), NeedRun: int(def.Required.Run), MaxRestarts: def.Restarts.Max,
			ReadyProbe: describeProbe(def.Ready.Probe), Step: def.Program.Step, AllEndpoints: def.Program.AllEndpoints,
			Placement: record.RolePlacement(def.Placement),
		}
		if def.Ready.Probe != "" {
			role.ReadyTimeout = def.Ready.Timeout
		}
		for _, port := range def.Program.Ports {
			role.Ports = append(role.Ports, record.RolePort(port))
		}
		planned = append(planned, role)
	}
	return planned
}

// describeProbe returns a probe without secrets: of a command only that it is one.
func describeProbe(probe string) string {
	if kind, _, isCommand := strings.Cut(probe, ":"); isCommand && kind == "exec" {
		return kind
	}
	return textutil.RedactText(probe)
}

// definitionsOf returns the definitions as far as they were published.
func definitionsOf(planned []record.PlannedRole) []Definition {
	defs := make([]Definition, len(planned))
	for i, role := range planned {
		defs[i] = Definition{
			Name: role.Name, Primary: role.Primary, Oneshot: role.Oneshot, After: role.After,
			Required:  Requirement{Start: Quorum(role.NeedStart), Run: Quorum(role.NeedRun)},
			Ready:     ReadyProbe{Probe: role.ReadyProbe, Timeout: role.ReadyTimeout},
			Restarts:  RestartPolicy{Max: role.MaxRestarts},
			Placement: Placement(role.Placement), Program: Program{Step: role.Step, AllEndpoints: role.AllEndpoints},
		}
		for _, port := range role.Ports {
			defs[i].Program.Ports = append(defs[i].Program.Ports, PortRequest(port))
		}
	}
	return defs
}

// NodesOf returns the nodes of a plan's record, in the order of their places.
func NodesOf(rec *record.RolePlan) []NodeFacts {
	nodes := make([]NodeFacts, len(rec.Offers))
	for place, offer := range rec.Offers {
		nodes[place] = NodeFacts{
			Host: offer.Host, Address: offer.Address, Group: offer.Group, GPUs: offer.GPUs,
			FirstPort: offer.FirstPort, BusyPorts: offer.BusyPorts, Domain: offer.Domain,
		}
	}
	return nodes
}

// PlanFromRecord makes the plan of a run from its record alone.
func PlanFromRecord(rec *record.RolePlan) (*Plan, error) {
	plan, err := MakePlan(definitionsOf(rec.Roles), NodesOf(rec))
	if err != nil {
		return nil, fmt.Errorf("cannot plan the roles of the run again: %w", err)
	}
	return plan, nil
}
