package signal

import (
	"errors"
	"fmt"
	"time"
)

// ErrAlreadyPublished reports that another process has published the record before.
var ErrAlreadyPublished = errors.New("the record already exists")

var (
	// errAbsent reports that a record does not exist yet, is incomplete, or belongs to another
	// attempt: in all cases it should be read again later.
	errAbsent = errors.New("no such record of this attempt")
	// errNotDir reports that a name exists but is not a directory.
	errNotDir = errors.New("it is not a directory")
)

// DirError explains why a log or run directory cannot be used, and what could be used instead.
type DirError struct {
	Path    string // the directory that was to be used
	Host    string // the node that reports it
	Problem string // the problem that was found
	Remedy  string // the remedy
	IsFull  bool   // the file system, or the user's quota there, is full
}

func (e *DirError) Error() string {
	text := fmt.Sprintf("cannot use the directory %s on %s: %s", e.Path, e.Host, e.Problem)
	if e.Remedy == "" {
		return text
	}
	return text + ": " + e.Remedy
}

// DuplicateDaemonError reports that another daemon of the same run and node runs on this host.
type DuplicateDaemonError struct {
	Run, Host string
	Rank, PID int
}

func (e *DuplicateDaemonError) Error() string {
	return fmt.Sprintf("cannot take part in run %s as node %d: process %d on %s already does; "+
		"start one daemon per host", e.Run, e.Rank, e.PID, e.Host)
}

// StallError reports that a call to the file system had not returned when the caller stopped
// waiting. The call may still be in progress.
type StallError struct {
	Op      string
	Path    string
	Elapsed time.Duration // 0 if there was no time to make the call
	Cause   error         // why the caller stopped waiting
}

func (e *StallError) Error() string {
	if e.Elapsed == 0 {
		return fmt.Sprintf("cannot %s %s: no time was left (%v)", e.Op, e.Path, e.Cause)
	}
	return fmt.Sprintf("cannot %s %s: the shared file system has not responded for %s (%v)",
		e.Op, e.Path, e.Elapsed.Round(time.Millisecond), e.Cause)
}

// Unwrap returns the reason why the caller stopped waiting.
func (e *StallError) Unwrap() error { return e.Cause }

// callError returns the error of a call, such as "cannot read PATH: …"; nil if err is nil. A
// StallError says this already.
func callError(verb, path string, err error) error {
	if err == nil || IsStalled(err) {
		return err
	}
	return fmt.Errorf("cannot %s %s: %w", verb, path, bareErrno(err))
}

// IsStalled reports whether an error is or wraps a *StallError.
func IsStalled(err error) bool {
	_, is := errors.AsType[*StallError](err)
	return is
}
