package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Result is the result of an order on one node.
type Result struct {
	NodeIndex int    `json:"node_index"`
	Host      string `json:"host"` // the prefix of its lines
	Answered  bool   `json:"-"`
	Exit      Exit   `json:"-"` // valid if Answered
}

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
)

// Timeouts has the timeouts of a caller.
type Timeouts struct {
	Accept            time.Duration // until the head answers
	AfterRun          time.Duration // after the end of the run, until all nodes have answered
	AfterCancel       time.Duration // after a cancellation, until all nodes have answered
	HeartbeatInterval time.Duration // interval of the caller's heartbeats
}

// DefaultTimeouts are the timeouts of bringupd exec. They take into account that the grace periods
// of child processes are ten seconds by default.
var DefaultTimeouts = Timeouts{Accept: 30 * time.Second, AfterRun: 10 * time.Second, AfterCancel: 30 * time.Second, HeartbeatInterval: time.Second}

const (
	// publishTimeout is the timeout for writing a request.
	publishTimeout = 30 * time.Second
	// maxConcurrentReads is the maximum number of records that are read concurrently.
	maxConcurrentReads = 16
)

// Client is the caller's side of one order.
type Client struct {
	id       requestID
	dir      *signal.Dir
	job      record.Job
	request  Request
	network  peerlink.Network
	timeouts Timeouts

	out, errs  io.Writer
	nodeWriter func(node int) io.Writer // see [Client.SetNodeWriter]; may be nil
	headConn   *peerlink.Client         // set while the request runs
	// answers in the order of the nodes; nil until the head has answered
	nodes []*nodeAnswer
}

// nodeAnswer is the state of one node's answer.
type nodeAnswer struct {
	Result
	nextPart  int // number of the next record of output
	out, errs *linePrefixer
}

// New returns a caller that sends an order to a run. The commands' output is written to out and
// errs.
func New(dir *signal.Dir, job record.Job, order Request, network peerlink.Network, times Timeouts, out, errs io.Writer) *Client {
	return &Client{
		id: newRequestID(), dir: dir.WithoutHints(), job: job, request: order, network: network, timeouts: times,
		out: zapcore.Lock(zapcore.AddSync(out)), errs: zapcore.Lock(zapcore.AddSync(errs)),
	}
}

// SetNodeWriter makes the caller write the standard output of each node to its own writer,
// unchanged, instead of out. It returns c.
func (c *Client) SetNodeWriter(each func(node int) io.Writer) *Client {
	c.nodeWriter = each
	return c
}

// Execute makes the request and forwards the nodes' output until all nodes have answered. When ctx
// ends, it cancels the commands, and waits for the answers until again is closed. If there is an
// error, answers may be missing. It is an error of this package, the cause of ctx, or an error of
// the file system or of the output.
func (c *Client) Execute(ctx context.Context, again <-chan struct{}) ([]Result, error) {
	// Keep working after the end of ctx: the commands must be cancelled then.
	tasks, work := errgroup.WithContext(context.WithoutCancel(ctx))
	self, _ := c.id.decode()
	c.headConn = peerlink.ConnectClient(work, c.dir.DeriveSecret(peerlink.SecretName), self, c.network, c.job.LinkAddresses)
	control := c.dir.NewWatch(signal.ControlDir, signal.Pace{MinPause: time.Second / 2, MaxPause: time.Second, Divisor: 8})
	// The tasks run until one of them returns an error; errAllAnswered means success.
	tasks.Go(func() error { return cmp.Or(c.makeRequest(work, tasks), errAllAnswered) })
	tasks.Go(func() error { control.Run(work); return nil })
	tasks.Go(func() error { return c.awaitRunEnd(work, control) })
	tasks.Go(func() error { return c.sendHeartbeats(work) })
	// When ctx ends, cancel the commands, and wait for the answers.
	tasks.Go(func() error {
		select {
		case <-work.Done():
			return nil
		case <-ctx.Done():
		}
		tasks.Go(func() error { return c.cancelCommands(work) })
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
	}
	return answers, err
}

// makeRequest makes the request and forwards the nodes' output until all nodes have answered.
func (c *Client) makeRequest(ctx context.Context, tasks *errgroup.Group) (err error) {
	defer func() { c.cleanUp(errors.Is(err, ErrRunOver)) }()
	if err = c.publishRequest(ctx); err != nil {
		return err
	}
	watch := c.dir.NewWatch(signal.ExecDir, signal.HeadPace)
	tasks.Go(func() error { watch.Run(ctx); return nil })
	if err = c.awaitHeadAnswer(ctx, watch); err != nil {
		return err
	}
	return c.followOutput(ctx, watch)
}

// publishRequest writes the request, and announces it in the control directory.
func (c *Client) publishRequest(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, publishTimeout, errors.New("the shared file system does not respond"))
	defer cancel()
	err := c.dir.EnsureSubdir(ctx, signal.ExecDir)
	if err == nil {
		err = c.dir.PublishRecord(ctx, signal.ExecDir, c.id.fileName(requestSuffix), &requestRecord{Request: c.request}, false)
	}
	if err != nil {
		return err
	}
	c.headConn.RequestPoll()
	return c.dir.WriteMark(ctx, signal.ControlDir, callPrefix+string(c.id))
}

// sendHeartbeats sends heartbeats: over the connection to the head, or by files without a
// connection.
func (c *Client) sendHeartbeats(ctx context.Context) error {
	defer c.headConn.Disconnect()
	for ctxutil.SleepContext(ctx, c.timeouts.HeartbeatInterval) {
		if !c.headConn.SendHeartbeat() {
			// ignore the error: the next one may succeed
			_ = c.dir.WriteNamedHeartbeat(ctx, signal.ExecDir, c.id.fileName(beatSuffix))
		}
	}
	return nil
}

// cancelCommands requests that the commands be ended.
func (c *Client) cancelCommands(ctx context.Context) error {
	_ = c.dir.WriteMark(ctx, signal.ExecDir, c.id.fileName(cancelSuffix))
	c.headConn.RequestPoll()
	return nil
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

// awaitHeadAnswer waits for the head's answer, and prepares the output of each node. It returns an
// error if the head has refused the request.
func (c *Client) awaitHeadAnswer(ctx context.Context, watch *signal.Watch) error {
	short, cancel := context.WithTimeoutCause(ctx, c.timeouts.Accept, ErrNoAnswer)
	defer cancel()
	_, err := watch.FollowListings(short, func(l signal.Listing) bool { return c.ownFiles(l)[acceptedSuffix] })
	var taken acceptedRecord
	if err == nil {
		err = c.dir.ReadRecord(short, signal.ExecDir, c.id.fileName(acceptedSuffix), &taken)
	}
	_ = c.dir.RemoveNames(ctx, signal.ExecDir, c.id.fileName(requestSuffix)) // it may contain secrets
	switch {
	case err != nil:
		return err
	case taken.Refused != "":
		return fmt.Errorf("%w: %s", ErrRefused, taken.Refused)
	}
	// If several nodes run the command, each line of output gets its host as a prefix.
	for _, node := range taken.Nodes {
		mark := ""
		if len(taken.Nodes) > 1 {
			mark = node.Host + ": "
		}
		out := newLinePrefixer(c.out, mark)
		if c.nodeWriter != nil {
			out = newLinePrefixer(c.nodeWriter(node.NodeIndex), "")
		}
		c.nodes = append(c.nodes, &nodeAnswer{Result: node, out: out, errs: newLinePrefixer(c.errs, mark)})
	}
	return nil
}

// ownFiles returns the suffixes of the request's names in a listing.
func (c *Client) ownFiles(l signal.Listing) requestFiles {
	return groupByRequest(l.AllNames(), "")[c.id]
}

// followOutput forwards the nodes' output until all nodes have answered.
func (c *Client) followOutput(ctx context.Context, watch *signal.Watch) error {
	var failed error
	_, err := watch.FollowListings(ctx, func(l signal.Listing) bool {
		before := c.countForwarded()
		failed = c.readOutput(ctx, c.ownFiles(l))
		if c.countForwarded() > before { // there may be more by now
			watch.NotifyChange()
		}
		return failed != nil || !slices.ContainsFunc(c.nodes, func(n *nodeAnswer) bool { return !n.Answered })
	})
	return cmp.Or(failed, err)
}

// countForwarded returns the number of records that were forwarded so far.
func (c *Client) countForwarded() (count int) {
	for _, node := range c.nodes {
		count += node.nextPart
		if node.Answered {
			count++
		}
	}
	return count
}

// readOutput forwards the output of all nodes that a listing shows.
func (c *Client) readOutput(ctx context.Context, shown requestFiles) error {
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for _, node := range c.nodes {
		if node.Answered || !shown[partSuffix(c.dir, node.NodeIndex, node.nextPart)] && !shown[endSuffix(c.dir, node.NodeIndex)] {
			continue
		}
		reads.Go(func() error { return c.readNodeOutput(ctx, node, shown) })
	}
	return reads.Wait()
}

// readNodeOutput forwards the output of one node that a listing shows, in order. It returns only
// errors of writing the output: a record that cannot be read now is read at the next poll.
func (c *Client) readNodeOutput(ctx context.Context, node *nodeAnswer, shown requestFiles) error {
	for name := partSuffix(c.dir, node.NodeIndex, node.nextPart); shown[name]; name = partSuffix(c.dir, node.NodeIndex, node.nextPart) {
		var output outputRecord
		if c.dir.ReadRecord(ctx, signal.ExecDir, c.id.fileName(name), &output) != nil {
			return nil
		}
		if err := output.Forward(node.out, node.errs); err != nil {
			return err
		}
		node.nextPart++
		// Remove it, so that a long-running command does not fill the file system.
		_ = c.dir.RemoveNames(ctx, signal.ExecDir, c.id.fileName(name))
	}
	var last outputRecord
	name := endSuffix(c.dir, node.NodeIndex)
	if !shown[name] || c.dir.ReadRecord(ctx, signal.ExecDir, c.id.fileName(name), &last) != nil || last.End == nil ||
		node.nextPart < last.End.Parts { // the listing is older than the missing records
		return nil
	}
	node.Answered, node.Exit = true, *last.End
	return last.Forward(node.out, node.errs)
}

// cleanUp writes unfinished lines, and removes the files that the head does not remove.
func (c *Client) cleanUp(runOver bool) {
	for _, node := range c.nodes {
		_, _ = node.out.Close(), node.errs.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if len(c.nodes) == 0 { // the head may not have seen the request, and must not see it later
		_ = c.dir.RemoveNames(ctx, signal.ExecDir, c.id.fileName(requestSuffix))
		_ = c.dir.RemoveNames(ctx, signal.ControlDir, callPrefix+string(c.id))
	}
	if !runOver {
		return
	}
	if names, err := c.dir.ListOwnedNames(ctx, signal.ExecDir); err == nil {
		_ = c.dir.RemoveNames(ctx, signal.ExecDir, groupByRequest(names, "")[c.id].fileNames(c.id)...)
	}
}
