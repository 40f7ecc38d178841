package health

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Kind is the kind of a failure. It determines the job's exit code.
type Kind string

// The kinds of failures. The first group are causes; the second are consequences, over which causes
// have precedence.
const (
	Usage    Kind = "usage"
	Launch   Kind = "launch"
	Share    Kind = "share"
	Internal Kind = "internal"
	Check    Kind = "check"
	// CheckUser is a failed check that no other node would pass either, because of the job's
	// requirements.
	CheckUser Kind = "check-user"
	// CheckEnvironment is a failed check that the job's settings or its image may have caused. Weigh
	// replaces it by Check or CheckUser, according to the records of the other nodes.
	CheckEnvironment Kind = "check-environment"
	// NodesDiffer is reported by the head about nodes that pass their checks: it lists those that
	// differ from the majority, or none if there is no majority.
	NodesDiffer Kind = "nodes-differ"
	// GPUFailed is a GPU that has failed while the driver ran.
	GPUFailed     Kind = "gpu"
	Setup         Kind = "setup"
	SandboxDied   Kind = "sandbox"
	ServiceDied   Kind = "service"
	NotExecutable Kind = "driver-not-executable"
	NotFound      Kind = "driver-not-found"
	Interrupted   Kind = "interrupted"
	// RankFailed is a rank of the world that has not ended with 0, and RankAborted one that has
	// requested the end of the job. The job has their exit code.
	RankFailed  Kind = "rank"
	RankAborted Kind = "rank-aborted"

	// The losses of a peer with evidence besides its silence: its kernel has closed its connection, or
	// does not answer any more, or answers although the daemon does not; or the other nodes cannot
	// reach this one.
	DaemonDied Kind = "daemon-died"
	HostLost   Kind = "host-lost"
	HostHangs  Kind = "host-hangs"
	CutOff     Kind = "cut-off"

	// NotBack is the loss of a peer in an earlier attempt that has not returned.
	NotBack Kind = "not-back"

	Deadline Kind = "deadline"
	// TimeUp is the deadline of the whole job, with the driver's grace period.
	TimeUp     Kind = "time-up"
	Terminated Kind = "terminated"
	// PeerLost is a loss whose only evidence is the absence of heartbeat files.
	PeerLost Kind = "peer-lost"
	Aborted  Kind = "aborted"
	// GaveUp ends a job that has reached the maximum number of requeues.
	GaveUp Kind = "gave-up"
)

// Outcome is one row of the table of exit codes.
type Outcome struct {
	Code    int
	Word    string // in result.json
	Meaning string
	Requeue Requeue
}

// Requeue states whether it can help to requeue the same job.
type Requeue string

// The values of Requeue in the table.
const (
	RequeueNo        Requeue = "no"
	RequeueYes       Requeue = "yes"
	RequeueElsewhere Requeue = "yes, elsewhere" // not on the failed nodes
	RequeueYourCall  Requeue = "your call"
)

// Driven is the word of the outcome if the driver has ended: the exit code is its own.
const Driven = "driver"

// OfRank is the outcome if a rank of the world failed first, or requested the end. The exit code is
// the rank's: see OutcomeBy.
var OfRank = Outcome{0, "rank", "a rank of the world failed first (128+n where signal n ended it), or aborted the job with this code", RequeueYourCall}

func ofRank(kind Kind) bool { return kind == RankFailed || kind == RankAborted }

// outcomes is the only map from kinds to exit codes. Codes from 64 to 77 are those of BSD's
// sysexits.h if one fits.
var outcomes = []struct {
	kinds []Kind
	Outcome
}{
	{[]Kind{Usage}, Outcome{64, "usage", "the command line or the configuration is wrong", RequeueNo}},
	{[]Kind{Launch, CheckUser, CheckEnvironment}, Outcome{65, "launch", "the launch is wrong (tasks and nodes don't match, not under srun, no node has what is asked for, …)", RequeueNo}},
	{[]Kind{Share}, Outcome{66, "share", "the log directory is unusable: not shared, not writable, not ours, too slow", RequeueNo}},
	{[]Kind{GaveUp}, Outcome{69, "gave-up", "the job has failed as often as it may be requeued", RequeueNo}},
	{[]Kind{Internal}, Outcome{70, "internal", "an internal error", RequeueNo}},
	{[]Kind{Check, NodesDiffer, GPUFailed}, Outcome{75, "check", "a node failed its check, or one of its GPUs failed", RequeueElsewhere}},
	{[]Kind{PeerLost, DaemonDied, HostLost, HostHangs, CutOff, NotBack, Aborted}, Outcome{76, "peer-lost", "a peer was lost", RequeueYes}},
	{[]Kind{SandboxDied, ServiceDied, Setup}, Outcome{77, "service", "a setup command failed, or a sandbox or a service did not become ready, or died", RequeueNo}},
	{[]Kind{Deadline, TimeUp}, Outcome{124, "deadline", "a deadline passed with nobody to blame", RequeueNo}},
	{[]Kind{NotExecutable}, Outcome{126, "driver-not-executable", "the driver is not executable", RequeueNo}},
	{[]Kind{NotFound}, Outcome{127, "driver-not-found", "the driver was not found", RequeueNo}},
	{[]Kind{Interrupted}, Outcome{130, "interrupted", "ended by SIGINT", RequeueYourCall}},
	{[]Kind{Terminated}, Outcome{143, "terminated", "ended by SIGTERM", RequeueYourCall}},
}

// OutcomeOf returns the outcome of a failure of this kind. An unknown kind is an internal error.
func OutcomeOf(kind Kind) Outcome {
	if ofRank(kind) {
		return OfRank
	}
	for _, row := range outcomes {
		if slices.Contains(row.kinds, kind) {
			return row.Outcome
		}
	}
	return OutcomeOf(Internal)
}

// OutcomeBy returns the outcome of a job with this cause.
func OutcomeBy(cause signal.FailedRecord) Outcome {
	outcome := OutcomeOf(Kind(cause.Kind))
	if outcome == OfRank {
		outcome.Code = rankCode(cause)
	}
	return outcome
}

// Outcomes returns the table, sorted by code, without the driver's own code and that of a rank.
func Outcomes() []Outcome {
	var all []Outcome
	for _, row := range outcomes {
		all = append(all, row.Outcome)
	}
	return all
}

// Kinds returns all kinds with an outcome.
func Kinds() []Kind {
	kinds := []Kind{RankFailed, RankAborted}
	for _, row := range outcomes {
		kinds = append(kinds, row.kinds...)
	}
	return kinds
}
