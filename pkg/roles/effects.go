package roles

import (
	"slices"
	"time"
)

// Effect is what a fault does to the instances of a role, in a run whose gate is open and in which
// nothing has failed before.
type Effect struct {
	Role      *RolePlan
	Instances []*Instance // those that the fault affects; none if it does not affect the role
	// Action is what follows for them. After an exit, an instance can be started again in its place
	// Restarts times within the window.
	Action   Action
	Restarts int
	// EndsRun reports that too few instances are left when these are lost.
	EndsRun bool
}

// Left returns how many instances of the role are left when the affected ones are lost.
func (e Effect) Left() int { return len(e.Role.Instances) - len(e.Instances) }

// ExitEffect returns what follows if a process of an instance fails, and if it does so again and
// again. A oneshot role has not ended then.
func ExitEffect(role *RolePlan, instance *Instance) Effect {
	e := Effect{Role: role, Instances: []*Instance{instance}}
	var budget RestartBudget
	at := time.Unix(0, 0) // any time: all exits are at once
	for e.Action = ActionRestart; e.Action == ActionRestart; {
		e.Action, _ = role.Decide(Exit{Code: 1, WasReady: true}, &budget, at)
	}
	e.Restarts = budget.Used()
	e.EndsRun = role.LacksInstances(len(e.Instances), !role.Oneshot)
	if e.Restarts > 0 {
		e.Action = ActionRestart
	}
	return e
}

// LossEffects returns what follows for each role from the loss of a node. hasSpare reports that a
// spare node can take its place. Roles that are done are not affected.
func (p *Plan) LossEffects(place int, hasSpare bool) (effects []Effect) {
	for at := range p.Roles {
		e := Effect{Role: &p.Roles[at]}
		for i := range e.Role.Instances {
			if instance := &e.Role.Instances[i]; !e.Role.Oneshot && slices.Contains(instance.Places(), place) {
				e.Instances = append(e.Instances, instance)
			}
		}
		e.Action = e.Role.DecideLoss(hasSpare)
		e.EndsRun = e.Action == ActionLose && e.Role.LacksInstances(len(e.Instances), true)
		effects = append(effects, e)
	}
	return effects
}
