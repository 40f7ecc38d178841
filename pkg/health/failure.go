package health

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ErrDeadline is the cause of a context whose deadline has passed.
var ErrDeadline = errors.New("the deadline passed")

// Failure is a failure that this node has detected, and will become a record.
type Failure struct{ record.Failure }

// Error returns the failure as a sentence.
func (f *Failure) Error() string { return f.Message }

// NewFailure returns a failure of a kind that was detected now.
func NewFailure(kind Kind, format string, args ...any) *Failure {
	return &Failure{record.Failure{Kind: kind, Message: fmt.Sprintf(format, args...), SeenAt: time.Now()}}
}

// AsFailure converts any error to a failure. Unknown errors are internal.
func AsFailure(err error) *Failure {
	var f *Failure
	var directory *signal.DirError
	var stall *signal.StallError
	var duplicate *signal.DuplicateDaemonError
	var version *record.VersionError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &directory):
		f = NewFailure(ShareUnusable, "%v", err)
		f.ShareIsFull = directory.IsFull
		return f
	case errors.As(err, &stall):
		return NewFailure(ShareUnusable, "%v", err)
	case errors.As(err, &duplicate), errors.As(err, &version):
		return NewFailure(Launch, "%v", err)
	default:
		return NewFailure(Internal, "%v", err)
	}
}

// DeadlineDetail returns the text of a wait's error without that of [ErrDeadline]. The rest describes
// the last poll.
func DeadlineDetail(err error) string {
	rest, only := strings.CutPrefix(err.Error(), ErrDeadline.Error())
	if only {
		return rest
	}
	return " (" + rest + ")"
}

// LossWaitTime returns how long the verdict on a failure of this kind may wait for losses of nodes.
// The death of a service, a sandbox or a rank may be the consequence of a loss that is detected
// only after silence. Nodes that are lost at the same time as another one are detected at most a
// heartbeat later. The same holds for nodes that are lost before this node gets a signal, because a
// launcher ends the other tasks as soon as one is killed.
func LossWaitTime(kind Kind, silence, heartbeat time.Duration) time.Duration {
	switch {
	case kind == ServiceDied || kind == SandboxDied || kind == RankFailed || kind == RankAborted:
		return silence
	case IsPeerLoss(kind), IsRequestedEnd(kind):
		return heartbeat
	default:
		return 0
	}
}
