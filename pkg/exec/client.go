package exec

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Errors of [Client.Execute].
var (
	// ErrRefused reports that the head has refused the request.
	ErrRefused = errors.New("the run refused the request")
	// ErrNoAnswer reports that the head has not answered in time.
	ErrNoAnswer = errors.New("the run's head does not respond")
	// ErrRunOver reports that the run has ended before all nodes have answered.
	ErrRunOver = errors.New("the run has ended in the meantime")
	// ErrCancelTimeout reports that not all nodes have answered in time after a cancellation.
	ErrCancelTimeout = errors.New("not all nodes have reported that the command has ended there")
	errAllAnswered   = errors.New("all nodes have answered")
	errUseFiles      = errors.New("a node has no peer link")
)

// Timeouts has the timeouts of a caller.
type Timeouts struct {
	Accept      time.Duration // until the head answers
	AfterRun    time.Duration // after the end of the run, until all nodes have answered
	AfterCancel time.Duration // after a cancellation, until all nodes have answered
}

// DefaultTimeouts are the timeouts of bringupd exec. They take into account that the grace periods
// of child processes are ten seconds by default.
var DefaultTimeouts = Timeouts{
	Accept: 30 * time.Second, AfterRun: 10 * time.Second, AfterCancel: 30 * time.Second,
}

const (
	// publishTimeout is the timeout for writing a request.
	publishTimeout = 30 * time.Second
	// dialTimeout is the timeout for a connection to the head. After that, files are used.
	dialTimeout = 3 * time.Second
	// cleanUpTimeout is the timeout for removing the files of a request.
	cleanUpTimeout = time.Second
)

// Client is the caller's side of one request.
type Client struct {
	id       requestID
	dir      *signal.Dir
	job      record.Job
	request  Request
	network  peerlink.Network
	timeouts Timeouts

	out, errs io.Writer
	// nodeWriter returns the writer of a node's standard output, instead of out; may be nil
	nodeWriter func(node int) io.Writer
	// nodes has the answers in the order of the nodes; nil until the head has answered.
	nodes  []*nodeAnswer
	cancel chan struct{} // closed when the commands should be cancelled
}

type nodeAnswer struct {
	Result
	out, errs *linePrefixer
}

// New returns a caller that sends a request to a run. The commands' output is written to out and
// errs.
func New(
	dir *signal.Dir, job record.Job, request Request, network peerlink.Network, times Timeouts, out, errs io.Writer,
) *Client {
	return &Client{
		id: newRequestID(), dir: dir, job: job, request: request, network: network, timeouts: times,
		out: zapcore.Lock(zapcore.AddSync(out)), errs: zapcore.Lock(zapcore.AddSync(errs)), cancel: make(chan struct{}),
	}
}

// Execute makes the request and forwards the nodes' output until all nodes have answered. When ctx
// ends, it cancels the commands, and waits for the answers until again is closed. If there is an
// error, answers may be missing. It is an error of this package, the cause of ctx, or an error of
// the file system or of the output.
func (c *Client) Execute(ctx context.Context, again <-chan struct{}) ([]Result, error) {
	// Keep working after the end of ctx: the commands must be cancelled then. The tasks run until one
	// of them returns an error; errAllAnswered means success.
	tasks, work := errgroup.WithContext(context.WithoutCancel(ctx))
	tasks.Go(func() error {
		err := c.useStream(work)
		if errors.Is(err, errUseFiles) {
			err = c.useFiles(work, tasks)
		}
		return cmp.Or(err, errAllAnswered)
	})
	tasks.Go(func() error {
		select {
		case <-work.Done():
			return nil
		case <-ctx.Done():
		}
		close(c.cancel)
		select {
		case <-work.Done():
		case <-again:
		case <-time.After(c.timeouts.AfterCancel):
		}
		return ErrCancelTimeout
	})
	err := tasks.Wait()
	switch {
	case ctx.Err() != nil: // even if all nodes have answered, because the caller requested the end
		err = context.Cause(ctx)
	case errors.Is(err, errAllAnswered):
		err = nil
	}
	var answers []Result
	for _, node := range c.nodes {
		answers = append(answers, node.Result)
		_, _ = node.out.Close(), node.errs.Close()
	}
	return answers, err
}

// useStream makes the request by a connection to the head. It returns errUseFiles if there is none.
func (c *Client) useStream(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	key := c.dir.DeriveSecret(peerlink.SecretName)
	conn, err := peerlink.DialStream(dialing, peerlink.CallerStream, key, 0, c.network, c.job.LinkAddresses)
	if err != nil {
		return errUseFiles
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	accept := time.AfterFunc(c.timeouts.Accept, func() { _ = conn.Close() })
	var first answer
	from := gob.NewDecoder(conn)
	err = writeMessage(conn, message{Request: &c.request, ID: string(c.id)})
	if err == nil {
		err = from.Decode(&first)
	}
	switch {
	case !accept.Stop() || err != nil:
		return ErrNoAnswer
	case first.Accepted.UseFiles:
		return errUseFiles
	}
	if err := c.acceptAnswer(first.Accepted); err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-c.cancel:
			_ = writeMessage(conn, message{Cancel: true})
		case <-ended.Done():
		}
	}()
	for c.isUnanswered() {
		var next answer
		if err := from.Decode(&next); err != nil || next.Node < 0 || next.Node >= len(c.nodes) {
			return ErrRunOver
		}
		if err := c.nodes[next.Node].receive(next.Output); err != nil {
			return err
		}
	}
	return nil
}

// acceptAnswer prepares the output of each node. It returns an error if the head has refused the
// request.
func (c *Client) acceptAnswer(taken accepted) error {
	if taken.Refused != "" {
		return fmt.Errorf("%w: %s", ErrRefused, taken.Refused)
	}
	// If several nodes run the command, each line of output gets its host as a prefix.
	for _, node := range taken.Nodes {
		prefix := ""
		if len(taken.Nodes) > 1 {
			prefix = node.Host + ": "
		}
		out := newLinePrefixer(c.out, prefix)
		if c.nodeWriter != nil {
			out = newLinePrefixer(c.nodeWriter(node.NodeIndex), "")
		}
		c.nodes = append(c.nodes, &nodeAnswer{Result: node, out: out, errs: newLinePrefixer(c.errs, prefix)})
	}
	return nil
}

func (c *Client) isUnanswered() bool {
	return slices.ContainsFunc(c.nodes, func(n *nodeAnswer) bool { return !n.Answered })
}

// receive forwards output of the node. It returns only errors of writing it.
func (n *nodeAnswer) receive(o Output) error {
	if o.End != nil {
		n.Answered, n.Exit = true, *o.End
	}
	return o.Forward(n.out, n.errs)
}

// useFiles makes the request by files, and forwards the output of each node when its command has
// ended.
func (c *Client) useFiles(ctx context.Context, tasks *errgroup.Group) error {
	defer c.cleanUp()
	control := c.dir.NewWatch(signal.ControlDir,
		signal.Pace{MinPause: time.Second / 2, MaxPause: time.Second, Divisor: 8})
	ends := c.dir.NewWatch(signal.ExecDir, signal.HeadPace)
	if err := c.publishCall(ctx); err != nil {
		return err
	}
	tasks.Go(func() error { control.Run(ctx); return nil })
	tasks.Go(func() error { return c.awaitRunEnd(ctx, control) })
	tasks.Go(func() error { c.sendHeartbeats(ctx); return nil })
	short, cancel := context.WithTimeoutCause(ctx, c.timeouts.Accept, ErrNoAnswer)
	defer cancel()
	_, err := control.FollowListings(short, func(l signal.Listing) bool { return l.HasName(c.id.orderName()) })
	var order orderRecord
	if err == nil {
		err = c.dir.ReadRecord(short, signal.ControlDir, c.id.orderName(), &order)
	}
	if err = cmp.Or(err, c.acceptAnswer(order.accepted)); err != nil {
		return err
	}
	tasks.Go(func() error { ends.Run(ctx); return nil })
	var failed error
	_, err = ends.FollowListings(ctx, func(l signal.Listing) bool {
		failed = c.readEnds(ctx, l)
		return failed != nil || !c.isUnanswered()
	})
	return cmp.Or(failed, err)
}

func (c *Client) publishCall(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, publishTimeout, errors.New("the shared file system does not respond"))
	defer cancel()
	if err := c.dir.EnsureSubdir(ctx, signal.ExecDir); err != nil {
		return err
	}
	return c.dir.PublishRecord(ctx, signal.ControlDir, c.id.callName(), &callRecord{Request: c.request}, false)
}

// sendHeartbeats shows that the caller exists, by a name whose number increases, and cancels the
// commands when they should be. Errors are ignored: the next call may succeed.
func (c *Client) sendHeartbeats(ctx context.Context) {
	canceled := c.cancel
	for number := 1; ctx.Err() == nil; number++ {
		if c.dir.WriteMark(ctx, signal.ControlDir, c.id.beatName(number)) == nil {
			_ = c.dir.RemoveNames(ctx, signal.ControlDir, c.id.beatName(number-1))
		}
		select {
		case <-ctx.Done():
		case <-time.After(heartbeatInterval):
		case <-canceled:
			canceled = nil
			_ = c.dir.WriteMark(ctx, signal.ControlDir, c.id.cancelName())
		}
	}
}

// awaitRunEnd waits for the end of the run and then, for a limited time, for the nodes' last
// answers.
func (c *Client) awaitRunEnd(work context.Context, control *signal.Watch) error {
	_, err := control.FollowListings(work, func(l signal.Listing) bool {
		return l.HasName(signal.NameOrderlyEnd) || l.HasName(signal.NameHeadFinished) || len(l.NodesWithAbort()) > 0
	})
	if err == nil {
		ctxutil.SleepContext(work, c.timeouts.AfterRun)
	}
	return ErrRunOver
}

// readEnds forwards the answers that a listing shows. A record that cannot be read now is read at
// the next poll.
func (c *Client) readEnds(ctx context.Context, l signal.Listing) error {
	for _, node := range c.nodes {
		name := c.id.endName(c.dir, node.NodeIndex)
		if node.Answered || !l.HasName(name) {
			continue
		}
		var r endRecord
		if c.dir.ReadRecord(ctx, signal.ExecDir, name, &r) != nil {
			continue
		}
		if err := node.receive(r.Output); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	for _, sub := range []string{signal.ControlDir, signal.ExecDir} {
		names, err := c.dir.ListOwnedNames(ctx, sub)
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, string(c.id)) })
		if err == nil {
			_ = c.dir.RemoveNames(ctx, sub, names...)
		}
	}
}

// maxHeldLine is the maximum number of bytes of an unfinished line that are held back. They are
// held back so that lines of several nodes are not mixed.
const maxHeldLine = 64 << 10

// linePrefixer writes one node's output as complete lines, each with a prefix. Without a prefix, it
// writes the output unchanged.
type linePrefixer struct {
	dest   io.Writer // shared with others
	prefix string
	lines  process.LineSplitter
}

func newLinePrefixer(dest io.Writer, prefix string) *linePrefixer {
	return &linePrefixer{dest: dest, prefix: prefix, lines: process.LineSplitter{MaxLength: maxHeldLine}}
}

// Write accepts output of the node.
func (p *linePrefixer) Write(data []byte) (int, error) {
	if p.prefix == "" {
		return p.dest.Write(data)
	}
	return len(data), p.writeLines(func(each func([]byte, bool)) { p.lines.Add(data, each) })
}

// Close writes an unfinished line.
func (p *linePrefixer) Close() error { return p.writeLines(p.lines.Flush) }

// writeLines writes the lines that cut produces.
func (p *linePrefixer) writeLines(cut func(each func(line []byte, goesOn bool))) error {
	var whole []byte
	cut(func(line []byte, _ bool) { whole = append(append(append(whole, p.prefix...), line...), '\n') })
	if len(whole) == 0 {
		return nil
	}
	_, err := p.dest.Write(whole)
	return err
}
