package lifecycle

import (
	"errors"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Outcome describes how and why a run ends. It is the cause of all contexts that end with the run.
type Outcome struct {
	Code      int
	Name      string
	Orderly   bool // nothing failed
	Requested bool // reports that the driver has its grace period before anything else stops
	Reason    string
	Cause     *record.Failure // nil if orderly
	BadNodes  []string        // bad nodes, which the next job should avoid

	Consequences []record.Failure // other failures
	// phase of the sequence at the failure; empty if this node does not know it
	Phase        record.Phase
	GateOpenTime time.Duration // time from the opening of the gate to the failure
	ResultState

	// Requeue is the decision about a requeue. It is nil if the user does not want requeues, or if
	// another node has decided on the end.
	Requeue     *record.RequeueDecision
	NextAttempt NextAttempt // the decision about another attempt within this launch
	// RankRestarts has the times at which the ranks of flags were started again in this run.
	RankRestarts []time.Time
	Progress     *record.Progress // the job's, if the head knows it
}

// ResultState describes which node decides the end of a run, and writes and prints the result.
type ResultState struct {
	Result        *record.Result // set if this node writes it instead of the head
	ClaimedResult bool           // on a worker: this node has written the result
	ByHead        bool           // on a worker: the head has decided the end, and prints it
	TakenOver     bool           // another node has written the result for a head that it has declared lost
}

// NextAttempt is the decision about another attempt.
type NextAttempt struct {
	Number int    // number of the next attempt; 0 if none follows
	Reason string // in words; empty without restarts, or if another node has decided on the end
}

// Exit describes how a daemon has left a run.
type Exit struct {
	Code         int
	Outcome      *Outcome // nil if it had no run directory
	Duplicate    bool     // another daemon of its node takes part, or has
	EndRequested bool     // this daemon was asked to end
}

// Error returns the reason.
func (e *Outcome) Error() string { return e.Reason }

// HasFailed reports whether the run has failed, and was not asked to end.
func (e *Outcome) HasFailed() bool { return !e.Orderly && !e.Requested }

// AllFailures returns the cause and the consequences, or none if the end is orderly.
func (e *Outcome) AllFailures() []record.Failure {
	if e.Cause == nil {
		return nil
	}
	return append([]record.Failure{*e.Cause}, e.Consequences...)
}

// maxConsequences is the maximum number of consequences in a result: each node may have one.
const maxConsequences = 100

// TruncatedConsequences returns the consequences that the result has room for, without the last
// lines of logs.
func (e *Outcome) TruncatedConsequences() []record.Failure {
	var kept []record.Failure
	for _, failure := range e.Consequences[:min(len(e.Consequences), maxConsequences)] {
		failure.Lines = nil // the peer's own record has them
		kept = append(kept, failure)
	}
	return kept
}

// OutcomeOfVerdict returns the end that follows from a verdict.
func OutcomeOfVerdict(v health.Verdict) *Outcome {
	cause := v.Cause
	return &Outcome{
		Code: v.Code, Name: v.Name, Reason: cause.Message, Cause: &cause, BadNodes: v.BadNodes,
		Consequences: v.Consequences,
		Requested:    health.IsRequestedEnd(cause.Kind),
	}
}

// OutcomeOfAbort returns the end that a peer has published.
func OutcomeOfAbort(abort record.Abort) *Outcome {
	cause := abort.Cause
	return &Outcome{
		Code: abort.Code, Name: abort.Outcome, Reason: cause.Message, Cause: &cause, BadNodes: abort.BadNodes,
		Requested: health.IsRequestedEnd(cause.Kind), NextAttempt: NextAttempt{Number: abort.NextAttempt},
	}
}

// OrderlyOutcome returns a worker's orderly end.
func OrderlyOutcome() *Outcome {
	return &Outcome{Orderly: true, Name: health.DriverOutcomeName, Reason: "the driver has ended"}
}

// OutcomeOfStop returns the orderly end of a run that was stopped, with an exit code, which that of
// the driver replaces if it runs.
func OutcomeOfStop(code int) *Outcome {
	name := health.StoppedOutcome.Name
	return &Outcome{Code: code, Orderly: true, Requested: true, Name: name, Reason: "a stop was requested"}
}

// MergeLosses adds the losses of a later verdict, which has the same cause, to the consequences.
func (e *Outcome) MergeLosses(all health.Verdict) {
	besides := append([]record.Failure{all.Cause}, all.Consequences...)
	cause := slices.IndexFunc(besides, func(f record.Failure) bool {
		return f.Kind == e.Cause.Kind && f.NodeIndex == e.Cause.NodeIndex && f.Message == e.Cause.Message
	})
	if cause >= 0 {
		e.Consequences, e.BadNodes = slices.Delete(besides, cause, cause+1), all.BadNodes
	}
}

// ObservedFailure is the cause with which a failure that the head has observed, and recorded, ends
// the run. The verdict does not depend on it, but on all observed failures.
type ObservedFailure struct{ Record record.Failure }

// Error returns the message of the failure.
func (o *ObservedFailure) Error() string { return o.Record.Message }

// FailureKind returns the kind of the failure that has ended the run. observed reports that it is an
// [ObservedFailure].
func FailureKind(err error) (kind health.Kind, observed bool) {
	if seen, ok := errors.AsType[*ObservedFailure](err); ok {
		return seen.Record.Kind, true
	}
	return health.AsFailure(err).Kind, false
}

// DuplicateDaemonError is the failure of a daemon that does not belong to the run, because another
// daemon has its node index. It is never published in the run directory.
type DuplicateDaemonError struct{ *health.Failure }

// Unwrap returns the failure.
func (o *DuplicateDaemonError) Unwrap() error { return o.Failure }

// AbortRecord returns the record of an end with a cause.
func (e *Outcome) AbortRecord() *record.Abort {
	return &record.Abort{
		Code: e.Code, Outcome: e.Name, Cause: *e.Cause, BadNodes: e.BadNodes, NextAttempt: e.NextAttempt.Number,
	}
}
