package roles

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Exit describes the end of a generation of an instance: of its first process that has ended, or
// that was killed because its probe has failed.
type Exit struct {
	Code int // 128+n if signal n has ended the process
	// CannotExecute reports that the program could not be started at all.
	CannotExecute bool
	// WasReady reports that some generation of the instance has been ready, in this run.
	WasReady bool
	// UpFor is how long the generation had been ready; 0 if it was not.
	UpFor time.Duration
}

// Action is what follows from an exit.
type Action int

// The actions that follow from an exit.
const (
	ActionDone    Action = iota // the instance has ended as it should
	ActionRestart               // the instance starts again
	ActionLose                  // the instance is lost
)

// RestartBudget counts the restarts of one instance. The zero value has none behind it.
type RestartBudget struct {
	restarts []time.Time
	lastExit time.Time
	row      int // the last restart's, as in [RestartPolicy.Pause]
}

// Decide returns what follows from an exit at a time, and how long to wait before a restart. It
// records a restart in the budget. A program that cannot be executed is never started again, and
// neither is an instance that was never ready, unless it has no readiness: a mistake in its command
// must not cost several loads of a model.
func (d *Definition) Decide(exit Exit, budget *RestartBudget, at time.Time) (action Action, pause time.Duration) {
	mayEnd := d.Oneshot || d.Primary
	switch {
	case exit.Code == 0 && mayEnd:
		return ActionDone, 0
	case exit.CannotExecute, !exit.WasReady && !mayEnd:
		return ActionLose, 0
	}
	return budget.next(d.Restarts, exit.UpFor, at)
}

// MayAwaitOthers reports whether an instance that is not ready or done may be waiting for the
// endpoints of other roles: it has a probe, or is a oneshot.
func (d *Definition) MayAwaitOthers() bool {
	return d.BuiltIn == "" && (d.Ready.Probe != "" || d.Oneshot)
}

// ListsListeners reports whether an endpoint of the role is listed only when a process of the instance
// listens there, because no probe has proven that. It does not concern whether the instance is ready.
func (d *Definition) ListsListeners() bool {
	isProven := d.Ready.Probe != "" || d.Program.Framework != "" && d.Program.Command == ""
	return !isProven && len(d.Program.Ports) > 0
}

// IsUnprobed reports whether the role runs as long as the others, as a server does, and no probe proves
// its endpoints.
func (d *Definition) IsUnprobed() bool { return d.ListsListeners() && !d.Primary && !d.Oneshot }

// DecideLoss returns what follows for an instance from the loss of one of its nodes: it starts again
// if a spare node takes the place of the node, and the role has restarts.
func (d *Definition) DecideLoss(hasSpare bool) Action {
	if hasSpare && d.Restarts.Max > 0 {
		return ActionRestart
	}
	return ActionLose
}

// steadyTime is how long an instance must have been ready for its first restart to have no pause: what
// ends a program at its start would end it again.
const steadyTime = 10 * time.Second

// next records a restart at a time, unless the budget is used up.
func (b *RestartBudget) next(policy RestartPolicy, upFor time.Duration, at time.Time) (Action, time.Duration) {
	// Forget the restarts before the window, and the back-off if the last exit was before it.
	b.restarts = slices.DeleteFunc(b.restarts, func(earlier time.Time) bool { return at.Sub(earlier) > policy.Window })
	if at.Sub(b.lastExit) > policy.Window {
		b.row = 0
	}
	b.lastExit = at
	if len(b.restarts) >= policy.Max {
		return ActionLose, 0
	}
	b.restarts = append(b.restarts, at)
	if b.row++; b.row == 1 && upFor < steadyTime {
		b.row++
	}
	return ActionRestart, policy.Pause(b.row)
}

// Pause returns the pause before a restart: none before the first one in a row, then MinBackoff, which
// doubles with each further one up to MaxBackoff.
func (p RestartPolicy) Pause(row int) time.Duration {
	if row <= 1 {
		return 0
	}
	pause := p.MinBackoff
	for ; row > 2 && pause < p.MaxBackoff; row-- {
		pause *= 2
	}
	return min(pause, p.MaxBackoff)
}

// Used returns the number of restarts in the window.
func (b *RestartBudget) Used() int { return len(b.restarts) }

// DescribeUsed describes, as the end of a sentence, the restarts that a lost instance has used up.
func (b *RestartBudget) DescribeUsed(policy RestartPolicy) string {
	switch b.Used() {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; it had been started again once within %s", textutil.FlagDuration(policy.Window))
	default:
		return fmt.Sprintf("; it had been started again %d times within %s", b.Used(),
			textutil.FlagDuration(policy.Window))
	}
}

// LacksInstances reports whether a role with that many lost instances has fewer than it needs: to
// run if it has started, and otherwise to start.
func (r *RolePlan) LacksInstances(lost int, started bool) bool {
	need := r.Required.Start
	if started {
		need = r.Required.Run
	}
	return need.Lacks(lost, len(r.Instances))
}

// minCommonInstances is the number of instances from which the failure of all of them has a common
// cause.
const minCommonInstances = 4

// CommonCause detects that all instances of a role fail together, again and again.
type CommonCause struct {
	times []time.Time // when all instances were down, within the window
	down  bool
}

// Record records at a time how many of a role's instances are starting or waiting for a restart,
// after an exit. It reports whether the role must be given up: all of its instances are down
// together for the second time in the window of its restarts.
func (c *CommonCause) Record(role *RolePlan, down int, at time.Time) bool {
	all := len(role.Instances)
	if all < minCommonInstances || down < all {
		c.down = c.down && down > 0
		return false
	}
	if c.down {
		return false // still the same time
	}
	c.down = true
	c.times = slices.DeleteFunc(c.times, func(earlier time.Time) bool { return at.Sub(earlier) > role.Restarts.Window })
	c.times = append(c.times, at)
	return len(c.times) > 1
}

// Pace limits how often something happens: at once as long as that was seldom so far, and otherwise once
// an interval. The zero value has never waited.
type Pace struct{ due time.Time }

// paceBurst is how often in succession it may happen at once.
const paceBurst = 8

// Wait returns how long to wait before it may happen, and counts it.
func (p *Pace) Wait(now time.Time, interval time.Duration) time.Duration {
	if p.due.Before(now) {
		p.due = now
	}
	wait := max(0, p.due.Sub(now)-(paceBurst-1)*interval)
	p.due = p.due.Add(interval)
	return wait
}

// Turn returns when in each interval it is the turn of one of many, such as the processes of a node whose
// probes are repeated. It spreads any number of consecutive ones evenly.
func Turn(number int, interval time.Duration) time.Duration {
	const goldenRatio = 0.6180339887498949
	_, part := math.Modf(float64(number) * goldenRatio)
	return time.Duration(part * float64(interval))
}
