package exec

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bringupd/bringupd/pkg/process"
)

// command is a command on this node, whose output goes elsewhere.
type command struct {
	process.Spec
	start StartFunc
	// publish passes on output. After an error, further output is dropped. nil keeps all of it.
	publish   func(Output) error
	maxOutput int // maximum number of bytes of output; further output is dropped
}

// StartFunc is a function that starts a command with the environment of the node's children and the
// additions of spec. stop ends the command, and the processes that it has left behind, by SIGTERM,
// a grace period and SIGKILL.
type StartFunc = func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)

// run runs a command until it has ended, or wanted ends. It returns the output that is not published
// yet with the exit, and a function that ends the processes that the command has left behind.
func (c command) run(wanted context.Context) (last Output, stop func()) {
	out := &commandOutput{command: c}
	c.Stdout, c.Stderr = outputStream{out, 1}, outputStream{out, 2}
	child, stop, err := c.start(wanted, c.Spec)
	if err != nil {
		return notStarted(err), func() {}
	}
	select {
	case <-child.Done():
	case <-wanted.Done():
		out.isClosed.Store(true)
		stop()
	}
	ended := child.Exit()
	pieces, dropped := out.close()
	return Output{Pieces: pieces, End: &Exit{Code: ended.ShellStatus(), Exit: ended.String(), Dropped: dropped}}, stop
}

// exitNotStarted is the exit in words of a command that could not be started, and notStartedCode its
// code if the command itself is not the reason.
const (
	exitNotStarted = "not started"
	notStartedCode = 125
)

func notStarted(err error) Output {
	code := notStartedCode
	switch {
	case errors.Is(err, process.ErrNotFound):
		code = 127
	case errors.Is(err, process.ErrNotExecutable):
		code = 126
	}
	return Output{End: &Exit{Code: code, Exit: exitNotStarted, Failed: err.Error()}}
}

const maxPartSize = 256 << 10

// commandOutput publishes a command's output, or keeps it if there is nothing to publish it. Writers
// wait for that.
type commandOutput struct {
	command
	isClosed atomic.Bool // further output is dropped

	mu      sync.Mutex
	kept    []Piece
	size    int
	dropped int64
}

// outputStream accepts the command's standard output (1) or standard error (2).
type outputStream struct {
	*commandOutput
	fd int
}

// Write implements [io.Writer]. It never returns an error.
func (s outputStream) Write(data []byte) (int, error) {
	for chunk := range slices.Chunk(data, maxPartSize) {
		s.add(Piece{Stream: s.fd, Data: chunk})
	}
	return len(data), nil
}

// add publishes or keeps a piece of the output, or drops it.
func (o *commandOutput) add(piece Piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.kept) - 1
	switch {
	case o.isClosed.Load() || o.size >= o.maxOutput:
		o.dropped += int64(len(piece.Data))
		return
	case o.publish != nil:
		o.isClosed.Store(o.publish(Output{Pieces: []Piece{piece}}) != nil)
	case last >= 0 && o.kept[last].Stream == piece.Stream:
		o.kept[last].Data = append(o.kept[last].Data, piece.Data...)
	default:
		o.kept = append(o.kept, Piece{Stream: piece.Stream, Data: slices.Clone(piece.Data)})
	}
	o.size += len(piece.Data)
}

// close drops further output. It returns what was kept, and the number of bytes that were dropped.
func (o *commandOutput) close() ([]Piece, int64) {
	o.isClosed.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept, o.dropped
}
