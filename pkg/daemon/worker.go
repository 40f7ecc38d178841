package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// localJoin bounds the wait for the others where the log directory lies on a
// file system that lives on one machine alone, and the nodes do not.
const localJoin = 10 * time.Second

// runWorker is a daemon that is not the head; it returns its exit code.
func (n *node) runWorker() int {
	began := time.Now()
	n.lookEarly()
	err := n.phase("join", func() error { return n.join(began) })
	if _, second := errors.AsType[*outsider](err); second || n.dir == nil {
		return n.leaveAlone(err)
	}
	n.background(n.followControl(signal.BeatState))
	n.background(n.commands.FollowOrders)
	n.background(n.pulse(signal.Nodes, signal.BeatState))
	if err == nil {
		err = n.workerSequence(n.life)
	}
	if _, ok := errors.AsType[*outsider](context.Cause(n.life)); ok {
		n.stopAll(&ending{})
		return n.leaveAlone(context.Cause(n.life))
	}
	code := n.leave(n.agree(err))
	n.farewell()
	return code
}

// join finds the run directory that the head makes, and echoes its canary.
func (n *node) join(began time.Time) error {
	dir, job, waited, err := n.find()
	if err != nil {
		return err
	}
	seen := time.Now()
	n.trail.Event(trail.Saw, trail.Fields{Record: signal.NameJob})
	n.expectLine(job)
	n.begin(dir, "daemon", signal.WorkerPace(n.id.Size))
	if job.Size != n.id.Size {
		return failed(health.Launch, "cannot take part as %s of %d: the head runs %d nodes; start all ranks by one launch",
			n.name(n.id.Rank), n.id.Size, job.Size)
	}
	if job.Digest != n.cfg.digest() {
		mend := "give all ranks the same flags, variables and file"
		if job.Program != n.cfg.Program {
			mend += fmt.Sprintf(", and one bringupd: this is %s, and the head's is %s", n.cfg.Program, job.Program)
		}
		return failed(health.Usage, "cannot take part as %s: it was configured otherwise than the head; %s", n.name(n.id.Rank), mend)
	}
	address, _ := n.cfg.Address()
	err = n.claimed(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, signal.Joined), &signal.JoinedRecord{
		Canary: job.Nonce, Address: address, PID: os.Getpid(), Program: n.cfg.Program,
		Seen: seen.Sub(began), Answer: time.Since(seen), Waited: waited,
	})
	if errors.Is(err, signal.ErrTaken) {
		return n.second("another daemon of this rank has joined already")
	}
	if err != nil {
		return err
	}
	n.reached(signal.Joined)
	n.tie(job)
	return nil
}

// find waits for the run directory; where the log directory can't be shared, it
// waits for a short time only.
func (n *node) find() (dir *signal.Dir, job signal.Job, waited bool, err error) {
	ctx, cancel := context.WithTimeoutCause(n.life, n.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewFinder(n.place())
	short, cancelShort := context.WithTimeoutCause(ctx, localJoin, errDeadline)
	defer cancelShort()
	begin := time.Now()
	dir, job, err = finder.Find(short)
	if errors.Is(err, errDeadline) && ctx.Err() == nil && (n.id.Launcher == roles.Local || !finder.FileSystem(ctx).Local) {
		dir, job, err = finder.Find(ctx)
	}
	if errors.Is(err, errDeadline) {
		return nil, job, false, n.unseen(time.Since(begin), finder, err)
	}
	return dir, job, finder.Waited(), err
}

func (n *node) unseen(waited time.Duration, finder *signal.Finder, last error) *failure {
	ctx, cancel := context.WithTimeoutCause(n.work, sickShare, errDeadline)
	defer cancel()
	kind := finder.FileSystem(ctx)
	mend := "see whether the head's task has started and whether this is the same file system as on the head"
	if kind.Local && n.id.Launcher != roles.Local {
		mend = fmt.Sprintf("it is on %s there, which lives on one machine alone: give a --log-dir that all nodes share", kind.Name)
	}
	return failed(health.Share, "cannot meet the head: %s has not seen run %s in %s for %s: %s",
		n.name(n.id.Rank), n.id.RunName(), n.cfg.LogDir, waited.Round(time.Second/10), mend+lastLook(last))
}

// lastLook is what a wait's error adds to the deadline's own.
func lastLook(err error) string {
	said, only := strings.CutPrefix(err.Error(), errDeadline.Error())
	if only {
		return said
	}
	return " (" + said + ")"
}

func (n *node) place() signal.Place {
	return signal.Place{
		LogDir: n.cfg.LogDir, Run: n.id.RunName(), Key: n.id.Key,
		Rank: n.id.Rank, Size: n.id.Size, Host: n.id.Host, Access: n.cfg.Access,
	}
}

// workerSequence brings this node up and stays until the run ends. Its error
// is the *ending that was published, or what failed here.
func (n *node) workerSequence(ctx context.Context) error {
	if err := n.awaitLine(ctx); err != nil {
		return err
	}
	if err := n.prepare(ctx); err != nil {
		return err
	}
	if n.cfg.spares() {
		return n.standBy(ctx)
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return n.serveSandbox(ctx) })
	parts.Go(func() error {
		if !n.cfg.Framework.Serves() {
			return nil
		}
		endpoint, err := n.awaitHead(ctx)
		if err != nil {
			return err
		}
		return n.phase("workers", func() error { return n.serveWorker(ctx, endpoint, n.seat.Load()) })
	})
	if err := parts.Wait(); err != nil {
		return err
	}
	n.trail.Enter("driver")
	n.isUp("up")
	n.relax()
	<-n.life.Done()
	return context.Cause(n.life)
}

// relax has Control looked at rarely: nothing is expected there but the end.
func (n *node) relax() {
	n.control.Relax(n.tempo.Look)
	if n.line != nil {
		n.line.run(n.cfg.Times.outwaits())
	}
}

// awaitHead waits until the head's service is up.
func (n *node) awaitHead(ctx context.Context) (framework.Endpoint, error) {
	var endpoint framework.Endpoint
	err := n.phase("head", func() error {
		within := n.cfg.checkTime() + n.cfg.Times.Service + n.tempo.Silent
		ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		n.control.Nudge() // it may have been there before us
		_, err := n.control.Wait(ctx, func(l signal.Listing) bool { return l.Has(signal.NameHead) })
		if errors.Is(err, errDeadline) {
			return failed(health.Deadline, "%s waited %s for the service of the head, %s, which neither came up nor failed",
				n.name(n.id.Rank), within, n.name(0))
		}
		if err != nil {
			return err
		}
		var record signal.HeadRecord
		err = n.dir.Read(ctx, signal.Control, signal.NameHead, &record)
		if errors.Is(err, errDeadline) {
			return failed(health.Share, "%v", err)
		}
		if err != nil {
			return err
		}
		endpoint = framework.Endpoint{Address: record.Address, Env: record.Env}
		n.surroundings.Store(&surroundings{endpoint: endpoint})
		return nil
	})
	return endpoint, err
}

// followControl ends this node's life when the head, or a peer that lost the
// head, publishes the end, and when the head's beats stop. A head that dies
// after it has published the end is waited for no longer. own is the state that
// this daemon's own beats tell.
func (n *node) followControl(own string) func(ctx context.Context) {
	return func(ctx context.Context) {
		liveness := health.NewLiveness(n.tempo)
		ends, note := false, n.trail.Sightings()
		_, _ = n.control.Follow(ctx, func(l signal.Listing) bool {
			note(l, n.id.Size)
			liveness.Look(map[int]int64{0: l.Beats(signal.BeatState)[0]}, l.At)
			if n.line != nil {
				if at, heard := n.line.last(0, l.At); heard {
					liveness.Hear(0, at)
				}
			}
			lost := len(liveness.Silent()) > 0
			ends = ends || n.published(ctx, l, !lost && !n.bereft())
			if !lost {
				return false
			}
			if ends {
				n.orphan(n.lossOfHead(ctx, liveness.Quiet(0)))
				return true
			}
			n.loseHead(ctx, own, n.lossOfHead(ctx, liveness.Quiet(0)))
			return false
		})
	}
}

// bereft tells whether no word of the head's is to be waited for, before its
// silence says so.
func (n *node) bereft() bool {
	how, parted := n.parted()
	return n.forsaken.Load() || parted && how != lifeline.Broken
}

// parted tells whether this node had a lifeline that has ended, and how.
func (n *node) parted() (how lifeline.Parting, parted bool) {
	if n.line == nil {
		return 0, false
	}
	known, ever := n.line.of(0)
	return known.parting, ever && !known.connected
}

// published tells whether the listing shows an end, and ends this node by it.
//
// The head's word comes first: a peer whose mount has hung may have published
// an abort that comes after the orderly end, or that the head, which knows
// better, is about to end the run in another way. While the head is heard, a
// peer's word is its affair. But where the lifeline has broken and a peer says
// that the head is lost, two know of it.
func (n *node) published(ctx context.Context, l signal.Listing, heard bool) bool {
	aborts := l.Aborts()
	byHead := len(aborts) > 0 && aborts[0] == 0
	if l.Has(signal.NameDrain) && !byHead {
		n.finish(endingByDrain())
		return true
	}
	_, parted := n.parted()
	heard = heard && !byHead
	if len(aborts) > 0 && (!heard || parted) {
		ctx, cancel := context.WithTimeoutCause(ctx, n.tempo.Silent, errDeadline)
		defer cancel()
		var record signal.AbortRecord
		err := n.dir.Read(ctx, signal.Control, signal.AbortName(aborts[0], n.id.Size), &record)
		if hangs(err) {
			return false // what it says is known when our own mount answers
		}
		if err != nil {
			record = signal.AbortRecord{Code: health.OutcomeOf(health.Aborted).Code, Word: string(health.Aborted)}
			record.Cause = asFailure(err).FailedRecord
		}
		if heard && !slices.Contains(record.Cause.Lost, 0) {
			return false
		}
		n.finish(endingFrom(record))
		return true
	}
	return false
}

// loseHead ends this node by the loss of the head and tells the others, once a
// write has proven that it is not this node's own mount that is sick. That the
// node is cut off needs no such proof, which could not be had. A node that ends
// already waits for the head no longer.
func (n *node) loseHead(ctx context.Context, own string, f *failure) {
	if f.Kind != string(health.CutOff) {
		if err := n.beat(ctx, signal.Nodes, own); err != nil {
			n.end(asFailure(err))
			return
		}
		f.Lost = []int{0}
	}
	if n.life.Err() != nil {
		n.orphan(f)
	}
	n.end(f)
}

// agree returns the end that this node takes part in: the published one, also
// where something failed here, because the job has one code. Where none comes,
// this node publishes its own.
func (n *node) agree(err error) *ending {
	var end *ending
	if errors.As(err, &end) {
		return end
	}
	f := n.report(err, signal.Failed)
	if errors.As(context.Cause(n.ended), &end) {
		return end
	}
	n.log.Info(f.What, zap.String("kind", f.Kind)) // people are told at the end
	if n.dispensable(f) {
		return n.standAside(f)
	}
	if told := n.awaitEnd(f); told != nil {
		return told
	}
	end = n.reconsider(endingOf(health.Decide([]health.Observed{{FailedRecord: f.FailedRecord}}, n.id.HostOf)))
	end.phase = f.Phase
	if told := n.claim(end); told != nil {
		return told
	}
	_ = n.publishAbort(end) // which it has logged
	return end
}

// claim makes an end of this node's the run's where there is no head to make
// one: by the result, which is written once. Another node that was first is
// about to publish its end, which is returned. A node whose own mount hangs
// claims nothing: its claim would come when the others have gone on.
func (n *node) claim(end *ending) *ending {
	n.forsaken.Store(true)
	if end.cause.Kind == string(health.Share) || n.silence() > sickShare {
		return nil
	}
	result := n.result(end)
	result.Advice = n.account(end, result).Advise()
	err := n.publishResult(result)
	if !errors.Is(err, signal.ErrTaken) {
		n.logged(err)
		end.result = result
		end.claimed = err == nil
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(n.hurry, n.tempo.Silent, errDeadline)
	defer cancel()
	if told := n.awaitEnded(ctx, n.tempo.Silent/2); told != nil {
		return told
	}
	told := n.endByResult()
	if told != nil {
		_ = n.publishAbort(told) // which it has logged
	}
	return told
}

// endByResult is the end that a node has claimed which died before it could publish
// it; nil where that can't be read.
func (n *node) endByResult() *ending {
	ctx, cancel := context.WithTimeoutCause(n.hurry, sickShare, errDeadline)
	defer cancel()
	var result signal.Result
	names, err := n.dir.Names(ctx, "")
	if err != nil || !slices.Contains(names, signal.NameResult) {
		return nil
	}
	if err := n.dir.Read(ctx, "", signal.NameResult, &result); err != nil || result.Cause == nil {
		return nil
	}
	return endingFrom(signal.AbortRecord{Code: result.Code, Word: result.Word, Cause: *result.Cause, Nodes: result.Nodes})
}

// awaitEnded waits for a published end, while the share answers within most;
// nil where none comes.
func (n *node) awaitEnded(ctx context.Context, most time.Duration) *ending {
	ctx, stop := n.whileAnswered(ctx, most)
	defer stop()
	n.control.Quicken()
	// Where the end has not come by then, it may be as far as the driver's grace
	// is long.
	relax := time.AfterFunc(endTime, func() { n.control.Relax(n.tempo.Look) })
	defer relax.Stop()
	select {
	case <-n.ended.Done():
	case <-ctx.Done():
	}
	end, _ := errors.AsType[*ending](context.Cause(n.ended))
	return end
}

// awaitEnd waits for the end that the head makes of a failure here. It returns
// nil where there is no head to make one, or no share to hear it by.
func (n *node) awaitEnd(f *failure) *ending {
	kind := health.Kind(f.Kind)
	if health.Loss(kind) || kind == health.Share {
		return nil
	}
	if n.silence() > sickShare {
		return nil
	}
	patience, most := n.tempo.Silent, n.tempo.Silent/2
	if gentle(kind) {
		// What runs here serves the driver as long as that saves its work, also
		// while the share is silent for no longer than a peer may be.
		patience += n.cfg.Times.DriverGrace
		most = max(most, min(n.cfg.Times.DriverGrace, n.tempo.Silent))
	}
	ctx, cancel := context.WithTimeoutCause(n.led, patience, errDeadline)
	defer cancel()
	return n.awaitEnded(ctx, most)
}

// leave tears this node down for the end, tells, and returns the exit code.
func (n *node) leave(end *ending) int {
	n.trail.Enter("drain")
	n.finish(end)
	if n.tied() {
		n.control.Relax(n.tempo.Look)
	}
	left := n.stopAll(end)
	n.keepEvidence(end)
	n.log.Info("this node is done", zap.String("why", end.why), zap.Strings("left", left))
	n.ownWords(end, left)
	code := end.code
	if end.orderly {
		code = 0
	}
	n.trail.Event(trail.End, trail.Fields{Code: &code})
	n.trail.Sync()
	n.logged(n.publish(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, signal.Done), &signal.DoneRecord{Left: left, Share: n.asks()}, false))
	if end.orderly {
		return code
	}
	if end.claimed {
		n.noteBadNodes(end)
		n.afterwards(end)
	}
	n.awaitOver(end)
	return code
}

// awaitOver keeps a failing daemon until the head has written the result and
// ended the driver: Slurm kills a step at its first task that exits with a
// code. It waits no longer than the head's graces, and not for a head that is
// lost. Where the share does not tell, it waits if there is a driver that was
// asked to end and may be saving its work.
func (n *node) awaitOver(end *ending) {
	if end.cause != nil && len(end.cause.Lost) > 0 && end.cause.Lost[0] == 0 {
		return
	}
	if !end.gentle && n.silence() > sickShare {
		return
	}
	most := n.cfg.Times.driverGrace(end) + n.cfg.Times.StopGrace
	if aborts := n.control.Last().Aborts(); len(aborts) > 0 && aborts[0] == 0 {
		most = endTime // a head that was told to end says so when its driver has ended
	}
	ctx, cancel := context.WithTimeoutCause(n.led, most+n.cfg.Requeue.longest(), errDeadline)
	defer cancel()
	if !end.gentle {
		var stop context.CancelFunc
		ctx, stop = n.whileAnswered(ctx, n.tempo.Silent)
		defer stop()
	}
	wait := n.control.Wait
	if n.tied() {
		wait = n.control.Follow
	}
	_, _ = wait(ctx, func(l signal.Listing) bool { return l.Has(signal.NameOver) })
}

// tied tells whether the head's farewell will be heard, so that nobody need look
// for what comes before it.
func (n *node) tied() bool { return n.line != nil && n.line.calm(time.Now()) }

// leaveAlone ends a worker that could not even join: nobody else can tell it a
// code.
func (n *node) leaveAlone(err error) int {
	if end, ok := errors.AsType[*ending](context.Cause(n.life)); ok {
		return end.code
	}
	f := asFailure(err)
	f.Rank, f.Host, f.Phase = n.id.Rank, n.id.Host, n.trail.Phase()
	outcome := health.OutcomeOf(health.Kind(f.Kind))
	n.aloneWords(&ending{code: outcome.Code, word: outcome.Word, why: f.What, cause: &f.FailedRecord})
	if n.cfg.spares() && n.id.Rank > 0 && f.Kind == string(health.Share) {
		n.log.Warn("the job may go on without this node, which leaves with 0 for it")
		return 0
	}
	return outcome.Code
}

// hostsOf is a list of ranks as people read it.
func (n *node) hostsOf(ranks []int) string {
	hosts := make([]string, 0, len(ranks))
	for _, rank := range ranks {
		if host := n.id.HostOf(rank); host != "" {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) < len(ranks) || n.id.Launcher == roles.Local {
		return prose.Ranks(ranks)
	}
	return roles.CompactNodeList(hosts)
}
