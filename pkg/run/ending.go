package run

import (
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Ending is why a run ends: the cause of every context under it.
type Ending struct {
	Code    int
	Word    string
	Orderly bool // nothing failed: drain, not abort
	// Gentle ends let the driver have its grace before anything else stops.
	Gentle bool
	Why    string
	Cause  *signal.FailedRecord // nil where orderly
	Nodes  []string             // to stay away from

	Consequences []signal.FailedRecord // what failed besides
	Phase        string                // of the sequence when it failed; empty where this node doesn't know
	Opened       time.Duration         // how long the gate had been open then
	Result       *signal.Result        // where this node has written it instead of the head

	// Requeue is what was decided on a new start; nil where nobody asks for
	// any, and of an end that another node has made.
	Requeue *signal.Requeue
	Again   Again // what was decided on another attempt within this launch
	Claimed bool  // by a worker: this node has written the result
	Taken   bool  // another node has written it, for a head that it took for lost
}

// Again is what was decided on another attempt.
type Again struct {
	Attempt int    // that follows; 0 where none does
	Why     string // in words; empty where nobody has asked for it, and of an end that another node has made
}

// Exit is how a daemon has left a run.
type Exit struct {
	Code   int
	End    *Ending // that it took part in; nil where it had no run directory
	Second bool    // another daemon of its rank takes part, or has
	Told   bool    // somebody has told this daemon to end
}

// Error returns why.
func (e *Ending) Error() string { return e.Why }

// Failed tells whether the run has failed, and was not told to end.
func (e *Ending) Failed() bool { return !e.Orderly && !e.Gentle }

// Failures are the cause and what failed besides; none where the end is orderly.
func (e *Ending) Failures() []signal.FailedRecord {
	if e.Cause == nil {
		return nil
	}
	return append([]signal.FailedRecord{*e.Cause}, e.Consequences...)
}

// mostConsequences is how many of them a result bears: there can be one a node.
const mostConsequences = 100

// Bearable are the consequences as a result has them.
func (e *Ending) Bearable() []signal.FailedRecord {
	var kept []signal.FailedRecord
	for _, failure := range e.Consequences[:min(len(e.Consequences), mostConsequences)] {
		failure.Lines = nil // the peer's own record has them
		kept = append(kept, failure)
	}
	return kept
}

// EndingOf is the end that a verdict makes.
func EndingOf(v health.Verdict) *Ending {
	cause := v.Cause
	return &Ending{
		Code: v.Code, Word: v.Word, Why: cause.What, Cause: &cause, Nodes: v.BadNodes, Consequences: v.Consequences,
		Gentle: health.Gentle(health.Kind(cause.Kind)),
	}
}

// EndingFrom is the end that a peer has published.
func EndingFrom(abort signal.AbortRecord) *Ending {
	cause := abort.Cause
	return &Ending{
		Code: abort.Code, Word: abort.Word, Why: cause.What, Cause: &cause, Nodes: abort.Nodes,
		Gentle: health.Gentle(health.Kind(cause.Kind)), Again: Again{Attempt: abort.NextAttempt},
	}
}

// EndingByCode is the end of a worker that knows no more of it.
func EndingByCode(code int) *Ending {
	if code == 0 {
		return EndingByDrain()
	}
	abort := signal.AbortRecord{Code: code, Word: string(health.Aborted)}
	abort.Cause = health.Failed(health.Aborted, "the head has ended the job with code %d, and the share does not tell why", code).FailedRecord
	return EndingFrom(abort)
}

// EndingByDrain is a worker's orderly end.
func EndingByDrain() *Ending {
	return &Ending{Orderly: true, Word: health.Driven, Why: "the driver has ended"}
}
