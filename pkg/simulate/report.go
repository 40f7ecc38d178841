package simulate

import "time"

// ReportVersion is the version of the report's JSON form.
const ReportVersion = 1

// Report is the result of one call of bringupd simulate, as --json prints it. Durations are in
// nanoseconds, memory sizes in bytes.
type Report struct {
	Version int    `json:"v"`       // ReportVersion
	Program string `json:"program"` // version of this bringupd
	Host    string `json:"host"`    // host that ran the simulation
	Cores   int    `json:"cores"`   // number of cores for all daemons together
	Dir     string `json:"dir"`     // value of --dir
	Share   string `json:"share"`   // file system of Dir

	Latency time.Duration `json:"op_latency_ns"`
	Jitter  time.Duration `json:"latency_jitter_ns"`
	Rate    int           `json:"server_rate"` // calls per second; 0 means unlimited
	Skew    time.Duration `json:"start_skew_ns"`
	Peer    time.Duration `json:"peer_timeout_ns"`
	Dies    string        `json:"dies,omitempty"` // value of --death
	Ranks   int           `json:"ranks_per_node"` // 0 if there are no ranks

	RoleFile string `json:"config,omitempty"` // file with the roles; empty if there are none

	Runs []JobResult `json:"runs"` // one per number of nodes, in the given order
}

// JobResult is the result of one simulated job. Measurements that a failed run did not reach are
// zero.
type JobResult struct {
	Nodes     int         `json:"nodes"`
	Lifelines string      `json:"lifelines"`         // transport of the peer links
	Roles     *RoleCounts `json:"roles,omitempty"`   // nil if there are none
	Failure   *Failure    `json:"failure,omitempty"` // nil if the run succeeded

	// Gate is the time at which the head opened the gate, and Up the times at which the nodes reported
	// that they were up, both from the start of all daemons.
	Gate time.Duration              `json:"gate_ns"`
	Up   Percentiles[time.Duration] `json:"up_ns"`

	GateCalls
	Steady *SteadyLoad  `json:"steady"` // nil if not measured
	World  *WorldTiming `json:"world"`  // nil if there were no ranks
	End    OrderlyEnd   `json:"end"`    // measured from the head's request to end
	Death  *DeathResult `json:"death"`  // nil if no daemon died
	// calls of all nodes from the start to the end
	Whole   CallTotals `json:"whole_calls"`
	Machine MachineUse `json:"machine"`
	CallChains
}

// CallChains has the calls into the shared file system that waited for each other, if they were
// traced: from the start until the gate opened, and from the head's request to end until the last
// daemon had ended.
type CallChains struct {
	ChainToGate []TracedCall `json:"chain_to_gate,omitempty"`
	ChainToEnd  []TracedCall `json:"chain_to_end,omitempty"`
}

// GateCalls has the calls into the shared file system until the gate opened.
type GateCalls struct {
	// calls of each worker, from its start until it reported that it was up
	Worker CallDistribution `json:"worker_calls"`
	// WorkerToGate has the calls of each worker, from its start until the gate opened.
	WorkerToGate Percentiles[int64] `json:"worker_calls_to_gate"`
	Head         CallTotals         `json:"head_calls"` // calls of the head until the gate opened
	ToGate       CallTotals         `json:"calls"`      // calls of all nodes until the gate opened
	// calls of all nodes per second in the busiest tenth of a second before the gate opened
	Peak int64 `json:"peak_rate"`
}

// Failure describes why a run failed.
type Failure struct {
	Code  int         `json:"code"`  // exit code of the job
	Word  string      `json:"word"`  // short name of the exit code
	Why   string      `json:"why"`   // the first cause
	Codes map[int]int `json:"codes"` // number of daemons by exit code
}

// CallDistribution has the distribution over many nodes of their calls into the shared file system.
type CallDistribution struct {
	Calls  Percentiles[int64]            `json:"calls"`
	ByKind map[string]Percentiles[int64] `json:"by_kind"`
}

// CallTotals counts calls into the shared file system.
type CallTotals struct {
	Calls  int64            `json:"calls"`
	ByKind map[string]int64 `json:"by_kind"`
}

// SteadyLoad is the load on the shared file system from a job that is up, without any events.
type SteadyLoad struct {
	For    time.Duration `json:"for_ns"`      // duration of the measurement
	Worker float64       `json:"worker_rate"` // calls per second of one worker, on average
	Head   float64       `json:"head_rate"`   // calls per second of the head
	All    float64       `json:"rate"`        // calls per second of all nodes
}

// WorldTiming has the timing of the fences of a job's ranks. Each rank put a value before each
// fence.
type WorldTiming struct {
	Ranks  int `json:"ranks_per_node"`
	Fences int `json:"fences"`
	// from the gate until the last rank had left the last fence
	Met time.Duration `json:"met_ns"`
	// all ranks and fences, from entering to leaving
	Fence Percentiles[time.Duration] `json:"fence_ns"`
	Calls CallTotals                 `json:"calls"` // calls of all nodes during Met
}

// OrderlyEnd is the orderly end, as after a driver.
type OrderlyEnd struct {
	Took  time.Duration `json:"took_ns"` // from the head's request until the last daemon had ended
	Calls int64         `json:"calls"`   // calls of all nodes
	Peak  int64         `json:"peak_rate"`
}

// DeathResult is the end of a job after one of its daemons died, as by kill -9.
type DeathResult struct {
	Rank int `json:"rank"` // node index of the daemon that died
	// from its death until each other daemon returned
	Took Percentiles[time.Duration] `json:"took_ns"`
	// kind of the first cause, as the other daemons determined it
	Kind  string `json:"kind"`
	Why   string `json:"why"`   // the first cause as a sentence
	Calls int64  `json:"calls"` // calls of all nodes after the death
	Peak  int64  `json:"peak_rate"`
	// Processor is the processor time that the end took, and Busy the fraction of all cores. A
	// fraction near 1 means that this machine limited the speed.
	Processor time.Duration `json:"processor_ns"`
	Busy      float64       `json:"busy"`
}

// MachineUse has the resources of this machine that all daemons together used.
type MachineUse struct {
	Memory     int64 `json:"peak_rss"`  // peak resident size of the process
	Heap       int64 `json:"peak_heap"` // peak size of Go's heap, which is part of Memory
	Goroutines int64 `json:"peak_goroutines"`
	// Processor is the processor time until the gate opened, and Busy the fraction of all cores. A
	// fraction near 1 means that this machine limited the speed, not the shared file system: real
	// nodes have processors of their own.
	Processor time.Duration `json:"processor_to_gate_ns"`
	Busy      float64       `json:"busy_to_gate"`
	// Others is the fraction of the machine that other processes used until then.
	Others float64 `json:"others_to_gate"`
}
