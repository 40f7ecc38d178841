// Package record defines the records of a run directory: what the daemons of a run publish for each
// other and for observers. Package signal writes and reads them.
package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// FormatVersion is the version of the format of all records but the result. All daemons of a run
	// have the same, and readers refuse any other one.
	FormatVersion = 2
	// ResultVersion is that of result.json, whose keys scripts and the Python package read.
	ResultVersion = 1
)

// VersionOf returns the version that a record has if this program writes it.
func VersionOf(rec Record) int {
	if _, is := rec.(*Result); is {
		return ResultVersion
	}
	return FormatVersion
}

// VersionError reports a record of another version of the format.
type VersionError struct{ Version, Supported int }

// Error says which versions there are, and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("cannot read a record of format version %d: this bringupd supports version %d; "+
		"use the bringupd that made the run, the same on all nodes", e.Version, e.Supported)
}

// Header is the beginning of every record: its attempt and its writer.
// Its keys, and those of [Failure], [Event] and [DroppedNode], are also keys of result.json, whose
// names do not change.
type Header struct {
	Version   int       `json:"v"`
	Nonce     string    `json:"nonce"` // random, chosen by the head for this attempt
	NodeIndex int       `json:"rank"`
	Host      string    `json:"host"`
	WrittenAt time.Time `json:"at"` // the writer's wall clock, for information only
}

// RecordHeader returns h.
func (h *Header) RecordHeader() *Header { return h }

// Record is a type with a Header that can be published.
type Record interface{ RecordHeader() *Header }

// HeaderOf returns the header of a record; its version is 0 if it was not read.
func HeaderOf(rec Record) Header { return *rec.RecordHeader() }

// Job describes the attempt: what every daemon must know to take part in it.
type Job struct {
	Header
	Run            string   `json:"run"`             // the run directory's name
	Key            string   `json:"key"`             // digest of facts that all nodes of the launch share
	Size           int      `json:"size"`            // number of nodes
	ConfigDigest   string   `json:"config_digest"`   // the configuration's, the same on all nodes
	Addresses      []string `json:"addresses"`       // the head's addresses, best first
	ProgramVersion string   `json:"program_version"` // version of the head's bringupd
	PID            int      `json:"pid"`
	// Hosts are the hosts of all nodes in order, as a node list. It is empty if the launcher does not
	// provide them.
	Hosts string `json:"hosts,omitempty"`
	Launch
	// FileSystem is the file system of the log directory, as the head sees it.
	FileSystem string `json:"file_system"`
	// Steps are the names of the further job steps whose daemons start roles or sandboxes, in the order
	// of their numbers. See [MemberIndex].
	Steps []string `json:"steps,omitempty"`
	// LinkAddresses has the head's addresses for peer links, best first. It is empty if there are
	// none.
	LinkAddresses []string `json:"link_addresses,omitempty"`
	// HasEarlyPlan reports that the run directory has appeared with a plan of the roles.
	HasEarlyPlan bool `json:"has_early_plan,omitempty"`
	// Plan is for observers outside of the job.
	Plan *Plan `json:"plan,omitempty"`
}

// HasChecks reports whether the nodes have checks, before which nothing starts there. j may be nil.
func (j *Job) HasChecks() bool { return j != nil && j.Plan != nil && j.Plan.CheckTimeout > 0 }

// Launch has the program that started the daemons, and the job's names there.
type Launch struct {
	Launcher string `json:"launcher,omitempty"`
	LaunchID string `json:"launch_id,omitempty"` // the name in the names of its runs
	// LaunchAliases are other names, such as 50_1 for an element of a Slurm array.
	LaunchAliases []string `json:"launch_aliases,omitempty"`
}

// Plan describes what the job will do. No daemon reads it.
type Plan struct {
	Framework string `json:"framework"`
	// JoinTimeout is how long after the head's start the nodes may join, and CheckTimeout how long the
	// checks of a node may take after that; 0: there are none.
	JoinTimeout  time.Duration `json:"join_timeout_ns"`
	CheckTimeout time.Duration `json:"check_timeout_ns,omitempty"`
	// NodesNeeded is the number of nodes that the driver needs. It is smaller than the number of nodes
	// if there are spares.
	NodesNeeded int `json:"nodes_needed"`
	// Driver is the first word of the driver, without its directory.
	Driver string `json:"driver,omitempty"`
	// Roles are the names of the roles, in the order of their file, at most 64.
	Roles []string `json:"roles,omitempty"`
	// Command is the driver with its arguments, as a shell would accept it, and Flags are the settings
	// that are not defaults. Both are shortened, and have no secrets. JobName is the user's name of
	// the job at its launcher.
	Command string   `json:"command,omitempty"`
	Flags   []string `json:"flags,omitempty"`
	JobName string   `json:"job_name,omitempty"`
	// HasRanks reports that the driver runs as ranks on all nodes.
	HasRanks bool `json:"has_ranks,omitempty"`
	// MaxHeartbeatInterval is the maximum heartbeat interval of a healthy head.
	MaxHeartbeatInterval time.Duration `json:"max_heartbeat_interval_ns,omitempty"`
}

// Joined reports that a node has joined. It repeats the job's nonce, which proves that its writer has
// read the job record and can write.
type Joined struct {
	Header
	JobNonce       string `json:"job_nonce"` // the job's nonce
	Address        string `json:"address,omitempty"`
	PID            int    `json:"pid"`
	ProgramVersion string `json:"program_version"`
	// TimeToAnswer is the time from when the daemon saw the run directory until this record.
	TimeToAnswer time.Duration `json:"time_to_answer_ns"`
}

// Mark is a record whose name has all information.
type Mark struct {
	Header
}

// StopRequest is a request from outside for the orderly end.
type StopRequest struct {
	Header
	// LastChange is when a daemon last changed names in the run directory, by the server's clock: the
	// request itself is no sign of life.
	LastChange time.Time `json:"last_change"`
}

// Checked has the results of a node's checks.
type Checked struct {
	Header
	// report of pkg/check; empty if there were no checks
	Report json.RawMessage `json:"report,omitempty"`
}

// Event is an event of a node that did not end the run, but may explain later failures.
type Event struct {
	Header
	Message string          `json:"what"`             // a sentence
	Detail  json.RawMessage `json:"detail,omitempty"` // pkg/gpu's event
	Count   int             `json:"times,omitempty"`  // if it occurred more than once
	Silence *Silence        `json:"silence,omitempty"`
}

// Silence is the event that a process has printed an error and nothing since or, without an error,
// that this is over.
type Silence struct {
	Child string        `json:"child"`
	Name  string        `json:"name"` // with that of its node
	Error string        `json:"error,omitempty"`
	Log   string        `json:"log,omitempty"`    // the log with its output, in LogsDir
	For   time.Duration `json:"for_ns,omitempty"` // the time since then
}

// Head reports that the head's service is up, and has its address.
type Head struct {
	Header
	Address string            `json:"address,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // for workers and the driver
	// Dashboard is the URL of its dashboard on the head's node.
	Dashboard string `json:"dashboard,omitempty"`
}

// DroppedNode is a node that was dropped because of a fault.
type DroppedNode struct {
	NodeIndex int    `json:"rank"`
	Host      string `json:"host,omitempty"`
	Reason    string `json:"why"`
}

// Failure is a cause, as seen by the node that saw it first.
type Failure struct {
	Header
	Kind    Kind   `json:"kind"`
	Phase   Phase  `json:"phase"`
	Message string `json:"what"`            // a sentence
	Child   string `json:"child,omitempty"` // the child that died
	// its exit code; without a child, 126 or 127 as in a shell
	Code   int    `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"` // or the signal that ended it
	ChildExit
	Log   string   `json:"log,omitempty"`   // the log with its output, in LogsDir
	Lines []string `json:"lines,omitempty"` // the last lines of the log
	// WorldRank is the rank of the world that has failed, or nil if the cause is not about a rank.
	// Header.NodeIndex is the node's index.
	WorldRank *WorldRank `json:"world_rank,omitempty"`
	// LostNodes are the indices of the nodes that this node has lost contact with.
	LostNodes []int `json:"lost,omitempty"`
	// ShareIsFull reports that the shared file system is full, which concerns all nodes.
	ShareIsFull bool `json:"share_full,omitempty"`
	// Report has the results of the node's checks, if one of them failed.
	Report json.RawMessage `json:"report,omitempty"`
	// RecordDelay is the time from the event until the record was written, on the writer's monotonic
	// clock, so that no clocks are compared.
	RecordDelay time.Duration `json:"age_ns,omitempty"`
	// SeenAt is the time of the event, from which RecordDelay is computed. It is zero in a record that
	// was read.
	SeenAt time.Time `json:"-"`
}

// FaultyNodes returns the nodes that the failure is about: those lost, or else the node itself.
func (f Failure) FaultyNodes() []int {
	if len(f.LostNodes) > 0 {
		return f.LostNodes
	}
	return []int{f.NodeIndex}
}

// ChildExit describes the end of a child, besides its code.
type ChildExit struct {
	// description of the end; empty if the child has not ended
	ExitText string     `json:"exit,omitempty"`
	OOM      *OOMReport `json:"oom,omitempty"` // set if the kernel killed processes meanwhile
	// ErrorLine is the line of its output that says why it has failed; empty if none does.
	ErrorLine string `json:"error,omitempty"`
}

// WorldRank is a rank of the world, with the information that users need to find it.
type WorldRank struct {
	Number int `json:"number"`
	// World is the instance of a role whose rank it is; empty in a run without roles.
	World string `json:"world,omitempty"`
	// indices of its GPUs on the node: "2" or "4-7"; empty if it has none of its own
	GPUs string `json:"gpus,omitempty"`
	// Symptom is the reason, from its last lines, why the failure looks like the consequence of
	// another one. It is empty if there is none.
	Symptom string `json:"symptom,omitempty"`
}

// String returns its name in messages: "rank 12", or "rank 12 of trainer.0".
func (w WorldRank) String() string {
	if w.World != "" {
		return fmt.Sprintf("rank %d of %s", w.Number, w.World)
	}
	return fmt.Sprintf("rank %d", w.Number)
}

// GPULabel returns its GPUs for messages: "GPU 2", "GPUs 4-7". It is empty if it has none.
func (w WorldRank) GPULabel() string {
	switch {
	case w.GPUs == "":
		return ""
	case strings.ContainsAny(w.GPUs, ",-"):
		return "GPUs " + w.GPUs
	default:
		return "GPU " + w.GPUs
	}
}

// OOMReport has the kernel's count of processes that it killed because memory ran out.
type OOMReport struct {
	Kills  int    `json:"kills"`
	Limit  int64  `json:"limit_bytes,omitempty"` // lowest one; 0: none, the machine's memory ran out
	Cgroup string `json:"cgroup"`                // directory of the cgroup
}

// RanksEnded describes how the ranks of a node have ended.
type RanksEnded struct {
	Header
	Exits []RankExit `json:"exits"`
}

// RankExit describes how a rank has ended.
type RankExit struct {
	Rank     int    `json:"rank"`      // number in the world
	Code     int    `json:"code"`      // 128+n if signal n has ended it
	ExitText string `json:"exit_text"` // description of the end
}

// Abort ends the run with a cause. It has the verdict and the job's exit code.
type Abort struct {
	Header
	Code    int     `json:"code"`
	Outcome string  `json:"outcome"`
	Cause   Failure `json:"cause"`
	// BadNodes are the hosts to avoid, if nodes have caused it.
	BadNodes []string `json:"bad_nodes,omitempty"`
	// NextAttempt is the number of the attempt that follows, or 0 if none does.
	NextAttempt int `json:"next_attempt,omitempty"`
}

// OrderlyEnd ends the run in an orderly way. If InspectTime is not 0, it only announces the
// end: services stay up for that time.
type OrderlyEnd struct {
	Header
	Code        int           `json:"code"` // the job's: the driver's own
	Reason      string        `json:"reason"`
	InspectTime time.Duration `json:"inspect_time_ns,omitempty"`
	// Requested reports that a stop was requested before the driver had ended.
	Requested bool `json:"requested,omitempty"`
}

// Done reports that no process of the daemon is left on the node.
type Done struct {
	Header
	LeftProcesses []string `json:"left_processes,omitempty"` // processes that could not be ended
	// Share are the statistics of the daemon's file system calls so far.
	Share *CallStats `json:"share,omitempty"`
}

// Result is the result of an attempt.
type Result struct {
	Header
	Run     string   `json:"run"`
	Size    int      `json:"size"`
	Code    int      `json:"code"`
	Outcome string   `json:"word"`
	Reason  string   `json:"why"`
	Cause   *Failure `json:"cause,omitempty"`
	FailureContext
	BadNodes []string `json:"bad_nodes,omitempty"`
	NodeLists
	RunTimings
	Share *FileSystemReport `json:"share,omitempty"`
	// Links is nil if there were no peer links.
	Links *LinkReport `json:"lifelines,omitempty"`
	// Progress is nil unless the program reports steps.
	Progress *Progress `json:"progress,omitempty"`
	Succession
}

// Succession has what follows this attempt, and what has preceded it.
type Succession struct {
	// Requeue is the decision about a requeue, if one was considered.
	Requeue *RequeueDecision `json:"requeue,omitempty"`
	// NextAttempt is the number of the attempt that follows within this launch, or 0 if none does.
	NextAttempt int `json:"next_attempt,omitempty"`
	// History is nil if the job is not restarted within its launch.
	History *RestartHistory `json:"restarts,omitempty"`
}

// Progress is the progress of a job over its attempts, as far as its program reports steps.
type Progress struct {
	Step    float64 `json:"step"`           // the newest of this attempt
	MaxStep float64 `json:"max_step"`       // the maximum of all attempts
	Rate    float64 `json:"rate,omitempty"` // steps per second
	// Goodput is Productive as a fraction of Elapsed: the part of the time in which the step advanced
	// beyond the maximum before.
	Goodput    float64       `json:"goodput"`
	Productive time.Duration `json:"productive_ns"`
	Elapsed    time.Duration `json:"elapsed_ns"`
	Reports    int64         `json:"reports"`           // number of steps that were reported
	Gained     bool          `json:"gained,omitempty"`  // this attempt has increased the maximum
	Stride     float64       `json:"stride,omitempty"`  // distance between the last two reports
	Lost       []LostSteps   `json:"lost,omitempty"`    // by restarts
	Slowest    *SlowestRank  `json:"slowest,omitempty"` // nil unless several ranks report steps
}

// LostSteps are the steps that a program has repeated after a restart: at the beginning of an
// attempt, or within one if it is an instance of a role.
type LostSteps struct {
	Attempt   int     `json:"attempt"`
	InAttempt bool    `json:"in_attempt,omitempty"`
	Reached   float64 `json:"reached"` // the maximum before the restart
	Resumed   float64 `json:"resumed"` // the first report after it
	Steps     float64 `json:"steps"`
}

// SlowestRank is the rank with the lowest step, and the median of all ranks or, with several nodes,
// of the slowest ranks of the nodes.
type SlowestRank struct {
	Rank int `json:"world_rank"` // -1 for the driver, and for the process of an instance that has only one
	// World is the instance of a role whose rank it is; empty in a run without roles.
	World     string  `json:"world,omitempty"`
	NodeIndex int     `json:"rank"`
	Step      float64 `json:"step"`
	Median    float64 `json:"median"`
	Count     int     `json:"of"` // number of ranks or nodes that are compared
}

// ProgressMark publishes the progress while the job runs.
type ProgressMark struct {
	Header
	Progress
}

// RestartHistory has the restarts of a job before an attempt, within this launch and within those
// before it was requeued.
type RestartHistory struct {
	Count int         `json:"count"`
	Times []time.Time `json:"at,omitempty"`
	// NodeFailures are the numbers of failures that were nodes' own, by their names.
	NodeFailures map[string]int `json:"node_failures,omitempty"`
	// Progress is that up to the previous attempt; nil if it is unknown.
	Progress *Progress `json:"progress,omitempty"`
}

// FailureContext has further facts about a failed attempt.
type FailureContext struct {
	// AtPhase is the phase of the sequence at the failure, and AfterGate how long the gate had been
	// open then, by the head's clock.
	AtPhase   Phase         `json:"at_phase,omitempty"`
	AfterGate time.Duration `json:"after_gate_ns,omitempty"`
	// ErrorLine is the line of the output of the cause, or of the driver, that says why it has
	// failed; empty if none does.
	ErrorLine string `json:"error,omitempty"`
	// Consequences are the other failures, without their last lines, as many as fit in a record.
	Consequences []Failure `json:"consequences,omitempty"`
	Advice       []string  `json:"advice,omitempty"` // recommended next steps
	// Events are events of nodes while the driver ran, which did not end the run.
	Events []Event `json:"events,omitempty"`
}

// NodeLists has the nodes that took part. Team are the indices of the driver's nodes, sorted by
// their place, if there were spares. Dropped are the nodes with a fault.
type NodeLists struct {
	Hosts   []string      `json:"hosts,omitempty"`
	Team    []int         `json:"team,omitempty"`
	Dropped []DroppedNode `json:"dropped,omitempty"`
}

// RunTimings has the durations of the attempt and of its phases.
type RunTimings struct {
	Duration time.Duration `json:"took_ns"` // from the start of the head
	// from the start of the head to the gate; 0 if it never opened
	TimeToGate     time.Duration   `json:"to_gate_ns"`
	ProgramVersion string          `json:"program"`          // version of bringupd
	Phases         []PhaseDuration `json:"phases,omitempty"` // phases of the head
}

// RequeueDecision is the decision about a requeue. It is made before the request to the launcher;
// the launcher's answer is in the log.
type RequeueDecision struct {
	Wanted bool   `json:"wanted"`
	Reason string `json:"why"`
}

// LinkReport has the head's statistics of peer links.
type LinkReport struct {
	// number of new connections of nodes that had been connected before
	Reconnects int `json:"reconnects"`
	// Rejected are the numbers of rejected connections, by the reason.
	Rejected map[string]int `json:"strangers,omitempty"`
}

// FileSystemReport has the head's statistics of the file system. Those of the other nodes are in
// their records of StateDone.
type FileSystemReport struct {
	Head CallStats `json:"head"` // the head's calls until the result was written
}

// PhaseDuration is the duration of a phase on the reporting node.
type PhaseDuration struct {
	Phase Phase         `json:"phase"`
	Took  time.Duration `json:"took_ns"`
}

// SlowCall is a call and its duration.
type SlowCall struct {
	Op   string        `json:"op"`
	Path string        `json:"path"`
	Took time.Duration `json:"took_ns"`
	// Pending reports that it has not returned yet: then it may be several calls.
	Pending bool `json:"pending,omitempty"`
}

// CallStats are the statistics of a daemon's file system calls.
type CallStats struct {
	Calls   int64            `json:"calls"`
	ByKind  map[string]int64 `json:"by_kind"`
	Retries int64            `json:"retries"` // polls, reads and renames that were repeated
	Busy    time.Duration    `json:"busy_ns"` // total duration of all calls that have returned
	Slowest SlowCall         `json:"slowest"`
}
