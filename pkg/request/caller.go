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

// Answer is what became of an order on one node.
type Answer struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"` // as its lines are marked
	Answered bool   `json:"-"`
	Exit     Exit   `json:"-"` // where it answered
}

// What ends a request from the caller's side, or without an answer.
var (
	// ErrRefused says that the head has looked at the request and does not
	// obey it.
	ErrRefused = errors.New("the run refuses")
	// ErrNoAnswer says that the head has not looked at the request in time.
	ErrNoAnswer = errors.New("the run's head does not answer")
	// ErrRunOver says that the run has ended before all nodes have answered.
	ErrRunOver = errors.New("the run has ended meanwhile")
	// ErrLate says that the nodes have not answered in time after the end of
	// the command was asked for.
	ErrLate = errors.New("not all nodes have told that the command has ended there")
	errDone = errors.New("all nodes have answered")
)

// Times are how long a caller waits, and for what.
type Times struct {
	Taken time.Duration // for the head to look at the request
	Over  time.Duration // for the nodes' last words, when the run ends
	Stop  time.Duration // for the same, when the command is to end early
	Beat  time.Duration // between two signs that the caller is still there
}

// UsualTimes are those of the command line. The graces of children are ten
// seconds at most, unless somebody says otherwise.
var UsualTimes = Times{Taken: 30 * time.Second, Over: 10 * time.Second, Stop: 30 * time.Second, Beat: time.Second}

const (
	// publishTime is how long the share may take for a request.
	publishTime = 30 * time.Second
	// readsAtOnce is how many records are read side by side.
	readsAtOnce = 16
)

// Caller is the side of who asks, for one order.
type Caller struct {
	id      requestID
	dir     *signal.Dir
	job     signal.Job
	order   Order
	network lifeline.Network
	times   Times

	out, errs io.Writer
	each      func(rank int) io.Writer // see PerNode
	guest     *lifeline.Guest          // while Do runs
	nodes     []*answering             // in the order of their ranks, once the head has answered
}

// answering is how far one node's answer has been read.
type answering struct {
	Answer
	next      int // piece of output to be read
	out, errs *marker
}

// New returns a caller of a run with an order; out and errs get what the commands
// say.
func New(dir *signal.Dir, job signal.Job, order Order, network lifeline.Network, times Times, out, errs io.Writer) *Caller {
	return &Caller{
		id: newID(), dir: dir.Deaf(), job: job, order: order, network: network, times: times,
		out: zapcore.Lock(zapcore.AddSync(out)), errs: zapcore.Lock(zapcore.AddSync(errs)),
	}
}

// PerNode has what the commands print on standard output go to a writer of the node's own, unchanged, and not to out.
func (c *Caller) PerNode(each func(rank int) io.Writer) *Caller {
	c.each = each
	return c
}

// Do makes the request and passes on what the nodes say, until all have told how
// their command has ended. When ctx ends, the commands are ended, too, and
// waited for until again is closed. Where there is an error, nodes may be missing
// among the answers; it is one of this package's, the cause of ctx, the share's or
// the output's.
func (c *Caller) Do(ctx context.Context, again <-chan struct{}) ([]Answer, error) {
	tasks, work := errgroup.WithContext(context.WithoutCancel(ctx))
	self, _ := c.id.raw()
	c.guest = lifeline.Visit(work, c.dir.Secret(lifeline.SecretName), self, c.network, c.job.Lifeline)
	control := c.dir.Watch(signal.Control, signal.Pace{Fast: time.Second / 2, Steady: time.Second, Part: 8})
	tasks.Go(func() error { return cmp.Or(c.ask(work, tasks), errDone) })
	tasks.Go(func() error { control.Run(work); return nil })
	tasks.Go(func() error { return c.outwaitRun(work, control) })
	tasks.Go(func() error { return c.stayPresent(work) })
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
	case ctx.Err() != nil: // also where all have told their ends, which we have asked for
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

// ask makes the request and passes on what the nodes say.
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

// publish writes the request, and tells the head of it in Control.
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

// stayPresent tells that the caller is still there: over the connection to the head,
// or by files where there is none.
func (c *Caller) stayPresent(ctx context.Context) error {
	defer c.guest.Leave()
	for pause.For(ctx, c.times.Beat) {
		if !c.guest.Beat() {
			_ = c.dir.BeatAs(ctx, signal.Exec, c.id.name(whatBeat)) // the next one may get through
		}
	}
	return nil
}

// cancel has the commands ended early.
func (c *Caller) cancel(ctx context.Context) error {
	_ = c.dir.Mark(ctx, signal.Exec, c.id.name(whatCancel))
	c.guest.Nudge()
	return nil
}

// outwaitRun gives up on nodes that say no last words when the run ends.
func (c *Caller) outwaitRun(work context.Context, control *signal.Watch) error {
	_, err := control.Follow(work, func(l signal.Listing) bool {
		return l.Has(signal.NameDrain) || l.Has(signal.NameOver) || len(l.Aborts()) > 0
	})
	if err == nil {
		pause.For(work, c.times.Over)
	}
	return ErrRunOver
}

// awaitTaken waits for the head's answer.
func (c *Caller) awaitTaken(ctx context.Context, watch *signal.Watch) error {
	short, cancel := context.WithTimeoutCause(ctx, c.times.Taken, ErrNoAnswer)
	defer cancel()
	_, err := watch.Follow(short, func(l signal.Listing) bool { return c.shown(l)[whatTaken] })
	var taken takenRecord
	if err == nil {
		err = c.dir.Read(short, signal.Exec, c.id.name(whatTaken), &taken)
	}
	_ = c.dir.Discard(ctx, signal.Exec, c.id.name(whatRequest)) // it may hold what is not to stay
	switch {
	case err != nil && short.Err() != nil:
		return context.Cause(short)
	case err != nil:
		return err
	case taken.Refused != "":
		return fmt.Errorf("%w: %s", ErrRefused, taken.Refused)
	}
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

func (c *Caller) shown(l signal.Listing) shown { return requestsShown(l.Names(), "")[c.id] }

// follow passes on what the nodes say until all have told how it ended.
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

// read passes on what a listing shows of all nodes. It tells whether there was
// something: then there may be more by now.
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

// readNode passes on what a listing shows of one node, the next in order alone. Its
// error is that of the output: what can't be read now is there at the next look.
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
		_ = c.dir.Discard(ctx, signal.Exec, c.id.name(name)) // so that what goes on for long does not fill the share
	}
	var last outputRecord
	name := end(c.dir, node.Rank)
	if !shown[name] || c.dir.Read(ctx, signal.Exec, c.id.name(name), &last) != nil || last.End == nil ||
		node.next < last.End.Parts { // which are there, and the listing is older
		return nil
	}
	node.Answered, node.Exit = true, *last.End
	return node.pass(last.Pieces)
}

// pass passes on what the node has said.
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

// tidy passes on lines without an end, and removes what the head does not.
func (c *Caller) tidy(runOver bool) {
	for _, node := range c.nodes {
		_, _ = node.out.Close(), node.errs.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if len(c.nodes) == 0 { // nobody may have seen it: nobody is to
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
