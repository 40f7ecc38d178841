package record

// State is a state of a node, as published by a name in the run directory. Package signal puts it
// into the name: it is the second part.
type State string

// The states of a node.
const (
	StateJoined       State = "joined"  // the daemon has read the job record and can write
	StateChecked      State = "checked" // the node's own checks have passed; see CheckedName
	StateSandboxReady State = "sandbox" // the node's sandbox is ready
	StateServiceUp    State = "up"      // the node's service is up
	StateFailed       State = "failed"  // the node has seen a failure; the record has the cause
	// StateSandboxFailed is like StateFailed, for the node's sandbox: the run may go on without it.
	StateSandboxFailed State = "sandbox-failed"
	// StateHeartbeat is the state in the names of heartbeats, also of those of the head in ControlDir.
	// The third part of the name is the number of the heartbeat.
	StateHeartbeat State = "beat"
	StateSlots     State = "slots" // the third part is the number of ranks that the node can have
	// the node's ranks are idle if the third part is odd, and active again otherwise
	StateIdle State = "idle"
	// the node's slowest rank has reached a step; see StepName
	StateStep     State = "step"
	StateOffer    State = "offer"    // the node offers resources for roles, for a plan or another one
	StateAccepted State = "accepted" // the plan that the head has assumed is right for the node
	StateDone     State = "done"     // no process of the daemon is left on the node
	// an event of the node that did not end the run; the third part is the event's number
	StateEvent State = "event"
)

// Kind is the kind of a failure. Package health defines the kinds, and the exit code of each.
type Kind string

// Phase is a phase of a daemon's sequence.
type Phase string

// The phases, in the order of the sequence. Not every job has all of them.
const (
	PhaseJoin    Phase = "join"
	PhaseCheck   Phase = "check"
	PhaseSandbox Phase = "sandbox"
	PhaseHead    Phase = "head"    // the head's service starts
	PhaseWorkers Phase = "workers" // the workers' services start
	PhaseGate    Phase = "gate"
	PhaseStandby Phase = "stand-by" // a spare node's
	PhaseDriver  Phase = "driver"
	PhaseEnd     Phase = "drain"
)

// InstanceState is a state of the processes of an instance on a node.
type InstanceState string

// The states of an instance on a node.
const (
	// InstanceHead is published by the first node of a cluster: the head's service is up.
	InstanceHead    InstanceState = "head"
	InstanceReady   InstanceState = "ready"
	InstanceUnready InstanceState = "unready" // its probe fails again
	InstanceExited  InstanceState = "exited"  // a process has exited that should not; the record has the cause
	InstanceDone    InstanceState = "done"    // all processes have ended with 0, as they should
	InstanceStopped InstanceState = "stopped" // all processes have been stopped
)

// HasEnded reports whether no process of an instance is left on a node in this state.
func (s InstanceState) HasEnded() bool {
	return s == InstanceDone || s == InstanceStopped || s == InstanceExited
}

// InstanceMark is the information in the name of a record about an instance of a role: on a node,
// its processes of a generation have reached a state.
type InstanceMark struct {
	Node, Instance, Generation int
	State                      InstanceState
	// Change is the number of the mark among those of the generation on the node: 0 for the first, and
	// a higher one for each change of readiness. The end of the processes counts whatever its number.
	Change int
}
