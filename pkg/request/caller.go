package request

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

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Answer is the result of an order on one node.
type Answer struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"` // the prefix of its lines
	Answered bool   `json:"-"`
	Exit     Exit   `json:"-"` // valid if Answered
}

// Errors of [Caller.Do].
var (
	// ErrRefused reports that the head has refused the request.
	ErrRefused = errors.New("the run refuses")
	// ErrNoAnswer reports that the head has not answered in time.
	ErrNoAnswer = errors.New("the run's head does not answer")
	// ErrRunOver reports that the run has ended before all nodes have answered.
	ErrRunOver = errors.New("the run has ended meanwhile")
	// ErrLate reports that not all nodes have answered in time after a cancellation.
	ErrLate = errors.New("not all nodes have told that the command has ended there")
	errDone = errors.New("all nodes have answered")
)

// Times has the timeouts of a caller.
type Times struct {
	Taken time.Duration // until the head answers
	Over  time.Duration // after the end of the run, until all nodes have answered
	Stop  time.Duration // after a cancellation, until all nodes have answered
	Beat  time.Duration // interval of the caller's heartbeats
}

// UsualTimes are the timeouts of bringupd exec. They take into account that the grace periods of
// child processes are ten seconds by default.
var UsualTimes = Times{Taken: 30 * time.Second, Over: 10 * time.Second, Stop: 30 * time.Second, Beat: time.Second}

const (
	// publishTime is the timeout for writing a request.
	publishTime = 30 * time.Second
	// readsAtOnce is the maximum number of records that are read concurrently.
	readsAtOnce = 16
)

// Caller is the caller's side of one order.
type Caller struct {
	id      requestID
	dir     *signal.Dir
	job     signal.Job
	order   Order
	network lifeline.Network
	times   Times

	out, errs io.Writer
	each      func(rank int) io.Writer // see [Caller.PerNode]; may be nil
	guest     *lifeline.Guest          // set while the request runs
	nodes     []*answering             // answers in the order of the nodes; nil until the head has answered
}

// answering is the state of one node's answer.
type answering struct {
	Answer
	next      int // number of the next record of output
	out, errs *marker
}

// New returns a caller that sends an order to a run. The commands' output is written to out and
// errs.
func New(dir *signal.Dir, job signal.Job, order Order, network lifeline.Network, times Times, out, errs io.Writer) *Caller {
	return &Caller{
		id: newID(), dir: dir.Deaf(), job: job, order: order, network: network, times: times,
		out: zapcore.Lock(zapcore.AddSync(out)), errs: zapcore.Lock(zapcore.AddSync(errs)),
	}
}

// PerNode makes the caller write the standard output of each node to its own writer, unchanged,
// instead of out. It returns c.
func (c *Caller) PerNode(each func(rank int) io.Writer) *Caller {
	c.each = each
	return c
}

// Do makes the request and forwards the nodes' output until all nodes have answered. When ctx ends,
// it cancels the commands, and waits for the answers until again is closed. If there is an error,
// answers may be missing. It is an error of this package, the cause of ctx, or an error of the file
// system or of the output.
func (c *Caller) Do(ctx context.Context, again <-chan struct{}) ([]Answer, error) {
	// Keep working after the end of ctx: the commands must be cancelled then.
	tasks, work := errgroup.WithContext(context.WithoutCancel(ctx))
	self, _ := c.id.raw()
	c.guest = lifeline.Visit(work, c.dir.Secret(lifeline.SecretName), self, c.network, c.job.Lifeline)
	control := c.dir.Watch(signal.Control, signal.Pace{Fast: time.Second / 2, Steady: time.Second, Part: 8})
	// The tasks run until one of them returns an error; errDone means success.
	tasks.Go(func() error { return cmp.Or(c.ask(work, tasks), errDone) })
	tasks.Go(func() error { control.Run(work); return nil })
	tasks.Go(func() error { return c.outwaitRun(work, control) })
	tasks.Go(func() error { return c.stayPresent(work) })
	// When ctx ends, cancel the commands, and wait for the answers.
	tasks.Go(func() error {
		select {
		case <-work.Done():
			return nil
		case <-ctx.Done():
		}
		tasks.Go(func() error { return c.cancel(work) })
		select {
		case <-work.Done():
		case <-again:
		case <-time.After(c.times.Stop):
		}
		return ErrLate
	})
	err := tasks.Wait()
	switch {
	case ctx.Err() != nil: // even if all nodes have answered, because the caller requested the end
		err = context.Cause(ctx)
	case errors.Is(err, errDone):
		err = nil
	}
	var answers []Answer
	for _, node := range c.nodes {
		answers = append(answers, node.Answer)
	}
	return answers, err
}

// ask makes the request and forwards the nodes' output until all nodes have answered.
func (c *Caller) ask(ctx context.Context, tasks *errgroup.Group) (err error) {
	defer func() { c.tidy(errors.Is(err, ErrRunOver)) }()
	if err = c.publish(ctx); err != nil {
		return err
	}
	watch := c.dir.Watch(signal.Exec, signal.HeadPace)
	tasks.Go(func() error { watch.Run(ctx); return nil })
	if err = c.awaitTaken(ctx, watch); err != nil {
		return err
	}
	return c.follow(ctx, watch)
}

// publish writes the request, and announces it in the control directory.
func (c *Caller) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, publishTime, errors.New("the share does not answer"))
	defer cancel()
	err := c.dir.Make(ctx, signal.Exec)
	if err == nil {
		err = c.dir.Publish(ctx, signal.Exec, c.id.name(whatRequest), &requestRecord{Order: c.order}, false)
	}
	if err != nil {
		return err
	}
	c.guest.Nudge()
	return c.dir.Mark(ctx, signal.Control, kindCall+string(c.id))
}

// stayPresent sends heartbeats: over the connection to the head, or by files without a connection.
func (c *Caller) stayPresent(ctx context.Context) error {
	defer c.guest.Leave()
	for pause.For(ctx, c.times.Beat) {
		if !c.guest.Beat() {
			_ = c.dir.BeatAs(ctx, signal.Exec, c.id.name(whatBeat)) // ignore the error: the next one may succeed
		}
	}
	return nil
}

// cancel requests that the commands be ended.
func (c *Caller) cancel(ctx context.Context) error {
	_ = c.dir.Mark(ctx, signal.Exec, c.id.name(whatCancel))
	c.guest.Nudge()
	return nil
}

// outwaitRun waits for the end of the run and then, for a limited time, for the nodes' last
// answers.
func (c *Caller) outwaitRun(work context.Context, control *signal.Watch) error {
	_, err := control.Follow(work, func(l signal.Listing) bool {
		return l.Has(signal.NameDrain) || l.Has(signal.NameOver) || len(l.Aborts()) > 0
	})
	if err == nil {
		pause.For(work, c.times.Over)
	}
	return ErrRunOver
}

// awaitTaken waits for the head's answer, and prepares the output of each node. It returns an error
// if the head has refused the request.
func (c *Caller) awaitTaken(ctx context.Context, watch *signal.Watch) error {
	short, cancel := context.WithTimeoutCause(ctx, c.times.Taken, ErrNoAnswer)
	defer cancel()
	_, err := watch.Follow(short, func(l signal.Listing) bool { return c.shown(l)[whatTaken] })
	var taken takenRecord
	if err == nil {
		err = c.dir.Read(short, signal.Exec, c.id.name(whatTaken), &taken)
	}
	_ = c.dir.Discard(ctx, signal.Exec, c.id.name(whatRequest)) // it may contain secrets
	switch {
	case err != nil && short.Err() != nil:
		return context.Cause(short)
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
		out := newMarker(c.out, mark)
		if c.each != nil {
			out = newMarker(c.each(node.Rank), "")
		}
		c.nodes = append(c.nodes, &answering{Answer: node, out: out, errs: newMarker(c.errs, mark)})
	}
	return nil
}

// shown returns the suffixes of the request's names in a listing.
func (c *Caller) shown(l signal.Listing) shown { return requestsShown(l.Names(), "")[c.id] }

// follow forwards the nodes' output until all nodes have answered.
func (c *Caller) follow(ctx context.Context, watch *signal.Watch) error {
	var failed error
	_, err := watch.Follow(ctx, func(l signal.Listing) bool {
		var more bool
		if more, failed = c.read(ctx, c.shown(l)); more {
			watch.Nudge()
		}
		return failed != nil || !slices.ContainsFunc(c.nodes, func(n *answering) bool { return !n.Answered })
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return failed
}

// read forwards the output of all nodes that a listing shows. some reports whether there was any:
// then there may be more by now.
func (c *Caller) read(ctx context.Context, shown shown) (some bool, err error) {
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for _, node := range c.nodes {
		if node.Answered || !shown[part(c.dir, node.Rank, node.next)] && !shown[end(c.dir, node.Rank)] {
			continue
		}
		some = true
		reads.Go(func() error { return c.readNode(ctx, node, shown) })
	}
	return some, reads.Wait()
}

// readNode forwards the output of one node that a listing shows, in order. It returns only errors
// of writing the output: a record that cannot be read now is read at the next poll.
func (c *Caller) readNode(ctx context.Context, node *answering, shown shown) error {
	for name := part(c.dir, node.Rank, node.next); shown[name]; name = part(c.dir, node.Rank, node.next) {
		var output outputRecord
		if c.dir.Read(ctx, signal.Exec, c.id.name(name), &output) != nil {
			return nil
		}
		if err := node.pass(output.Pieces); err != nil {
			return err
		}
		node.next++
		// Remove it, so that a long-running command does not fill the file system.
		_ = c.dir.Discard(ctx, signal.Exec, c.id.name(name))
	}
	var last outputRecord
	name := end(c.dir, node.Rank)
	if !shown[name] || c.dir.Read(ctx, signal.Exec, c.id.name(name), &last) != nil || last.End == nil ||
		node.next < last.End.Parts { // the listing is older than the missing records
		return nil
	}
	node.Answered, node.Exit = true, *last.End
	return node.pass(last.Pieces)
}

// pass writes pieces of a node's output.
func (n *answering) pass(pieces []piece) error {
	for _, piece := range pieces {
		to := n.out
		if piece.Stream == 2 {
			to = n.errs
		}
		if _, err := to.Write(piece.Data); err != nil {
			return err
		}
	}
	return nil
}

// tidy writes unfinished lines, and removes the files that the head does not remove.
func (c *Caller) tidy(runOver bool) {
	for _, node := range c.nodes {
		_, _ = node.out.Close(), node.errs.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if len(c.nodes) == 0 { // the head may not have seen the request, and must not see it later
		_ = c.dir.Discard(ctx, signal.Exec, c.id.name(whatRequest))
		_ = c.dir.Discard(ctx, signal.Control, kindCall+string(c.id))
	}
	if !runOver {
		return
	}
	if names, err := c.dir.OwnedNames(ctx, signal.Exec); err == nil {
		_ = c.dir.Discard(ctx, signal.Exec, requestsShown(names, "")[c.id].names(c.id)...)
	}
}
