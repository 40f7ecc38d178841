package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// headLine takes in what a worker's lifeline tells of the head.
type headLine struct{ *worker }

// Connected notes that the head can be heard. What it said while it could not
// is in Control.
func (p *headLine) Connected() {
	p.line.Connect(0)
	p.Control.Nudge()
	p.Trail.Event(trail.Line, trail.Fields{Up: new(true)})
	p.line.once.Do(func() { close(p.line.up) })
}

// Heard notes a sign of life, and has the node look at Control where it is nudged.
// Where there are many nodes, not all of them do in the same moment.
func (p *headLine) Heard(nudge bool) {
	p.line.Hear(0, false)
	if !nudge {
		return
	}
	if p.id.Size <= fewAtOnce {
		p.Control.Nudge()
		return
	}
	p.Control.NudgeWithin(time.Duration(p.id.Size) * lookCost)
}

// Gone has the node see why: the end may have been published. A head whose
// kernel has closed the connection, and that is not back, has died.
//
// One that never held the connection has not proven to be the head, and what is
// in between may reset a connection, or end one, and refuse the next: its beats
// must have stopped, too.
func (p *headLine) Gone(how lifeline.Parting) {
	_, ever := p.line.Of(0)
	if ever {
		p.line.Part(0, how)
	}
	if how == lifeline.Left && p.Ended.Err() != nil {
		p.Orphan(errFarewell) // as this node is about to
		return
	}
	p.Trail.Event(trail.Line, trail.Fields{Up: new(false), How: how.String()})
	p.Control.Quicken()
	p.Control.Nudge()
	switch {
	case !ever:
		p.Background(p.withoutHead(p.tempo.Silent/2, p.head().TurnsAway()))
	case how == lifeline.Closed || how == lifeline.Refused:
		p.Background(p.withoutHead(0, p.head().Closed()))
	case how == lifeline.Broken:
		p.Background(p.withoutHead(p.tempo.Silent/2, p.head().Reset()))
	case how == lifeline.Left:
		p.Background(p.withoutHead(0, p.head().Left()))
	}
}

// errFarewell is why nothing more is to be heard of a head.
var errFarewell = errors.New("the head has ended in order")

// Over records by which code the run ends. After a failure the share says more, or that the head could
// not say why (see withoutHead), unless it is silent. It may only seem so to a daemon that was stopped.
func (p *headLine) Over(code int) {
	p.line.over.Store(int32(code) + 1)
	if code == 0 && !p.id.Launcher.Traits().RelaunchesEach {
		p.finish(run.EndingByCode(code))
	} else if p.Silence() > p.tempo.Silent/2 {
		p.Background(func(ctx context.Context) {
			if !p.Answers(ctx, p.tempo.Silent/2) {
				p.finish(run.EndingByCode(code))
			}
		})
	}
}

// Rejected ends a daemon that is the second one of its rank.
func (p *headLine) Rejected(reason string) {
	p.End(p.second(reason))
}

// followControl ends this node's life when the head, or a peer that lost the
// head, publishes the end, and when the head's beats stop. A head that dies
// after it has published the end is waited for no longer. own is the state that
// this daemon's own beats tell.
func (w *worker) followControl(own string) func(ctx context.Context) {
	return func(ctx context.Context) {
		liveness := health.NewLiveness(w.tempo)
		ends, note := false, w.Trail.Sightings()
		_, _ = w.Control.Follow(ctx, func(l signal.Listing) bool {
			note(l, w.id.Size)
			liveness.Look(map[int]int64{0: l.Beats(signal.BeatState)[0]}, l.At)
			if w.line != nil {
				if at, heard := w.line.Last(0, l.At); heard {
					liveness.Hear(0, at)
				}
			}
			lost := len(liveness.Silent()) > 0
			ends = ends || w.published(ctx, l, !lost && !w.bereft())
			if !lost {
				return false
			}
			if ends {
				w.Orphan(w.lossOfHead(ctx, liveness.Quiet(0)))
				return true
			}
			w.loseHead(ctx, own, w.lossOfHead(ctx, liveness.Quiet(0)))
			return false
		})
	}
}

// published tells whether the listing shows an end, and ends this node by it.
//
// The head's word comes first: a peer whose mount has hung may have published
// an abort that comes after the orderly end, or that the head, which knows
// better, is about to end the run in another way. While the head is heard, a
// peer's word is its affair. But where the lifeline has broken and a peer says
// that the head is lost, two know of it.
func (w *worker) published(ctx context.Context, l signal.Listing, heard bool) bool {
	aborts := l.Aborts()
	byHead := len(aborts) > 0 && aborts[0] == 0
	if l.Has(signal.NameDrain) && !byHead {
		return w.drained(ctx)
	}
	_, parted := w.parted()
	heard = heard && !byHead
	if len(aborts) > 0 && (!heard || parted) {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		var record signal.AbortRecord
		err := w.Dir.Read(ctx, signal.Control, signal.AbortName(aborts[0], w.id.Size), &record)
		if signal.Stalled(err) {
			return false // what it says is known when our own mount answers
		}
		if err != nil {
			record = signal.AbortRecord{Code: health.OutcomeOf(health.Aborted).Code, Word: string(health.Aborted)}
			record.Cause = health.AsFailure(err).FailedRecord
		}
		if heard && !slices.Contains(record.Cause.Lost, 0) {
			return false
		}
		w.finish(run.EndingFrom(record))
		return true
	}
	return false
}

// drained ends this node by the orderly end. Where each failed task is relaunched, all exit with the driver's code.
func (w *worker) drained(ctx context.Context) bool {
	end := run.EndingByDrain()
	if w.id.Launcher.Traits().RelaunchesEach {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		var record signal.DrainRecord
		switch err := w.Dir.Read(ctx, signal.Control, signal.NameDrain, &record); {
		case signal.Stalled(err):
			return false
		case err != nil: // it may be a mark without a code: once started anew, the daemon sees how the run has ended
			record.Code = health.OutcomeOf(health.Aborted).Code
		}
		end.Code = record.Code
	}
	w.finish(end)
	return true
}

// bereft tells whether no word of the head's is to be waited for, before its
// silence says so.
func (w *worker) bereft() bool {
	how, parted := w.parted()
	return w.forsaken.Load() || parted && how != lifeline.Broken
}

// parted tells whether this node had a lifeline that has ended, and how.
func (w *worker) parted() (how lifeline.Parting, parted bool) {
	if w.line == nil {
		return 0, false
	}
	known, ever := w.line.Of(0)
	return known.Parting, ever && !known.Connected
}

// loseHead ends this node by the loss of the head and tells the others, once a
// write has proven that it is not this node's own mount that is sick. That the
// node is cut off needs no such proof, which could not be had. A node that ends
// already waits for the head no longer.
func (w *worker) loseHead(ctx context.Context, own string, f *health.Failure) {
	if f.Kind != string(health.CutOff) {
		if err := w.beat(ctx, signal.Nodes, own); err != nil {
			w.End(health.AsFailure(err))
			return
		}
		f.Lost = []int{0}
	}
	if w.Life.Err() != nil {
		w.Orphan(f)
	}
	w.End(f)
}

// head is how this node speaks of the loss of the head.
func (w *worker) head() health.Head { return health.Head{Name: w.name(0), Seer: w.name(w.id.Rank)} }

// lossOfHead is what the silence of the head is, by what else there is to see.
func (w *worker) lossOfHead(ctx context.Context, quiet time.Duration) *health.Failure {
	if w.line == nil {
		return w.head().Silent(quiet)
	}
	known, ever := w.line.Of(0)
	switch {
	case !ever && w.line.worker.Deserted(ctx):
		return w.head().Deserted(quiet)
	case !ever:
		return w.head().Silent(quiet)
	}
	if f := w.linkDown(); f != nil {
		return f
	}
	switch {
	case !known.Connected && known.Parting == lifeline.Left:
		return w.head().Left()
	case !known.Connected && known.Parting == lifeline.Broken:
		return w.head().Reset() // its kernel was there to say so: see lossOf
	case known.Connected && w.line.worker.Evidence().Answers:
		return w.head().Hangs(quiet)
	}
	return w.head().Lost(quiet)
}

// withoutHead takes the head for lost when two looks have not shown the end (the
// first may have been under way before), nor a beat, by file or by lifeline, that
// came after the last one for as long as quiet. Where that is 0 the head's host has spoken, and is believed
// where the share does not answer and is outwaited.
func (w *worker) withoutHead(quiet time.Duration, f *health.Failure) func(ctx context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		looking, stop := w.WhileAnswered(ctx, w.tempo.Silent/2)
		defer stop()
		before := w.Control.Last()
		beat, since := before.Beats(signal.BeatState)[0], time.Now()
		_, err := w.Control.Wait(looking, func(l signal.Listing) bool {
			if newest := l.Beats(signal.BeatState)[0]; newest > beat {
				beat, since = newest, l.At
			}
			if at, heard := w.line.Last(0, l.At); heard && at.After(since) {
				since = at // it is connected again, and beats there
			}
			return l.Looks > before.Looks+1 && l.At.Sub(since) >= quiet
		})
		blind := quiet == 0 && w.line.Runs() && w.cfg.Times.Outwaits() && errors.Is(context.Cause(looking), run.ErrSilent)
		switch {
		case err != nil && !blind:
		case w.Ended.Err() != nil:
			w.Orphan(f)
		case blind && w.line.over.Load() > 0:
			w.finish(run.EndingByCode(int(w.line.over.Load()) - 1))
		case blind:
			f.Lost = []int{0}
			w.End(f)
		default:
			w.loseHead(ctx, signal.BeatState, f)
		}
	}
}

// agree returns the end that this node takes part in: the published one, also
// where something failed here, because the job has one code. Where none comes,
// this node publishes its own.
func (w *worker) agree(err error) *run.Ending {
	var end *run.Ending
	if errors.As(err, &end) {
		return end
	}
	f := w.report(err, signal.Failed)
	if errors.As(context.Cause(w.Ended), &end) {
		return end
	}
	w.Log.Info(f.What, zap.String("kind", f.Kind)) // people are told at the end
	if w.dispensable(f) {
		return w.standAside(f)
	}
	if told := w.awaitEnd(f); told != nil {
		return told
	}
	end = w.reconsider(run.EndingOf(health.Decide(w.withHead(f), w.id.HostOf)))
	end.Phase = f.Phase
	if told := w.claim(end); told != nil {
		return told
	}
	_ = w.publishAbort(end) // which it has logged
	return end
}

// withHead is what has failed here, and the loss of the head where it was learned
// within a beat of a signal: a launcher ends the other tasks as soon as one is
// killed.
func (w *worker) withHead(f *health.Failure) []health.Observed {
	all := []health.Observed{{FailedRecord: f.FailedRecord, At: f.At}}
	lost, ok := errors.AsType[*health.Failure](context.Cause(w.Led))
	if ok && slices.Contains(lost.Lost, 0) && health.Gentle(health.Kind(f.Kind)) && time.Since(f.At) <= w.cfg.Times.LineBeat() {
		record := lost.FailedRecord
		record.Header, record.Phase = w.header(), f.Phase
		all = append(all, health.Observed{FailedRecord: record, At: time.Now()})
	}
	return all
}

// awaitEnd waits for the end that the head makes of a failure here. It returns
// nil where there is no head to make one, or no share to hear it by.
func (w *worker) awaitEnd(f *health.Failure) *run.Ending {
	kind := health.Kind(f.Kind)
	if health.Loss(kind) || kind == health.Share {
		return nil
	}
	if w.Silence() > run.SickShare {
		return nil
	}
	patience, most := w.tempo.Silent+health.Patience(kind), w.tempo.Silent/2
	if health.Gentle(kind) {
		// What runs here serves the driver as long as that saves its work, also
		// while the share is silent for no longer than a peer may be.
		patience += w.cfg.Times.DriverGrace
		most = max(most, min(w.cfg.Times.DriverGrace, w.tempo.Silent))
	}
	ctx, cancel := context.WithTimeoutCause(w.Led, patience, errDeadline)
	defer cancel()
	return w.awaitEnded(ctx, most)
}

// awaitEnded waits for a published end while the share answers within most. It returns nil if none comes.
func (w *worker) awaitEnded(ctx context.Context, most time.Duration) *run.Ending {
	ctx, stop := w.WhileAnswered(ctx, most)
	defer stop()
	w.Control.Quicken()
	// Where the end has not come by then, it may be as far as the driver's grace
	// is long.
	relax := time.AfterFunc(health.EndTime, func() { w.Control.Relax(w.tempo.Look) })
	defer relax.Stop()
	_ = pause.Await(ctx, w.Ended.Done())
	end, _ := errors.AsType[*run.Ending](context.Cause(w.Ended))
	return end
}

// claim makes an end of this node's the run's where there is no head to make
// one: by the result, which is written once. Another node that was first is
// about to publish its end, which is returned. A node whose own mount hangs
// claims nothing: its claim would come when the others have gone on.
func (w *worker) claim(end *run.Ending) *run.Ending {
	w.forsaken.Store(true)
	if end.Cause.Kind == string(health.Share) || w.Silence() > run.SickShare {
		return nil
	}
	result := w.result(end)
	result.Advice = w.account(end, result).Advise()
	err := w.PublishResult(result)
	if !errors.Is(err, signal.ErrTaken) {
		w.Logged(err)
		end.Result = result
		end.Claimed = err == nil
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(w.Hurry, w.tempo.Silent, errDeadline)
	defer cancel()
	if told := w.awaitEnded(ctx, w.tempo.Silent/2); told != nil {
		return told
	}
	told := w.endByResult()
	if told != nil {
		_ = w.publishAbort(told) // which it has logged
	}
	return told
}

// endByResult is the end that a node has claimed which died before it could publish
// it; nil where that can't be read.
func (w *worker) endByResult() *run.Ending {
	ctx, cancel := context.WithTimeoutCause(w.Hurry, run.SickShare, errDeadline)
	defer cancel()
	result, err := w.Dir.Result(ctx)
	if err != nil || result.Cause == nil {
		return nil
	}
	return run.EndingFrom(signal.AbortRecord{Code: result.Code, Word: result.Word, Cause: *result.Cause, Nodes: result.Nodes, NextAttempt: result.NextAttempt})
}

// leave tears this node down for the end, tells, and returns the exit code.
func (w *worker) leave(end *run.Ending) int {
	w.Trail.Enter("drain")
	w.finish(end)
	if w.tied() {
		w.Control.Relax(w.tempo.Look)
	}
	left := w.stopAll(end)
	w.keepEvidence(end)
	w.Log.Info("this node is done", zap.String("why", end.Why), zap.Strings("left", left))
	w.ownWords(end, left)
	code := end.Code
	if end.Orderly && !w.id.Launcher.Traits().RelaunchesEach {
		code = 0
	}
	w.Trail.Event(trail.End, trail.Fields{Code: &code})
	w.Trail.Sync()
	asked := w.Meter.Stats()
	w.Logged(w.Publish(signal.Nodes, signal.NodeName(w.id.Rank, w.id.Size, signal.Done), &signal.DoneRecord{Left: left, Share: &asked}, false))
	if end.Orderly {
		if code != 0 { // the launcher may end the others at the first task that fails: the head is to be the first
			ctx, cancel := context.WithTimeoutCause(w.Led, w.cfg.Times.Peer, errDeadline)
			defer cancel()
			<-ctx.Done()
		}
		return code
	}
	if end.Claimed {
		w.noteBadNodes(end.Nodes)
		w.afterwards(end)
	}
	w.awaitOver(end)
	return code
}

// awaitOver keeps a failing daemon until the head has written the result and
// ended the driver: Slurm kills a step at its first task that exits with a
// code. It waits no longer than the head's graces, and not for a head that is
// lost. Where the share does not tell, it waits if there is a driver that was
// asked to end and may be saving its work.
func (w *worker) awaitOver(end *run.Ending) {
	if end.Cause != nil && len(end.Cause.Lost) > 0 && end.Cause.Lost[0] == 0 {
		return
	}
	if !end.Gentle && w.Silence() > run.SickShare {
		return
	}
	most := w.cfg.Times.GraceOfDriver(end.Gentle) + w.cfg.Times.StopGrace
	if aborts := w.Control.Last().Aborts(); len(aborts) > 0 && aborts[0] == 0 {
		most = health.EndTime // a head that was told to end says so when its driver has ended
	}
	ctx, cancel := context.WithTimeoutCause(w.Led, most+w.cfg.After.Requeue.Longest(), errDeadline)
	defer cancel()
	if !end.Gentle {
		var stop context.CancelFunc
		ctx, stop = w.WhileAnswered(ctx, w.tempo.Silent)
		defer stop()
	}
	wait := w.Control.Wait
	if w.tied() {
		wait = w.Control.Follow
	}
	_, _ = wait(ctx, func(l signal.Listing) bool { return l.Has(signal.NameOver) })
}

// tied tells whether the head's farewell will be heard, so that nobody need look
// for what comes before it.
func (w *worker) tied() bool { return w.line != nil && w.line.calm(time.Now()) }

// farewell lets the other ends of the lifelines know that this daemon ends in
// order.
func (w *worker) farewell() {
	if w.line != nil {
		w.line.worker.Farewell()
	}
}
