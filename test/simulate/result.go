package simulate

import "time"

// Result is the result of one simulated job. Durations are in nanoseconds, memory sizes in bytes.
// Measurements that a failed job did not reach are zero.
type Result struct {
	Nodes   int
	Roles   RoleCounts
	Failure string // why the job failed; empty if it did not

	// Gate is the time at which the head opened the gate, and Up the times at which the nodes reported
	// that they were up, both from the start of all daemons.
	Gate time.Duration
	Up   Percentiles[time.Duration]

	Calls GateCalls
	World *WorldTiming // nil if there were no ranks
	// End is the time from the head's request to end until the last daemon had ended, and Whole the
	// calls of all nodes from the start to the end.
	End     time.Duration
	Whole   CallTotals
	Machine MachineUse
	// ChainToGate and ChainToEnd have the calls that waited for each other, if they were traced: until
	// the gate opened, and from the head's request to end until the last daemon had ended.
	ChainToGate, ChainToEnd []TracedCall `json:",omitempty"`
}

// GateCalls has the calls into the shared file system until the gate opened.
type GateCalls struct {
	// Worker has the calls of each worker until it reported that it was up, WorkerReads those that
	// read a record, and WorkerToGate the calls of each worker until the gate opened.
	Worker, WorkerReads, WorkerToGate Percentiles[int64]
	Head, All                         CallTotals
	// Peak is the number of calls of all nodes per second in the busiest tenth of a second.
	Peak int64
}

// CallTotals counts calls into the shared file system.
type CallTotals struct {
	Calls  int64
	ByKind map[string]int64
}

// WorldTiming has the timing of the fences of a job's ranks.
type WorldTiming struct {
	// Met is the time from the gate until the last rank had left the last fence, Fence that of all
	// ranks and fences from entering to leaving, and Calls has the calls of all nodes during Met.
	Met   time.Duration
	Fence Percentiles[time.Duration]
	Calls CallTotals
}

// MachineUse has the resources of this machine that all daemons together used: the peak resident
// size, and the processor time until the gate opened, in itself and as a fraction of all cores. A
// fraction near 1 means that this machine limited the speed, not the shared file system: real nodes
// have processors of their own.
type MachineUse struct {
	Memory    int64
	Processor time.Duration
	Busy      float64
}
