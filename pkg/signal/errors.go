package signal

import (
	"errors"
	"fmt"
	"time"
)

// ErrTaken says that somebody else has published the record before.
var ErrTaken = errors.New("the record is there already")

var (
	// errAbsent says that a record is not there yet, is not whole yet, or is
	// another attempt's: all three mean "look again later".
	errAbsent = errors.New("no such record of this attempt")
	// errNotDir says that something is there that is not a directory.
	errNotDir = errors.New("it is not a directory")
)

// DirError says why a log or run directory can't be used, and what could.
type DirError struct {
	Path string // the directory meant
	Host string // the node that saw it
	Seen string // what was found
	Mend string // what would be accepted
}

func (e *DirError) Error() string {
	text := fmt.Sprintf("cannot use the directory %s on %s: %s", e.Path, e.Host, e.Seen)
	if e.Mend == "" {
		return text
	}
	return text + ": " + e.Mend
}

// TwinError says that another daemon of the same run and node runs on this host.
type TwinError struct {
	Run, Host string
	Rank, PID int
}

func (e *TwinError) Error() string {
	return fmt.Sprintf("cannot take part in run %s as node %d: process %d on %s does already; start one daemon on each host",
		e.Run, e.Rank, e.PID, e.Host)
}

// StallError says that a call into the share had not returned when the caller
// stopped waiting. The call may still be under way.
type StallError struct {
	Op    string
	Path  string
	After time.Duration // 0 where there was no time left to call at all
	Cause error         // why the caller stopped waiting
}

func (e *StallError) Error() string {
	if e.After == 0 {
		return fmt.Sprintf("cannot %s %s: no time was left for it (%v)", e.Op, e.Path, e.Cause)
	}
	return fmt.Sprintf("cannot %s %s: the share has not answered for %s (%v)",
		e.Op, e.Path, e.After.Round(time.Millisecond), e.Cause)
}

// Unwrap returns why the caller stopped waiting.
func (e *StallError) Unwrap() error { return e.Cause }

// Stalled tells whether an error is that of a call that has not returned.
func Stalled(err error) bool {
	_, is := errors.AsType[*StallError](err)
	return is
}
