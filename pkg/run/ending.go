package run

import (
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Ending describes how and why a run ends. It is the cause of all contexts that end with the run.
type Ending struct {
	Code    int
	Word    string
	Orderly bool // nothing failed
	// Gentle reports that the driver has its grace period before anything else stops.
	Gentle bool
	Why    string
	Cause  *signal.FailedRecord // nil if orderly
	Nodes  []string             // bad nodes, which the next job should avoid

	Consequences []signal.FailedRecord // other failures
	Phase        string                // phase of the sequence at the failure; empty if this node does not know it
	Opened       time.Duration         // time from the opening of the gate to the failure
	Result       *signal.Result        // set if this node has written it instead of the head

	// Requeue is the decision about a requeue. It is nil if the user does not want requeues, or if
	// another node has decided on the end.
	Requeue *signal.Requeue
	Again   Again // the decision about another attempt within this launch
	Claimed bool  // on a worker: this node has written the result
	Taken   bool  // another node has written the result for a head that it has declared lost
}

// Again is the decision about another attempt.
type Again struct {
	Attempt int    // number of the next attempt; 0 if none follows
	Why     string // in words; empty without restarts, or if another node has decided on the end
}

// Exit describes how a daemon has left a run.
type Exit struct {
	Code   int
	End    *Ending // nil if it had no run directory
	Second bool    // another daemon of its node takes part, or has
	Told   bool    // this daemon was asked to end
}

// Error returns the reason.
func (e *Ending) Error() string { return e.Why }

// Failed reports whether the run has failed, and was not asked to end.
func (e *Ending) Failed() bool { return !e.Orderly && !e.Gentle }

// Failures returns the cause and the consequences, or none if the end is orderly.
func (e *Ending) Failures() []signal.FailedRecord {
	if e.Cause == nil {
		return nil
	}
	return append([]signal.FailedRecord{*e.Cause}, e.Consequences...)
}

// mostConsequences is the maximum number of consequences in a result: each node may have one.
const mostConsequences = 100

// Bearable returns the consequences that the result has room for, without the last lines of logs.
func (e *Ending) Bearable() []signal.FailedRecord {
	var kept []signal.FailedRecord
	for _, failure := range e.Consequences[:min(len(e.Consequences), mostConsequences)] {
		failure.Lines = nil // the peer's own record has them
		kept = append(kept, failure)
	}
	return kept
}

// EndingOf returns the end that follows from a verdict.
func EndingOf(v health.Verdict) *Ending {
	cause := v.Cause
	return &Ending{
		Code: v.Code, Word: v.Word, Why: cause.What, Cause: &cause, Nodes: v.BadNodes, Consequences: v.Consequences,
		Gentle: health.Gentle(health.Kind(cause.Kind)),
	}
}

// EndingFrom returns the end that a peer has published.
func EndingFrom(abort signal.AbortRecord) *Ending {
	cause := abort.Cause
	return &Ending{
		Code: abort.Code, Word: abort.Word, Why: cause.What, Cause: &cause, Nodes: abort.Nodes,
		Gentle: health.Gentle(health.Kind(cause.Kind)), Again: Again{Attempt: abort.NextAttempt},
	}
}

// EndingByCode returns the end of a worker that knows only the exit code.
func EndingByCode(code int) *Ending {
	if code == 0 {
		return EndingByDrain()
	}
	abort := signal.AbortRecord{Code: code, Word: string(health.Aborted)}
	abort.Cause = health.Failed(health.Aborted, "the head has ended the job with code %d, and the share does not tell why", code).FailedRecord
	return EndingFrom(abort)
}

// EndingByDrain returns a worker's orderly end.
func EndingByDrain() *Ending {
	return &Ending{Orderly: true, Word: health.Driven, Why: "the driver has ended"}
}
