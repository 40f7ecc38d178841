package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Order is a command, and where it is to run.
type Order struct {
	Argv  []string
	Env   []string // on top of the node's environment
	Nodes []string // ranks or hosts, signal.ExecAll or signal.ExecHead
}

// Outcome is what became of an order.
type Outcome struct {
	Nodes []Node // in the order of their ranks
}

// Node is what became of it on one node.
type Node struct {
	signal.ExecNode
	Answered bool
	Exit     signal.ExecExit // where it answered
}

// What ends a request from this side, or without an answer.
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

// Times are how long a request waits, and for what.
type Times struct {
	Taken time.Duration // for the head to look at it
	Over  time.Duration // for the nodes' last words, when the run ends
	Stop  time.Duration // for the same, when the command is to end early
	Beat  time.Duration // between two signs that we are still there
}

// UsualTimes are those of the command line. The graces of children are ten
// seconds at most, unless somebody says otherwise.
var UsualTimes = Times{Taken: 30 * time.Second, Over: 10 * time.Second, Stop: 30 * time.Second, Beat: time.Second}

// Request is one order on its way.
type Request struct {
	dir     *signal.Dir
	job     signal.Job
	order   Order
	network lifeline.Network
	times   Times
	id      signal.ExecID

	out, errs *sink

	guest chan *lifeline.Guest // holds the connection, once there is one

	mu     sync.Mutex
	size   int
	nodes  map[int]*progress
	failed error // the output can't be written
}

// progress is how far one node's answer has been read.
type progress struct {
	node Node
	next int // part to be read
	busy bool
}

// New returns a request to a run for an order; out and errs get what the
// commands say.
func New(dir *signal.Dir, job signal.Job, order Order, network lifeline.Network, times Times, out, errs io.Writer) *Request {
	return &Request{
		dir: dir.Deaf(), job: job, order: order, network: network, times: times, id: signal.NewExecID(), size: job.Size,
		out: newSink(out), errs: newSink(errs), guest: make(chan *lifeline.Guest, 1), nodes: make(map[int]*progress),
	}
}

// ID returns what tells the request from all others.
func (r *Request) ID() signal.ExecID { return r.id }

// Do makes the request and passes on what the nodes say, until all have told how
// their command has ended. When ctx ends, the commands are ended, too, and
// waited for until again is closed.
func (r *Request) Do(ctx context.Context, again <-chan struct{}) (Outcome, error) {
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var tasks sync.WaitGroup
	background := func(task func(context.Context)) { tasks.Go(func() { task(work) }) }
	watch := r.dir.Watch(signal.Exec, signal.HeadPace)
	control := r.dir.Watch(signal.Control, signal.Pace{Fast: time.Second / 2, Steady: time.Second, Part: 8})
	background(control.Run)
	background(r.connect)
	background(r.beat)
	background(func(work context.Context) {
		select {
		case <-work.Done():
			return
		case <-ctx.Done():
		}
		background(r.cancel)
		r.giveUp(work, end, again)
	})
	background(func(ctx context.Context) { r.followRun(ctx, control, end) })
	err := r.publish(work)
	if err == nil {
		background(watch.Run)
		err = r.follow(work, watch)
	}
	outcome := r.outcome()
	r.close(outcome, errors.Is(err, ErrRunOver))
	end(errDone)
	tasks.Wait()
	if ctx.Err() != nil { // also where all have told their ends, which we have asked for
		err = context.Cause(ctx)
	}
	return outcome, err
}

// publishTime is how long the share may take for a request.
const publishTime = 30 * time.Second

// publish writes the request, and tells the head of it in Control.
func (r *Request) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, publishTime, errors.New("the share does not answer"))
	defer cancel()
	if err := r.dir.MakeExec(ctx); err != nil {
		return err
	}
	record := &signal.ExecRequest{Argv: r.order.Argv, Env: r.order.Env, Nodes: r.order.Nodes}
	if err := r.dir.Publish(ctx, signal.Exec, r.id.RequestName(), record, false); err != nil {
		return err
	}
	r.nudge()
	return r.dir.Mark(ctx, signal.Control, r.id.CallName())
}

// withGuest does something with the connection, where there is one.
func (r *Request) withGuest(do func(*lifeline.Guest)) {
	select {
	case guest := <-r.guest:
		do(guest)
		r.guest <- guest
	default:
	}
}

func (r *Request) nudge() { r.withGuest((*lifeline.Guest).Nudge) }

// connect makes the connection to the head, where it offers one. What was
// published before is nudged for.
func (r *Request) connect(ctx context.Context) {
	self, _ := r.id.Bytes()
	guest, err := lifeline.Visit(ctx, r.dir.Nonce(), self, r.network, r.job.Lifeline)
	if err != nil || guest == nil {
		return
	}
	r.guest <- guest
	guest.Nudge()
	<-ctx.Done()
	guest = <-r.guest
	guest.Leave()
}

// beat tells that we are still there: over the connection, or by files where
// there is none.
func (r *Request) beat(ctx context.Context) {
	tick := time.NewTicker(r.times.Beat)
	defer tick.Stop()
	for n := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		well := false
		r.withGuest(func(g *lifeline.Guest) {
			select {
			case <-g.Ended():
			default:
				g.Beat()
				well = true
			}
		})
		if !well {
			n++
			_ = r.dir.BeatExec(ctx, r.id, n) // the next one may get through
		}
	}
}

// cancel has the commands ended early.
func (r *Request) cancel(ctx context.Context) {
	_ = r.dir.Mark(ctx, signal.Exec, r.id.CancelName())
	r.nudge()
}

// giveUp waits no longer for commands that were to end early than that may take.
func (r *Request) giveUp(ctx context.Context, end context.CancelCauseFunc, again <-chan struct{}) {
	patience := time.NewTimer(r.times.Stop)
	defer patience.Stop()
	select {
	case <-ctx.Done():
	case <-again:
		end(ErrLate)
	case <-patience.C:
		end(ErrLate)
	}
}

// followRun gives up when the run ends and its nodes say no last words.
func (r *Request) followRun(ctx context.Context, control *signal.Watch, end context.CancelCauseFunc) {
	_, err := control.Follow(ctx, func(l signal.Listing) bool {
		return l.Has(signal.NameDrain) || l.Has(signal.NameOver) || len(l.Aborts()) > 0
	})
	if err != nil {
		return
	}
	patience := time.NewTimer(r.times.Over)
	defer patience.Stop()
	select {
	case <-ctx.Done():
	case <-patience.C:
		end(ErrRunOver)
	}
}

// follow passes on what the nodes say until all have told how it ended.
func (r *Request) follow(ctx context.Context, watch *signal.Watch) error {
	if err := r.awaitTaken(ctx, watch); err != nil {
		return err
	}
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	defer func() { _ = reads.Wait() }()
	all, done := context.WithCancelCause(ctx)
	defer done(nil)
	_, err := watch.Follow(all, func(l signal.Listing) bool {
		shown := l.Execs()[r.id]
		if shown == nil {
			return false
		}
		for _, rank := range r.ready(shown) {
			reads.Go(func() error {
				more := r.read(ctx, rank, shown)
				if complete, err := r.complete(); complete || err != nil {
					done(cmp.Or(err, errDone))
				} else if more {
					watch.NudgeWithin(0)
				}
				return nil
			})
		}
		if shown.Lost && len(shown.Ends) < len(r.nodes) {
			r.readLost(ctx)
			complete, _ := r.complete()
			return complete
		}
		return false
	})
	if cause := context.Cause(all); err != nil && !errors.Is(cause, errDone) {
		return cause
	}
	return nil
}

// readsAtOnce is how many nodes' output is read side by side.
const readsAtOnce = 16

// awaitTaken waits for the head's answer.
func (r *Request) awaitTaken(ctx context.Context, watch *signal.Watch) error {
	short, cancel := context.WithTimeoutCause(ctx, r.times.Taken, ErrNoAnswer)
	defer cancel()
	_, err := watch.Follow(short, func(l signal.Listing) bool {
		shown := l.Execs()[r.id]
		return shown != nil && shown.Taken
	})
	var taken signal.ExecTaken
	if err == nil {
		err = r.dir.Read(short, signal.Exec, r.id.TakenName(), &taken)
	}
	_ = r.dir.Discard(ctx, signal.Exec, r.id.RequestName()) // it may hold what is not to stay
	switch {
	case err != nil && short.Err() != nil:
		return context.Cause(short)
	case err != nil:
		return err
	case taken.Refused != "":
		return fmt.Errorf("%w: %s", ErrRefused, taken.Refused)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range taken.Nodes {
		r.nodes[node.Rank] = &progress{node: Node{ExecNode: node}}
	}
	return nil
}

// ready returns the ranks of which there is something to read that nobody does.
func (r *Request) ready(shown *signal.ExecShown) (ranks []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank, p := range r.nodes {
		if p.busy || p.node.Answered || !slices.Contains(shown.Parts[rank], p.next) && !slices.Contains(shown.Ends, rank) {
			continue
		}
		p.busy = true
		ranks = append(ranks, rank)
	}
	return ranks
}

// read passes on what a listing shows of one node. It tells whether that was all
// that was to be read, or there may be more by now.
func (r *Request) read(ctx context.Context, rank int, shown *signal.ExecShown) (more bool) {
	r.mu.Lock()
	p := r.nodes[rank]
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		p.busy = false
	}()
	for slices.Contains(shown.Parts[rank], p.next) { // the next in order alone
		name := r.id.PartName(rank, r.size, p.next)
		var part signal.ExecOutput
		if err := r.dir.Read(ctx, signal.Exec, name, &part); err != nil {
			return false
		}
		r.pass(p, part.Pieces)
		p.next++
		_ = r.dir.Discard(ctx, signal.Exec, name) // so that what goes on for long does not fill the share
	}
	if !slices.Contains(shown.Ends, rank) {
		return true
	}
	var last signal.ExecOutput
	if err := r.dir.Read(ctx, signal.Exec, r.id.EndName(rank, r.size), &last); err != nil || last.End == nil {
		return false
	}
	if p.next < last.End.Parts { // they are there, and the listing was older
		return true
	}
	r.pass(p, last.Pieces)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.node.Answered, p.node.Exit = true, *last.End
	return true
}

// readLost learns who will not answer any more.
func (r *Request) readLost(ctx context.Context) {
	var lost signal.ExecLost
	if err := r.dir.Read(ctx, signal.Exec, r.id.LostName(), &lost); err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range lost.Ranks {
		if p := r.nodes[rank]; p != nil && !p.node.Answered {
			p.node.Answered = true
			p.node.Exit = signal.ExecExit{Code: lostCode, Exit: "lost", Failed: "the node is lost"}
		}
	}
}

// lostCode is that of a node which is lost: bringupd's own code for it.
const lostCode = 76

// pass passes on what a node has said; each line with the node's name before it
// where there is more than one.
func (r *Request) pass(p *progress, pieces []signal.ExecPiece) {
	prefix := ""
	if len(r.nodes) > 1 {
		prefix = p.node.Host + ": "
	}
	for _, piece := range pieces {
		to := r.out
		if piece.Stream == 2 {
			to = r.errs
		}
		if err := to.write(p.node.Rank, prefix, piece.Data); err != nil {
			r.mu.Lock()
			r.failed = err
			r.mu.Unlock()
		}
	}
}

// complete tells whether all nodes have answered; its error is that their output
// can't be written.
func (r *Request) complete() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.nodes {
		if !p.node.Answered {
			return false, r.failed
		}
	}
	return true, r.failed
}

func (r *Request) outcome() (all Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(r.nodes)) {
		all.Nodes = append(all.Nodes, r.nodes[rank].node)
	}
	return all
}

// close passes on lines without an end, and tidies up where the head does not.
func (r *Request) close(outcome Outcome, runOver bool) {
	for _, node := range outcome.Nodes {
		_ = r.out.flush(node.Rank)
		_ = r.errs.flush(node.Rank)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if len(outcome.Nodes) == 0 { // nobody may have seen it: nobody is to
		_ = r.dir.Discard(ctx, signal.Exec, r.id.RequestName())
		_ = r.dir.Discard(ctx, signal.Control, r.id.CallName())
	}
	if !runOver {
		return
	}
	if shown, err := r.dir.LookExec(ctx); err == nil && shown[r.id] != nil {
		_ = r.dir.Discard(ctx, signal.Exec, shown[r.id].Names...)
	}
}
