package simulate

import "time"

// ReportVersion is the version of the form of --json.
const ReportVersion = 1

// Report is what one call of bringupd simulate has found: the form of --json.
// Times are in nanoseconds, memory in bytes.
type Report struct {
	Version int    `json:"v"`       // of this form
	Program string `json:"program"` // version of this bringupd
	Host    string `json:"host"`    // where it ran
	Cores   int    `json:"cores"`   // that all daemons together could use
	Dir     string `json:"dir"`     // as --dir
	Share   string `json:"share"`   // what it lies on

	Latency time.Duration `json:"op_latency_ns"`
	Jitter  time.Duration `json:"latency_jitter_ns"`
	Rate    int           `json:"server_rate"` // calls a second; 0: no bound
	Skew    time.Duration `json:"start_skew_ns"`
	Peer    time.Duration `json:"peer_timeout_ns"`
	Dies    string        `json:"dies,omitempty"` // whose daemon, as --death
	Ranks   int           `json:"ranks_per_node"` // 0: none

	Runs []Run `json:"runs"` // by the numbers of nodes, as given
}

// Run is one simulated job. What a run that failed did not reach is zero.
type Run struct {
	Nodes     int      `json:"nodes"`
	Lifelines string   `json:"lifelines"`         // what they were held over
	Failure   *Failure `json:"failure,omitempty"` // nil: it went well

	// Gate is when the head opened the gate, and Up when each node had said
	// that it was up, both from the start of all.
	Gate time.Duration         `json:"gate_ns"`
	Up   Spread[time.Duration] `json:"up_ns"`

	// of each worker, from its start until it had said that it was up
	Worker Calls `json:"worker_calls"`
	// WorkerToGate is of each worker, from its start to the open gate.
	WorkerToGate Spread[int64] `json:"worker_calls_to_gate"`
	Head         Tally         `json:"head_calls"` // of the head, to the gate
	ToGate       Tally         `json:"calls"`      // of all nodes, to the gate
	// of all nodes to the gate: calls a second in the busiest tenth of one
	Peak    int64   `json:"peak_rate"`
	Steady  *Steady `json:"steady"`      // nil: not measured
	World   *World  `json:"world"`       // nil: there were no ranks
	End     End     `json:"end"`         // from the wish to leave
	Death   *Death  `json:"death"`       // nil: nobody died
	Whole   Tally   `json:"whole_calls"` // of all nodes, from the start to the end
	Machine Machine `json:"machine"`
}

// Failure is why a run failed.
type Failure struct {
	Code  int         `json:"code"`  // that the job would have ended with
	Word  string      `json:"word"`  // the same as a word
	Why   string      `json:"why"`   // the first cause
	Codes map[int]int `json:"codes"` // how many daemons ended with which code
}

// Calls are the calls of each of many nodes into the share.
type Calls struct {
	Calls  Spread[int64]            `json:"calls"`
	ByKind map[string]Spread[int64] `json:"by_kind"`
}

// Tally counts calls into the share.
type Tally struct {
	Calls  int64            `json:"calls"`
	ByKind map[string]int64 `json:"by_kind"`
}

// Steady is what a job asks of the share that is up and has nothing to tell.
type Steady struct {
	For    time.Duration `json:"for_ns"`      // for so long it was measured
	Worker float64       `json:"worker_rate"` // calls a second of one worker, on average
	Head   float64       `json:"head_rate"`   // calls a second of the head
	All    float64       `json:"rate"`        // calls a second of all nodes
}

// World is how the ranks of a job met, each of which put a value before each fence.
type World struct {
	Ranks  int `json:"ranks_per_node"`
	Fences int `json:"fences"`
	// from the gate until the last rank had left the last fence
	Met   time.Duration         `json:"met_ns"`
	Fence Spread[time.Duration] `json:"fence_ns"` // of all ranks and fences: from entering to leaving
	Calls Tally                 `json:"calls"`    // of all nodes, from the gate until then
}

// End is the orderly end, as after a driver.
type End struct {
	Took  time.Duration `json:"took_ns"` // from the head's wish until the last daemon had gone
	Calls int64         `json:"calls"`   // of all nodes
	Peak  int64         `json:"peak_rate"`
}

// Death is the end of a job that one daemon's death has brought, as by kill -9.
type Death struct {
	Rank  int                   `json:"rank"`    // that died
	Took  Spread[time.Duration] `json:"took_ns"` // from its death to the return of each other daemon
	Kind  string                `json:"kind"`    // of the first cause, as the others have found it
	Why   string                `json:"why"`     // the same as a sentence
	Calls int64                 `json:"calls"`   // of all nodes, from the death on
	Peak  int64                 `json:"peak_rate"`
	// Processor is the time of all cores that it took, and Busy which part of
	// them that was: near 1, it is this machine that was waited for.
	Processor time.Duration `json:"processor_ns"`
	Busy      float64       `json:"busy"`
}

// Machine is what all daemons together took of this one.
type Machine struct {
	Memory     int64 `json:"peak_rss"`  // the largest that the process was
	Heap       int64 `json:"peak_heap"` // of it, Go's heap
	Goroutines int64 `json:"peak_goroutines"`
	// Processor is the time of all cores to the gate, and Busy which part of
	// them that was. Near 1, it is this machine that the job waited for, and
	// not the share: real nodes have processors of their own.
	Processor time.Duration `json:"processor_to_gate_ns"`
	Busy      float64       `json:"busy_to_gate"`
	// Others is which part of the machine other processes took until then.
	Others float64 `json:"others_to_gate"`
}
