package health

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Kind is what a failure is, in a word. It decides the job's exit code.
type Kind string

// The kinds of failure. The first group are causes; the second are
// consequences, which never outrank a cause.
const (
	Usage    Kind = "usage"
	Launch   Kind = "launch"
	Share    Kind = "share"
	Internal Kind = "internal"
	Check    Kind = "check"
	// CheckUser is a check that another node would not pass either: it is the
	// job that asks for something else.
	CheckUser Kind = "check-user"
	// CheckEnvironment is a failed check of what the job's settings or its image may have caused.
	// Weigh makes a Check or a CheckUser of it by the records of the other nodes.
	CheckEnvironment Kind = "check-environment"
	// NodesDiffer is the head's word of nodes that are well, each by itself: it
	// misses those that differ from most, none where nobody can tell which.
	NodesDiffer Kind = "nodes-differ"
	// GPUFailed is a GPU that has failed under the driver.
	GPUFailed     Kind = "gpu"
	Setup         Kind = "setup"
	SandboxDied   Kind = "sandbox"
	ServiceDied   Kind = "service"
	NotExecutable Kind = "driver-not-executable"
	NotFound      Kind = "driver-not-found"
	Interrupted   Kind = "interrupted"
	// RankFailed is a rank of the world that has ended otherwise than with 0, and
	// RankAborted one that has asked for the job's end. The job's code is theirs.
	RankFailed  Kind = "rank"
	RankAborted Kind = "rank-aborted"

	// The losses of a peer that something speaks for besides its silence: its
	// kernel has closed its connection, or does not answer any more, or answers
	// while the daemon does not; or it is our own node that nobody can reach.
	DaemonDied Kind = "daemon-died"
	HostLost   Kind = "host-lost"
	HostHangs  Kind = "host-hangs"
	CutOff     Kind = "cut-off"

	// NotBack is the loss of a peer in an earlier attempt that nobody has mended.
	NotBack Kind = "not-back"

	Deadline Kind = "deadline"
	// TimeUp is the deadline of the whole job, which has its driver's grace.
	TimeUp     Kind = "time-up"
	Terminated Kind = "terminated"
	// PeerLost is a loss that only the absence of beat files tells of.
	PeerLost Kind = "peer-lost"
	Aborted  Kind = "aborted"
	// GaveUp ends a job that has been requeued as often as it may be.
	GaveUp Kind = "gave-up"
)

// Outcome is one row of the table of exit codes.
type Outcome struct {
	Code    int
	Word    string // in result.json
	Meaning string
	Requeue Requeue
}

// Requeue is whether the same job is worth another try.
type Requeue string

// The words of the table for it.
const (
	RequeueNo        Requeue = "no"
	RequeueYes       Requeue = "yes"
	RequeueElsewhere Requeue = "yes, elsewhere" // not on the nodes that failed
	RequeueYourCall  Requeue = "your call"
)

// Driven is the outcome's word where the driver ran and ended: the code is its
// own.
const Driven = "driver"

// OfRank is the outcome where a rank of the world failed first, or asked for the
// end. The code is the rank's: OutcomeBy knows it.
var OfRank = Outcome{0, "rank", "a rank of the world failed first (128+n where signal n ended it), or aborted the job with this code", RequeueYourCall}

func ofRank(kind Kind) bool { return kind == RankFailed || kind == RankAborted }

// outcomes is the one map from kinds to exit codes. The codes of 64 to 77 are
// those of BSD's sysexits.h where one fits.
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

// OutcomeOf returns the outcome of a failure of that kind. A kind that is not
// in the table is an internal error.
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

// OutcomeBy returns the outcome of a job that ends by this failure.
func OutcomeBy(cause signal.FailedRecord) Outcome {
	outcome := OutcomeOf(Kind(cause.Kind))
	if outcome == OfRank {
		outcome.Code = rankCode(cause)
	}
	return outcome
}

// Outcomes returns the table, in the order of its codes. The driver's own code
// is not in it, nor a rank's.
func Outcomes() []Outcome {
	var all []Outcome
	for _, row := range outcomes {
		all = append(all, row.Outcome)
	}
	return all
}

// Kinds returns every kind that has an outcome.
func Kinds() []Kind {
	kinds := []Kind{RankFailed, RankAborted}
	for _, row := range outcomes {
		kinds = append(kinds, row.kinds...)
	}
	return kinds
}
