package health

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Kind is the kind of a failure. It determines the job's exit code.
type Kind = record.Kind

// The kinds of failures. The first group are causes; the second are consequences, over which causes
// have precedence.
const (
	Usage         Kind = "usage"
	Launch        Kind = "launch"
	ShareUnusable Kind = "share"
	Internal      Kind = "internal"
	CheckFailed   Kind = "check"
	// CheckUser is a failed check that no other node would pass either, because of the job's
	// requirements.
	CheckUser Kind = "check-user"
	// CheckEnvironment is a failed check that the job's settings or its image may have caused. Weigh
	// replaces it by CheckFailed or CheckUser, according to the records of the other nodes.
	CheckEnvironment Kind = "check-environment"
	// NodesDiffer is reported by the head about nodes that pass their checks: it lists those that
	// differ from the majority, or none if there is no majority.
	NodesDiffer   Kind = "nodes-differ"
	GPUFailed     Kind = "gpu" // a GPU that has failed while the driver ran
	SetupFailed   Kind = "setup"
	SandboxDied   Kind = "sandbox"
	ServiceDied   Kind = "service"
	NotExecutable Kind = "driver-not-executable"
	NotFound      Kind = "driver-not-found"
	Interrupted   Kind = "interrupted"
	// Signalled is a rank, or a process of a primary role, that a signal has ended which the job got
	// and passed on, such as SIGHUP. The job has its exit code.
	Signalled Kind = "signalled"
	// RankFailed is a rank of the world that has not ended with 0, and RankAborted one that has
	// requested the end of the job. The job has their exit code.
	RankFailed  Kind = "rank"
	RankAborted Kind = "rank-aborted"
	// DriverFailed is a driver or a process of a primary role that has not ended with 0. The job has
	// its exit code. The failure of a driver is recorded only in a job that is restarted after that.
	DriverFailed Kind = "driver"

	// The losses of a peer with evidence besides its silence: its kernel has closed its connection, or
	// does not answer any more, or answers although the daemon does not; or the other nodes cannot
	// reach this one.
	DaemonDied Kind = "daemon-died"
	HostLost   Kind = "host-lost"
	HostHangs  Kind = "host-hangs"
	CutOff     Kind = "cut-off"

	// NotReturned is the loss of a peer in an earlier attempt that has not returned.
	NotReturned Kind = "not-back"

	DeadlinePassed Kind = "deadline"
	// JobDeadlinePassed is the deadline of the whole job, with the driver's grace period.
	JobDeadlinePassed Kind = "time-up"
	Terminated        Kind = "terminated"
	PeerLost          Kind = "peer-lost" // a loss whose only evidence is the absence of heartbeat files
	Aborted           Kind = "aborted"
	// RequeuesExhausted ends a job that has reached the maximum number of requeues.
	RequeuesExhausted Kind = "gave-up"
)

// Outcome is one row of the table of exit codes.
type Outcome struct {
	Code    int
	Name    string // in result.json
	Meaning string
	Requeue Requeue
}

// Requeue states whether it can help to requeue the same job.
type Requeue string

// The values of Requeue in the table.
const (
	RequeueNo          Requeue = "no"
	RequeueYes         Requeue = "yes"
	RequeueElsewhere   Requeue = "yes, elsewhere" // not on the failed nodes
	RequeueUserDecides Requeue = "your call"
)

// StoppedOutcome is the outcome if the run was stopped while its driver, or a primary role, neither
// ran nor had ended. If it ran, the exit code is its own.
var StoppedOutcome = Outcome{143, "stopped",
	"bringupd stop, before the driver or a primary role has run", RequeueUserDecides}

// DriverOutcomeName is the word of the outcome if the driver has ended: the exit code is its own.
const DriverOutcomeName = "driver"

// RankOutcome is the outcome if a rank of the world failed first, or requested the end. The exit
// code is the rank's: see OutcomeOfCause.
var RankOutcome = Outcome{0, "rank", "a rank of the world failed first (128+n where signal n ended " +
	"it), or aborted the job with this code", RequeueUserDecides}

func isRankKind(kind Kind) bool { return kind == RankFailed || kind == RankAborted }

// exitCodeTable is the only map from kinds to exit codes; 0 is that of the cause: see
// [OutcomeOfCause]. Codes from 64 to 77 are those of BSD's sysexits.h if one fits.
var exitCodeTable = []struct {
	kinds []Kind
	Outcome
}{
	{[]Kind{RankFailed, RankAborted}, RankOutcome},
	{[]Kind{DriverFailed}, Outcome{0, DriverOutcomeName, "the driver ran and ended", RequeueUserDecides}},
	{[]Kind{Signalled}, Outcome{0, "terminated", "ended by a signal", RequeueUserDecides}},
	{[]Kind{Usage}, Outcome{64, "usage", "the command line or the configuration is wrong", RequeueNo}},
	{[]Kind{Launch, CheckUser, CheckEnvironment},
		Outcome{65, "launch", "the launch is wrong (tasks and nodes do not match, not under srun, " +
			"no node meets the requirements, …)", RequeueNo}},
	{[]Kind{ShareUnusable}, Outcome{66, "share",
		"the log directory is unusable: not shared, not writable, not the user's own, too slow", RequeueNo}},
	{[]Kind{RequeuesExhausted}, Outcome{69, "gave-up",
		"the job was requeued --max-requeues times and failed again", RequeueNo}},
	{[]Kind{Internal}, Outcome{70, "internal", "an internal error", RequeueNo}},
	{[]Kind{CheckFailed, NodesDiffer, GPUFailed},
		Outcome{75, "check", "a node failed its check, or one of its GPUs failed", RequeueElsewhere}},
	{[]Kind{PeerLost, DaemonDied, HostLost, HostHangs, CutOff, NotReturned, Aborted},
		Outcome{76, "peer-lost", "a peer was lost", RequeueYes}},
	{[]Kind{SandboxDied, ServiceDied, SetupFailed},
		Outcome{77, "service", "a setup command failed, or a sandbox or a service did not become " +
			"ready, or died", RequeueNo}},
	{[]Kind{DeadlinePassed, JobDeadlinePassed},
		Outcome{124, "deadline", "a deadline passed without a known cause", RequeueNo}},
	{[]Kind{NotExecutable}, Outcome{126, "driver-not-executable", "the driver is not executable", RequeueNo}},
	{[]Kind{NotFound}, Outcome{127, "driver-not-found", "the driver was not found", RequeueNo}},
	{[]Kind{Interrupted}, Outcome{130, "interrupted", "ended by SIGINT", RequeueUserDecides}},
	{[]Kind{Terminated}, Outcome{143, "terminated", "ended by SIGTERM", RequeueUserDecides}},
	{nil, StoppedOutcome},
}

// OutcomeOfKind returns the outcome of a failure of this kind. An unknown kind is an internal
// error.
func OutcomeOfKind(kind Kind) Outcome {
	for _, row := range exitCodeTable {
		if slices.Contains(row.kinds, kind) {
			return row.Outcome
		}
	}
	return OutcomeOfKind(Internal)
}

// OutcomeOfCause returns the outcome of a job with this cause.
func OutcomeOfCause(cause record.Failure) Outcome {
	outcome := OutcomeOfKind(cause.Kind)
	if outcome.Code == 0 {
		outcome.Code = rankExitCode(cause)
	}
	return outcome
}

// OutcomeTable returns the table, sorted by code, without the driver's own code and that of a rank.
func OutcomeTable() (all []Outcome) {
	for _, row := range exitCodeTable {
		if row.Code != 0 {
			all = append(all, row.Outcome)
		}
	}
	return all
}

// AllKinds returns all kinds with an outcome.
func AllKinds() (kinds []Kind) {
	for _, row := range exitCodeTable {
		kinds = append(kinds, row.kinds...)
	}
	return kinds
}
