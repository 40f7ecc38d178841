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
	case errors.As(err, &directory), errors.As(err, &stall):
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
