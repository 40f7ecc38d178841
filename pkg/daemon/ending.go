package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
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

// failure is something that this node saw fail: a record to be.
type failure struct{ signal.FailedRecord }

func (f *failure) Error() string { return f.What }

func failed(kind health.Kind, format string, args ...any) *failure {
	return &failure{signal.FailedRecord{Kind: string(kind), What: fmt.Sprintf(format, args...), Seen: time.Now()}}
}

// about adds what is known of the child that the failure is about.
func (f *failure) about(child *process.Child, log string) *failure {
	exit := child.Exit()
	f.Child, f.Log, f.Lines = child.Name(), log, child.LastLines()
	f.Code, f.Exit = exit.Code, exit.String()
	f.OOM = oomOf(exit)
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	return f
}

// oomOf is what a record has of the kernel's count; nil where that says nothing.
func oomOf(exit process.Exit) *signal.OOM {
	if exit.OOM.Kills == 0 {
		return nil
	}
	return &signal.OOM{Kills: exit.OOM.Kills, Limit: exit.OOM.Limit, Cgroup: exit.OOM.Cgroup}
}

// explained adds what the service's own files say.
func (f *failure) explained(explain func() []string) *failure {
	if explain == nil {
		return f
	}
	if signs := explain(); len(signs) > 0 {
		f.What += " (" + strings.Join(signs, "; ") + ")"
	}
	return f
}

// asFailure turns any error into a failure: what no rule knows is internal.
func asFailure(err error) *failure {
	var f *failure
	var directory *signal.DirError
	var stall *signal.StallError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &directory), errors.As(err, &stall):
		return failed(health.Share, "%v", err)
	default:
		return failed(health.Internal, "%v", err)
	}
}

// endingOf is the end that a verdict makes.
func endingOf(v health.Verdict) *ending {
	cause := v.Cause
	return &ending{
		code: v.Code, word: v.Word, why: cause.What, cause: &cause, nodes: v.BadNodes, consequences: v.Consequences,
		gentle: gentle(health.Kind(cause.Kind)),
	}
}

// endingFrom is the end that a peer has published.
func endingFrom(abort signal.AbortRecord) *ending {
	cause := abort.Cause
	return &ending{
		code: abort.Code, word: abort.Word, why: cause.What, cause: &cause, nodes: abort.Nodes,
		gentle: gentle(health.Kind(cause.Kind)),
	}
}

// endingByCode is the end of a worker that knows no more of it.
func endingByCode(code int) *ending {
	if code == 0 {
		return endingByDrain()
	}
	abort := signal.AbortRecord{Code: code, Word: string(health.Aborted)}
	abort.Cause = failed(health.Aborted, "the head has ended the job with code %d, and the share does not tell why", code).FailedRecord
	return endingFrom(abort)
}

// endingByDrain is a worker's orderly end.
func endingByDrain() *ending {
	return &ending{orderly: true, word: health.Driven, why: "the driver has ended"}
}

func gentle(kind health.Kind) bool { return kind == health.Terminated || kind == health.Interrupted }

// signalled is the failure that a signal to this daemon is.
func signalled(sig os.Signal, host string, rank int) *failure {
	kind := health.Terminated
	if sig == os.Interrupt {
		kind = health.Interrupted
	}
	f := failed(kind, "rank %d (%s) was told to end by %s", rank, host, process.SignalName(sig.(syscall.Signal)))
	f.Signal = process.SignalName(sig.(syscall.Signal))
	return f
}
