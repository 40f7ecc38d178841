package exec

import (
	"context"
	"errors"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// Command is a command on this node, whose output goes elsewhere.
type Command struct {
	process.Spec
	Start StartFunc
	// Publish passes on output. After an error, further output is dropped.
	Publish   func([]Piece) error
	MaxDelay  time.Duration // maximum delay of output before it is published
	MaxOutput int           // maximum number of bytes of output; further output is dropped
}

// StartFunc is a function that starts a command with the environment of the node's children and the
// additions of spec. stop ends the command, and the processes that it has left behind, by SIGTERM,
// a grace period and SIGKILL.
type StartFunc = func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)

// Run runs a command until it has ended, or wanted ends. It returns its exit, the output that is not
// published yet, and a function that ends the processes that the command has left behind.
func (c Command) Run(wanted context.Context) (rest []Piece, exit Exit, stop func()) {
	out := newOutputBuffer(c.MaxDelay, c.MaxOutput)
	c.Stdout, c.Stderr = outputStream{out, 1}, outputStream{out, 2}
	child, stop, err := c.Start(wanted, c.Spec)
	if err != nil {
		exit = Exit{Code: startErrorCode(err), Exit: "not started", Failed: err.Error()}
		return nil, exit, func() {}
	}
	rest = out.publishLoop(child.Done(), wanted.Done(), c.Publish)
	select {
	case <-child.Done():
	default:
		stop()
	}
	ended := child.Exit()
	exit = Exit{Code: ended.ShellStatus(), Exit: ended.String(), Dropped: out.dropped.Load()}
	return rest, exit, stop
}

// notStartedCode is the exit code of a command that could not be started, if the command itself is
// not the reason.
const notStartedCode = 125

// startErrorCode returns the exit code of a command that could not be started.
func startErrorCode(err error) int {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return 127
	case errors.Is(err, process.ErrNotExecutable):
		return 126
	default:
		return notStartedCode
	}
}
