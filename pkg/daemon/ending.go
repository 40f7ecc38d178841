package daemon

import (
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ending is why a run ends: the cause of every context under it.
type ending struct {
	code    int
	word    string
	orderly bool // nothing failed: drain, not abort
	// gentle ends let the driver have its grace before anything else stops.
	gentle bool
	why    string
	cause  *signal.FailedRecord // nil where orderly
	nodes  []string             // to stay away from

	consequences []signal.FailedRecord // what failed besides
	phase        string                // of the sequence when it failed; empty where this node doesn't know
	opened       time.Duration         // how long the gate had been open then
	result       *signal.Result        // where this node has written it instead of the head

	// requeue is what was decided on a new start; nil where nobody asks for
	// any, and of an end that another node has made.
	requeue *signal.Requeue
	claimed bool // by a worker: this node has written the result
	taken   bool // another node has written it, for a head that it took for lost
}

func (e *ending) Error() string { return e.why }

// failed tells whether the run has failed, and was not told to end.
func (e *ending) failed() bool { return !e.orderly && !e.gentle }

// endingOf is the end that a verdict makes.
func endingOf(v health.Verdict) *ending {
	cause := v.Cause
	return &ending{
		code: v.Code, word: v.Word, why: cause.What, cause: &cause, nodes: v.BadNodes, consequences: v.Consequences,
		gentle: health.Gentle(health.Kind(cause.Kind)),
	}
}

// endingFrom is the end that a peer has published.
func endingFrom(abort signal.AbortRecord) *ending {
	cause := abort.Cause
	return &ending{
		code: abort.Code, word: abort.Word, why: cause.What, cause: &cause, nodes: abort.Nodes,
		gentle: health.Gentle(health.Kind(cause.Kind)),
	}
}

// endingByCode is the end of a worker that knows no more of it.
func endingByCode(code int) *ending {
	if code == 0 {
		return endingByDrain()
	}
	abort := signal.AbortRecord{Code: code, Word: string(health.Aborted)}
	abort.Cause = health.Failed(health.Aborted, "the head has ended the job with code %d, and the share does not tell why", code).FailedRecord
	return endingFrom(abort)
}

// endingByDrain is a worker's orderly end.
func endingByDrain() *ending {
	return &ending{orderly: true, word: health.Driven, why: "the driver has ended"}
}
