package roles

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Progress states how far the instances of a role have come.
type Progress struct {
	*RolePlan
	Count
	Late []LateInstance // those that are not ready although they should be soon, in order
}

// LateInstance is an instance that is not ready.
type LateInstance struct {
	Name   string // such as judge.1
	Status InstanceStatus
	Node   int       // index of the first of its nodes that is not ready
	Log    string    // name of the log of its first process there
	Since  time.Time // when the process was started, or when the status changed; zero if unknown
	// Last describes what the process does, such as the last line of its log; empty if nothing is known
	Last string
}

// AddInstance counts an instance. nodes has the indices of its nodes, in the order of its places, of a
// run of size nodes.
func (p *Progress) AddInstance(instance *Instance, state InstanceState, nodes []int, size int, since time.Time) {
	p.Add(state)
	switch state.Status {
	case StatusStarting, StatusUnready, StatusRestarting:
		late := LateInstance{Name: p.InstanceName(instance), Status: state.Status, Node: nodes[0], Since: since}
		place := instance.Processes[0].Place
		for i, at := range instance.Places() {
			if nodes[i] == state.LateNode {
				late.Node, place = nodes[i], at
			}
		}
		for _, process := range instance.Processes {
			if process.Place == place {
				late.Log = p.LogName(instance, process, state.Generation, late.Node, size)
				break
			}
		}
		p.Late = append(p.Late, late)
	}
}

// MissingStep describes that the daemon of the step that starts the processes of the role has not joined
// on a node.
func (d *Definition) MissingStep() string {
	return "no daemon of step " + d.Program.Step + " has joined there: check that step"
}

// WithProcesses returns a role with only those of its instances that have a process. ok is false if
// there are none although the role is planned.
func WithProcesses(role *RolePlan) (shown *RolePlan, ok bool) {
	switch {
	case role.BuiltIn == "":
		return role, true
	case role.Program.Log == "":
		return nil, false
	case !role.Program.NotOnHead || len(role.Instances) == 0:
		return role, true
	}
	others := *role
	others.Instances = nil
	for _, instance := range role.Instances {
		if instance.Processes[0].Place > 0 {
			others.Instances = append(others.Instances, instance)
		}
	}
	return &others, len(others.Instances) > 0
}

// StartPhase returns the phase of the sequence in which the role starts.
func (d *Definition) StartPhase() record.Phase {
	switch {
	case d.Primary:
		return record.PhaseDriver
	case d.BuiltIn == BuiltInHead:
		return record.PhaseHead
	case d.BuiltIn == BuiltInSandbox:
		return record.PhaseSandbox
	}
	return record.PhaseWorkers
}

// StartTimeout returns within which time a process of the role must be ready, or have ended if the role
// is oneshot.
func (d *Definition) StartTimeout() time.Duration {
	if d.Oneshot {
		return d.Timeout
	}
	return d.Ready.Timeout
}

// IsMet reports whether the role has what the gate and the roles after it require.
func (p *Progress) IsMet() bool { return p.IsSatisfied(p.Count) }

// InstanceName returns the name of an instance of the role, such as judge.1.
func (r *RolePlan) InstanceName(instance *Instance) string {
	return fmt.Sprintf("%s.%d", r.Name, instance.Index)
}

// ProcessLogName returns the name in LogsDir of the log of a process of a role that is not built in:
// judge-1.log, judge-1.3.log if the instance has several processes, or judge-1.g2.log for a restart.
func (r *RolePlan) ProcessLogName(instance *Instance, process Process, generation int) string {
	name := fmt.Sprintf("%s-%d", r.Name, instance.Index)
	if len(instance.Processes) > 1 {
		name += fmt.Sprintf(".%d", process.Rank)
	}
	if generation > 0 {
		name += fmt.Sprintf(".g%d", generation)
	}
	return name + ".log"
}

// LogName returns the name in LogsDir of the log of a process of any role, on a node of a run of size
// nodes.
func (r *RolePlan) LogName(instance *Instance, process Process, generation, node, size int) string {
	switch r.BuiltIn {
	case "":
		return r.ProcessLogName(instance, process, generation)
	case BuiltInHead, BuiltInDriver:
		return r.Program.Log + ".log"
	case BuiltInRanks:
		return signal.RankLogName(process.Rank, generation)
	default:
		return signal.LogName(r.Program.Log, node, size)
	}
}
