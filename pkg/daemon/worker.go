package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// localJoin replaces the join timeout if the log directory is on a local file system, but the
// launcher starts daemons on several machines: then waiting longer is useless.
const localJoin = 10 * time.Second

// run runs a worker's daemon to its end.
func (w *worker) run() run.Exit {
	began := time.Now()
	w.fitness.lookEarly()
	err := w.Phase("join", func() error { return w.join(began) })
	if _, second := errors.AsType[*outsider](err); second || w.Dir == nil {
		return run.Exit{Code: w.leaveAlone(err), Second: second}
	}
	w.Background(w.followControl(signal.BeatState))
	w.Background(w.commands.FollowOrders)
	w.Background(w.pulse(signal.Nodes, signal.BeatState))
	if err == nil {
		err = w.sequence(w.Life)
	}
	if _, ok := errors.AsType[*outsider](context.Cause(w.Life)); ok {
		w.stopAll(&run.Ending{})
		return run.Exit{Code: w.leaveAlone(context.Cause(w.Life)), Second: true}
	}
	end := w.agree(err)
	code := w.leave(end)
	w.farewell()
	return run.Exit{Code: code, End: end}
}

// join finds the head's run directory, verifies that both daemons were launched with the same size
// and configuration, and publishes that this node has joined. The record contains the random value
// (canary) that the head has written, which proves that this node can read it. began is when the
// daemon started.
func (w *worker) join(began time.Time) error {
	dir, job, waited, err := w.find()
	if err != nil {
		return err
	}
	// Start the tasks that need the run directory, so that also a refusal can be published.
	seen := time.Now()
	w.Trail.Event(trail.Saw, trail.Fields{Record: signal.NameJob})
	w.expectLine(job)
	w.begin(dir, "daemon", signal.WorkerPace(w.id.Size))
	if job.Size != w.id.Size {
		return health.Failed(health.Launch, "cannot take part as %s of %d: the head runs %d nodes; start all ranks by one launch",
			w.name(w.id.Rank), w.id.Size, job.Size)
	}
	if job.Digest != w.cfg.Digest() {
		mend := "give all ranks the same flags, variables and file"
		if job.Program != w.cfg.Program {
			mend += fmt.Sprintf(", and one bringupd: this is %s, and the head's is %s", w.cfg.Program, job.Program)
		}
		return health.Failed(health.Usage, "cannot take part as %s: it was configured otherwise than the head; %s", w.name(w.id.Rank), mend)
	}
	// Publish that this node has joined, unless another daemon has done so under this index.
	address, _ := w.cfg.Address()
	err = w.Claim(signal.Nodes, signal.NodeName(w.id.Rank, w.id.Size, signal.Joined), &signal.JoinedRecord{
		Canary: job.Nonce, Address: address, PID: os.Getpid(), Program: w.cfg.Program,
		Seen: seen.Sub(began), Answer: time.Since(seen), Waited: waited,
	})
	if errors.Is(err, signal.ErrTaken) {
		return w.second("another daemon of this rank has joined already")
	}
	if err != nil {
		return err
	}
	w.tie(job)
	return nil
}

// find waits for the run directory and reads the job record. It waits only for localJoin if the log
// directory is on a local file system that the nodes cannot share. waited reports that the
// directory was missing at the first poll.
func (w *worker) find() (dir *signal.Dir, job signal.Job, waited bool, err error) {
	ctx, cancel := context.WithTimeoutCause(w.Life, w.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewFinder(w.cfg.Place())
	short, cancelShort := context.WithTimeoutCause(ctx, localJoin, errDeadline)
	defer cancelShort()
	begin := time.Now()
	dir, job, err = finder.Find(short)
	if errors.Is(err, errDeadline) && ctx.Err() == nil && (w.id.Launcher == roles.Local || !finder.FileSystem(ctx).Local) {
		dir, job, err = finder.Find(ctx)
	}
	if errors.Is(err, errDeadline) {
		return nil, job, false, w.unseen(time.Since(begin), finder, err)
	}
	return dir, job, finder.Waited(), err
}

// unseen returns the failure that the run directory has not appeared for waited, with a hint at the
// probable reason. last is the error of the wait.
func (w *worker) unseen(waited time.Duration, finder *signal.Finder, last error) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(w.Work, run.SickShare, errDeadline)
	defer cancel()
	kind := finder.FileSystem(ctx)
	mend := "see whether the head's task has started and whether this is the same file system as on the head"
	if kind.Local && w.id.Launcher != roles.Local {
		mend = fmt.Sprintf("it is on %s there, which lives on one machine alone: give a --log-dir that all nodes share", kind.Name)
	}
	return health.Failed(health.Share, "cannot meet the head: %s has not seen run %s in %s for %s: %s",
		w.name(w.id.Rank), w.id.RunName(), w.cfg.LogDir, waited.Round(time.Second/10), mend+lastLook(last))
}

// lastLook returns the text of a wait's error without that of errDeadline. The rest describes the
// last poll.
func lastLook(err error) string {
	said, only := strings.CutPrefix(err.Error(), errDeadline.Error())
	if only {
		return said
	}
	return " (" + said + ")"
}

// sequence brings this node up, and returns when its part in the run ends. The error is the
// published *run.Ending, or the failure of this node.
func (w *worker) sequence(ctx context.Context) error {
	if err := w.awaitLine(ctx); err != nil {
		return err
	}
	if err := w.fitness.prepare(ctx); err != nil {
		return err
	}
	if err := w.survey(); err != nil {
		return err
	}
	if w.cfg.Spares() {
		return w.standBy(ctx)
	}
	// Bring up the sandbox and the worker service concurrently.
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return w.serveSandbox(ctx) })
	parts.Go(func() error {
		if !w.cfg.Framework.Serves() {
			return nil
		}
		// Start the worker's process in advance. An error is reported when the head is up.
		ahead, _ := w.workerOf(framework.Endpoint{}, w.post.Seat.Load())
		w.children.Warm(ctx, ahead)
		endpoint, err := w.awaitHead(ctx)
		if err != nil {
			return err
		}
		return w.Phase("workers", func() error { return w.serveWorker(ctx, endpoint, w.post.Seat.Load()) })
	})
	if err := parts.Wait(); err != nil {
		return err
	}
	// Run the ranks of this node, if any, and wait for the end of the run.
	w.Trail.Enter("driver")
	w.isUp("up")
	if err := w.joinWorld(w.Life); err != nil {
		return err
	}
	w.relax()
	<-w.Life.Done()
	return context.Cause(w.Life)
}

// awaitLine waits until the peer link is up, if the configuration requires one.
func (w *worker) awaitLine(ctx context.Context) error {
	if w.cfg.Lifeline != config.LifelineOn {
		return nil
	}
	const what, mend = "cannot hold a lifeline", ", or give --lifeline=auto"
	if w.line == nil {
		return health.Failed(health.Launch, "%s: the head, %s, offers none; %s%s",
			what, w.name(0), openPorts, mend)
	}
	return w.held(ctx, what, mend)
}

// openPorts is the advice to the user if a peer link cannot be made.
const openPorts = "let the nodes connect to each other's ports"

// held waits until the peer link is up for the first time, at most for the peer timeout from the
// first attempt to connect. The message of its failure begins with what, which names the action
// that needs the link, and ends with mend, an additional remedy.
func (w *worker) held(ctx context.Context, what, mend string) error {
	ctx, cancel := context.WithDeadlineCause(ctx, w.line.began.Add(w.cfg.Times.Peer), errDeadline)
	defer cancel()
	if pause.Await(ctx, w.line.up) {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return cause
	}
	return health.Failed(health.Launch, "%s: %s could not reach the head at %v within %s; %s%s",
		what, w.name(w.id.Rank), w.line.tried, w.cfg.Times.Peer, openPorts, mend)
}
