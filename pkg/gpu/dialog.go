package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// maximum bytes of a line; 16 GPUs with 7 instances and 1000 processes need far less
	maxLineBytes = 4 << 20
	// between closing the child's standard input and KILL; the child may need eventWaitTimeout to end
	endTimeout = 2 * time.Second
)

var errTimeout = errors.New("no response from the NVIDIA driver")

// runningChild is a running child that answers several requests concurrently. Goroutines of
// exec.Cmd read its output.
type runningChild struct {
	*process.Helper
	lineSplitter process.LineSplitter

	mu           sync.Mutex
	lastOutput   outputTail              // the last lines in another format; guarded by mu
	openRequests map[int]*responseStream // open requests by number; guarded by mu
	nextNumber   int                     // number of the next request; guarded by mu
	// pendingInspections is the number of inspections without a response, including those for which no
	// caller waits any more. The driver may be initialising GPUs for them, which must not be
	// interrupted. Guarded by mu.
	pendingInspections int
}

type responseStream struct {
	*runningChild
	number   int
	messages chan message
	stopped  chan struct{} // closed by the reader when it stops reading
}

func (c Child) startChild(ctx context.Context) (_ *runningChild, err error) {
	if os.Getenv(childEnvVariable) != "" {
		return nil, fmt.Errorf("cannot start it from another child process: there is no subcommand %s", ChildCommand)
	}
	d := &runningChild{openRequests: map[int]*responseStream{}}
	d.lineSplitter.MaxLength = maxLineBytes
	spec := &exec.Cmd{Env: c.childEnv(), Stdout: d, Stderr: d}
	spec.Path, spec.Args = c.commandLine()
	if d.Helper, err = process.StartHelper(ctx, spec, func() { d.lineSplitter.Flush(d.dispatchLine) }); err != nil {
		return nil, err
	}
	return d, nil
}

// Write handles output of the child, for exec.Cmd.
func (d *runningChild) Write(output []byte) (int, error) {
	d.lineSplitter.Add(output, d.dispatchLine)
	return len(output), nil
}

// dispatchLine passes a line of output to the reader of the answers that it belongs to. Lines in
// another format are kept for error messages, unless they are longer than maxLineBytes (goesOn).
// Lines without a reader are dropped, because a child that cannot write does not end.
func (d *runningChild) dispatchLine(text []byte, goesOn bool) {
	if goesOn {
		return
	}
	l, err := decodeMessage(text)
	d.mu.Lock()
	if errors.Is(err, errOtherVersion) {
		text = []byte(err.Error())
	}
	if err != nil {
		d.lastOutput.addLine(bytes.Clone(text))
	}
	if l.Facts != nil {
		d.pendingInspections--
	}
	a := d.openRequests[l.Number]
	d.mu.Unlock()
	if err != nil || a == nil {
		return
	}
	select {
	// The reader takes the line, unless it has stopped reading or the child is killed.
	case a.messages <- l:
	case <-a.stopped:
	case <-d.Killed:
	}
}

// sendRequest sends a request to the child. A failure to send is not reported, because it means
// that the child has ended, which [responseStream.readMessage] reports. The caller must call
// [responseStream.stopReading] when it stops reading.
func (d *runningChild) sendRequest(what request) *responseStream {
	a := &responseStream{runningChild: d, messages: make(chan message), stopped: make(chan struct{})}
	d.mu.Lock()
	a.number = d.nextNumber
	d.openRequests[a.number] = a
	d.nextNumber++
	if what == requestInspection {
		d.pendingInspections++
	}
	d.mu.Unlock()
	_, _ = d.Stdin.Write(message{Number: a.number, Request: what}.encodeLine())
	return a
}

// stopReading ends the reading of the answers: further ones are dropped.
func (a *responseStream) stopReading() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.openRequests, a.number)
	close(a.stopped)
}

// readMessage returns the next line of the answers. The error is io.EOF if the child has ended,
// errTimeout if the timer, which was set to limit, expires first, or the cause of the context's end.
func (a *responseStream) readMessage(ctx context.Context, late *time.Timer, limit time.Duration) (message, error) {
	select {
	case l := <-a.messages:
		return l, nil
	case <-a.Ended:
		return message{}, io.EOF
	case <-late.C:
		return message{}, fmt.Errorf("%w within %v", errTimeout, limit)
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// requestFacts requests the facts, and reports the progress. The timeout is countTimeout for the
// first line with progress, and limit after each further progress. The errors are those of
// [responseStream.readMessage].
func (d *runningChild) requestFacts(ctx context.Context, limit time.Duration, tell func(Progress)) (Facts, error) {
	a := d.sendRequest(requestInspection)
	defer a.stopReading()
	current := min(limit, countTimeout)
	late := time.NewTimer(current)
	defer late.Stop()
	for got := -1; ; {
		l, err := a.readMessage(ctx, late, current)
		switch {
		case err != nil:
			return Facts{}, err
		case l.Facts != nil:
			return *l.Facts, nil
		case l.Progress == nil:
			continue
		case l.Progress.Initialised+l.Progress.Complete > got: // another GPU has made progress
			got, current = l.Progress.Initialised+l.Progress.Complete, limit
			late.Reset(current)
		}
		tell(*l.Progress)
	}
}

// outputAfter returns the last lines that are not answers, after a separator, or an empty string if
// there are none.
func (d *runningChild) outputAfter(separator string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastOutput.textAfter(separator)
}

// describeExit describes how the child has ended. It may be called once Ended is closed.
func (d *runningChild) describeExit() string {
	how := "ended with an unknown status"
	if d.State != nil {
		how = fmt.Sprintf("ended with exit code %d", d.State.ExitCode())
		if status := d.State.Sys().(syscall.WaitStatus); status.Signaled() {
			how = "was killed by signal " + unix.SignalName(status.Signal())
		}
	}
	return how + d.outputAfter(": ")
}

// failureReason converts an error of [responseStream.readMessage] to the reason why there are no
// facts, DRIVER_UNRESPONSIVE or PROBE_DIED, with details.
func (d *runningChild) failureReason(err error) (why NVMLReturn, detail string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, errTimeout):
		return DriverUnresponsive, err.Error() + d.outputAfter("; ")
	case errors.Is(err, io.EOF) && d.State != nil && d.State.Success():
		return ProbeDied, "it gave no response" + d.outputAfter(": ")
	case errors.Is(err, io.EOF):
		return ProbeDied, "it " + d.describeExit()
	default:
		return ProbeDied, err.Error() + d.outputAfter(": ")
	}
}

// shutDown closes the child's standard input, and kills the child if it has not ended within
// endTimeout or when the context ends. A child with an unanswered inspection is not killed: shutDown
// waits for it until the context ends, and then abandons it. Such a child ends once it has the
// answer.
func (d *runningChild) shutDown(ctx context.Context) {
	_ = d.Stdin.Close()
	d.mu.Lock()
	inspects := d.pendingInspections > 0
	d.mu.Unlock()
	if inspects {
		if ctxutil.AwaitDone(ctx, d.Ended) {
			d.Kill() // releases the context
		}
		return
	}
	limited, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	d.Close(limited)
}
