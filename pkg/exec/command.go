package exec

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// command is a command on this node, whose output goes elsewhere.
type command struct {
	process.Spec
	start StartFunc
	// publish passes on output. After an error, further output is dropped. nil keeps all of it.
	publish   func(Output) error
	maxDelay  time.Duration // maximum delay of output before it is published
	maxOutput int           // maximum number of bytes of output; further output is dropped
}

// StartFunc is a function that starts a command with the environment of the node's children and the
// additions of spec. stop ends the command, and the processes that it has left behind, by SIGTERM,
// a grace period and SIGKILL.
type StartFunc = func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)

// run runs a command until it has ended, or wanted ends. It returns the output that is not published
// yet with the exit, and a function that ends the processes that the command has left behind.
func (c command) run(wanted context.Context) (last Output, stop func()) {
	out := &outputBuffer{command: c, incoming: make(chan Piece), closed: make(chan struct{})}
	c.Stdout, c.Stderr = outputStream{out, 1}, outputStream{out, 2}
	child, stop, err := c.start(wanted, c.Spec)
	if err != nil {
		return Output{End: &Exit{Code: startErrorCode(err), Exit: "not started", Failed: err.Error()}}, func() {}
	}
	rest := out.publishLoop(child.Done(), wanted.Done())
	select {
	case <-child.Done():
	default:
		stop()
	}
	ended := child.Exit()
	exit := &Exit{Code: ended.ShellStatus(), Exit: ended.String(), Dropped: out.dropped.Load()}
	return Output{Pieces: rest, End: exit}, stop
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

const (
	// maxPartSize is the maximum amount of output that is sent at once.
	maxPartSize = 256 << 10
	// minPublishDelay and maxPublishDelay are the minimum and maximum delays before output is
	// published to a caller.
	minPublishDelay = 20 * time.Millisecond
	maxPublishDelay = 250 * time.Millisecond
)

// outputBuffer collects a command's output. Writers block until their data is taken.
type outputBuffer struct {
	command
	incoming chan Piece    // unbuffered
	closed   chan struct{} // closed when further output is dropped
	dropped  atomic.Int64  // number of dropped bytes
}

// outputStream accepts the command's standard output (1) or standard error (2).
type outputStream struct {
	*outputBuffer
	fd int
}

// Write implements [io.Writer]. It never returns an error.
func (s outputStream) Write(data []byte) (int, error) {
	for chunk := range slices.Chunk(data, maxPartSize) {
		select {
		case s.incoming <- Piece{Stream: s.fd, Data: slices.Clone(chunk)}:
		case <-s.closed:
			s.dropped.Add(int64(len(chunk)))
		}
	}
	return len(data), nil
}

// publishLoop publishes the command's output: with a short delay at first, and a longer one the
// longer the command runs. When the command has ended or is cancelled (unwanted), it closes the
// output and returns what is not published yet. After an error of publish, it drops all output.
func (o *outputBuffer) publishLoop(ended, unwanted <-chan struct{}) (rest []Piece) {
	defer close(o.closed)
	began, total, size, failed := time.Now(), 0, 0, false
	var due <-chan time.Time
	flush := func() {
		if o.publish != nil {
			failed = failed || o.publish(Output{Pieces: rest}) != nil
			rest, size = nil, 0
		}
		due = nil
	}
	for {
		select {
		case <-ended:
			return rest
		case <-unwanted:
			return rest
		case <-due:
			flush()
		case piece := <-o.incoming:
			if size+len(piece.Data) > maxPartSize {
				flush()
			}
			if failed || total >= o.maxOutput {
				o.dropped.Add(int64(len(piece.Data)))
				continue
			}
			// Collect more output for a moment before it is published.
			if due == nil {
				due = time.After(min(max(minPublishDelay, time.Since(began)/8), o.maxDelay))
			}
			total += len(piece.Data)
			size += len(piece.Data)
			// Merge consecutive output of one stream.
			if last := len(rest) - 1; last >= 0 && rest[last].Stream == piece.Stream {
				rest[last].Data = append(rest[last].Data, piece.Data...)
			} else {
				rest = append(rest, piece)
			}
		}
	}
}
