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

// headLine handles the events of a worker's peer link to the head.
type headLine struct{ *worker }

// Connected records that the link is up, and polls Control for records that the head has published
// before.
func (p *headLine) Connected() {
	p.line.Connect(0)
	p.Control.Nudge()
	p.Trail.Event(trail.Line, trail.Fields{Up: new(true)})
	p.line.once.Do(func() { close(p.line.up) })
}

// Heard records a heartbeat of the head. If it is a notification of a new record (nudge), the node
// polls Control. With many nodes, the polls of all nodes are spread over time at random.
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

// Gone handles the end of the peer link to the head, or of attempts to connect. The head may have
// published the end of the run, so the node polls for that. If there is no such record, and the
// kernel of the head's host has closed the connection, the head has died, unless it connects again.
//
// Two cases are less certain. A listener to which this node was never connected has not proven that
// it is the head. And a device in the network may reset or close a connection and refuse the next
// one. In these cases the head is declared lost only if its heartbeat files have stopped, too.
func (p *headLine) Gone(how lifeline.Parting) {
	_, ever := p.line.Of(0)
	if ever {
		p.line.Part(0, how)
	}
	if how == lifeline.Left && p.Ended.Err() != nil {
		p.Orphan(errFarewell) // the end of the run is known, so this node need not wait for the head
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

// errFarewell is the cause of the end of waiting for a head that has ended in order.
var errFarewell = errors.New("the head has ended in order")

// Over handles the exit code of the run, which the head sends at the end. After an orderly end,
// this node ends by it, unless the launcher relaunches each failed task: then it needs the record.
// After a failure, the run directory has more information, or withoutHead detects that the head
// could not write there; this node ends by the code alone only if its file system is unresponsive.
// A new poll verifies that, because the file system also seems to be so after this process was
// stopped for a while.
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

// Rejected handles the head's refusal of this daemon because another one of its node is connected.
func (p *headLine) Rejected(reason string) {
	p.End(p.second(reason))
}

// followControl returns a task that evaluates each listing of Control. It ends this node's part in
// the run when the head, or a peer that has declared the head lost, publishes the end of the run,
// and when the head's heartbeats stop. If they stop after the end was published, this node only
// stops waiting for the head. own is the state in the name of this daemon's own heartbeat files.
func (w *worker) followControl(own string) func(ctx context.Context) {
	return func(ctx context.Context) {
		liveness := health.NewLiveness(w.tempo)
		ends, note := false, w.Trail.Sightings()
		_, _ = w.Control.Follow(ctx, func(l signal.Listing) bool {
			// Count heartbeats of both kinds: files and those on the peer link.
			note(l, w.id.Size)
			liveness.Look(map[int]int64{0: l.Beats(signal.BeatState)[0]}, l.At)
			if w.line != nil {
				if at, heard := w.line.Last(0, l.At); heard {
					liveness.Hear(0, at)
				}
			}
			// Look for a published end, and decide whether the head is lost.
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

// published reports whether the listing shows the end of the run, and ends this node by it. heard
// states that the head is alive.
//
// The head's records have precedence over abort records of peers. A peer with an unresponsive mount
// may have published an abort after the orderly end, or while the head, which knows more, is about
// to end the run differently. So as long as the head is alive, it is the head that handles an abort
// of a peer. There is one exception: if this node's peer link has ended, and the peer's record says
// that the head is lost, two nodes agree on that.
func (w *worker) published(ctx context.Context, l signal.Listing, heard bool) bool {
	aborts := l.Aborts()
	byHead := len(aborts) > 0 && aborts[0] == 0
	if l.Has(signal.NameDrain) && !byHead {
		return w.drained(ctx)
	}
	// An abort counts if the head has written it, or if the head is lost, or may be.
	_, parted := w.parted()
	heard = heard && !byHead
	if len(aborts) > 0 && (!heard || parted) {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		var record signal.AbortRecord
		err := w.Dir.Read(ctx, signal.Control, signal.AbortName(aborts[0], w.id.Size), &record)
		if signal.Stalled(err) {
			return false // the next call reads it, when this node's mount answers
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

// drained ends this node by the orderly end of the run, and reports whether it has. Its exit code
// is 0, but if the launcher relaunches each failed task, all nodes exit with the driver's code.
func (w *worker) drained(ctx context.Context) bool {
	end := run.EndingByDrain()
	if w.id.Launcher.Traits().RelaunchesEach {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		var record signal.DrainRecord
		switch err := w.Dir.Read(ctx, signal.Control, signal.NameDrain, &record); {
		case signal.Stalled(err):
			return false
		case err != nil:
			// It may be an empty file, which has no code. With a failure the launcher restarts the daemon,
			// which then learns how the run has ended.
			record.Code = health.OutcomeOf(health.Aborted).Code
		}
		end.Code = record.Code
	}
	w.finish(end)
	return true
}

// bereft reports whether the head is known to be gone, so that this node need not wait until its
// silence has lasted for the peer timeout.
func (w *worker) bereft() bool {
	how, parted := w.parted()
	return w.forsaken.Load() || parted && how != lifeline.Broken
}

// parted reports whether this node had a peer link that has ended, and returns how it ended.
func (w *worker) parted() (how lifeline.Parting, parted bool) {
	if w.line == nil {
		return 0, false
	}
	known, ever := w.line.Of(0)
	return known.Parting, ever && !known.Connected
}

// loseHead ends this node by failure f, the loss of the head. A write must first prove that this
// node's own mount works; otherwise that is the failure. No proof is needed, or possible, if this
// node is cut off from the others. A node that is ending already stops waiting for the head.
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

// head returns a builder of failures about the loss of the head, with the names of both nodes.
func (w *worker) head() health.Head { return health.Head{Name: w.name(0), Seer: w.name(w.id.Rank)} }

// lossOfHead returns the failure that the head is silent, and has been for quiet. It classifies the
// loss according to the peer link.
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
		return w.head().Reset() // the kernel of its host is alive, because it has sent the reset
	case known.Connected && w.line.worker.Evidence().Answers:
		return w.head().Hangs(quiet)
	}
	return w.head().Lost(quiet)
}

// withoutHead returns a task that declares the head lost, as failure f, unless the end of the run
// is published. It waits for two polls, because the first may have been started before the event,
// and until no heartbeat, as a file or on the peer link, has arrived for quiet.
//
// If quiet is 0, the head's host itself has closed the connection. That is sufficient, without any
// poll, if the file system is unresponsive and the job tolerates that.
func (w *worker) withoutHead(quiet time.Duration, f *health.Failure) func(ctx context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeoutCause(ctx, w.tempo.Silent, errDeadline)
		defer cancel()
		// Poll while the file system answers.
		looking, stop := w.WhileAnswered(ctx, w.tempo.Silent/2)
		defer stop()
		before := w.Control.Last()
		beat, since := before.Beats(signal.BeatState)[0], time.Now()
		_, err := w.Control.Wait(looking, func(l signal.Listing) bool {
			if newest := l.Beats(signal.BeatState)[0]; newest > beat {
				beat, since = newest, l.At
			}
			if at, heard := w.line.Last(0, l.At); heard && at.After(since) {
				since = at // it is connected again, and sends heartbeats
			}
			return l.Looks > before.Looks+1 && l.At.Sub(since) >= quiet
		})
		// blind: the file system is unresponsive, and the peer link alone decides.
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

// agree returns the outcome by which this node ends. err is the result of its sequence. If err is a
// failure of this node, this function publishes it and waits for the outcome that the head derives
// from it, because all nodes exit with one code. If there is none, this node publishes its own.
func (w *worker) agree(err error) *run.Ending {
	var end *run.Ending
	if errors.As(err, &end) {
		return end
	}
	f := w.report(err, signal.Failed)
	if errors.As(context.Cause(w.Ended), &end) {
		return end
	}
	// Wait for the outcome of the run. The user sees the failure at the end.
	w.Log.Info(f.What, zap.String("kind", f.Kind))
	if w.dispensable(f) {
		return w.standAside(f)
	}
	if told := w.awaitEnd(f); told != nil {
		return told
	}
	// There is none, so the head is lost or out of reach: this node decides.
	end = w.reconsider(run.EndingOf(health.Decide(w.withHead(f), w.id.HostOf)))
	end.Phase = f.Phase
	if told := w.claim(end); told != nil {
		return told
	}
	_ = w.publishAbort(end) // publishAbort logs the error
	return end
}

// withHead returns the failures for the verdict: f, the failure of this node, and also the loss of
// the head if f is a signal and the loss was detected within a heartbeat interval of it. In that
// case the loss is the cause: a launcher ends the other tasks with a signal as soon as one is
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

// awaitEnd waits for the outcome that the head publishes for failure f of this node. It returns nil
// if the head is lost, the file system is unresponsive, or the time is over.
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
		// The run was asked to end. While the driver saves its work, it needs the services on this node,
		// so wait for its grace period, and tolerate an unresponsive file system for up to the peer
		// timeout.
		patience += w.cfg.Times.DriverGrace
		most = max(most, min(w.cfg.Times.DriverGrace, w.tempo.Silent))
	}
	ctx, cancel := context.WithTimeoutCause(w.Led, patience, errDeadline)
	defer cancel()
	return w.awaitEnded(ctx, most)
}

// awaitEnded waits until the end of the run is published, and returns the outcome. It returns nil
// if ctx ends, or the file system does not answer for longer than most.
func (w *worker) awaitEnded(ctx context.Context, most time.Duration) *run.Ending {
	ctx, stop := w.WhileAnswered(ctx, most)
	defer stop()
	w.Control.Quicken()
	// If nothing is published within EndTime, it may take as long as the driver's grace period.
	relax := time.AfterFunc(health.EndTime, func() { w.Control.Relax(w.tempo.Look) })
	defer relax.Stop()
	_ = pause.Await(ctx, w.Ended.Done())
	end, _ := errors.AsType[*run.Ending](context.Cause(w.Ended))
	return end
}

// claim makes end, the outcome that this node has decided in place of a lost head, the outcome of
// the run, by writing the result, which only one node can. It returns nil if this node has written
// it. If another node was first, it returns the outcome of that node. A node with an unresponsive
// mount writes nothing and gets nil: its result would appear when the others have long decided.
func (w *worker) claim(end *run.Ending) *run.Ending {
	w.forsaken.Store(true)
	if end.Cause.Kind == string(health.Share) || w.Silence() > run.SickShare {
		return nil
	}
	// Write the result.
	result := w.result(end)
	result.Advice = w.account(end, result).Advise()
	err := w.PublishResult(result)
	if !errors.Is(err, signal.ErrTaken) {
		w.Logged(err)
		end.Result = result
		end.Claimed = err == nil
		return nil
	}
	// Another node was first, and is about to publish its abort record.
	ctx, cancel := context.WithTimeoutCause(w.Hurry, w.tempo.Silent, errDeadline)
	defer cancel()
	if told := w.awaitEnded(ctx, w.tempo.Silent/2); told != nil {
		return told
	}
	told := w.endByResult()
	if told != nil {
		_ = w.publishAbort(told) // publishAbort logs the error
	}
	return told
}

// endByResult returns the outcome according to the result in the run directory. It is for a result
// of a node that died before it could publish its abort record. It returns nil if the result cannot
// be read.
func (w *worker) endByResult() *run.Ending {
	ctx, cancel := context.WithTimeoutCause(w.Hurry, run.SickShare, errDeadline)
	defer cancel()
	result, err := w.Dir.Result(ctx)
	if err != nil || result.Cause == nil {
		return nil
	}
	return run.EndingFrom(signal.AbortRecord{Code: result.Code, Word: result.Word, Cause: *result.Cause, Nodes: result.Nodes, NextAttempt: result.NextAttempt})
}

// leave ends all children of this node, publishes that, waits until the daemon may exit, and
// returns the exit code.
func (w *worker) leave(end *run.Ending) int {
	w.Trail.Enter("drain")
	w.finish(end)
	if w.tied() {
		w.Control.Relax(w.tempo.Look)
	}
	// End the children and report to the user.
	left := w.stopAll(end)
	w.keepEvidence(end)
	w.Log.Info("this node is done", zap.String("why", end.Why), zap.Strings("left", left))
	w.ownWords(end, left)
	code := end.Code
	if end.Orderly && !w.id.Launcher.Traits().RelaunchesEach {
		code = 0
	}
	// Publish that this node is done.
	w.Trail.Event(trail.End, trail.Fields{Code: &code})
	w.Trail.Sync()
	asked := w.Meter.Stats()
	w.Logged(w.Publish(signal.Nodes, signal.NodeName(w.id.Rank, w.id.Size, signal.Done), &signal.DoneRecord{Left: left, Share: &asked}, false))
	if end.Orderly {
		// The launcher may end the other tasks as soon as one exits with an error. That task must be the
		// head, so a worker with an exit code waits for the head.
		if code != 0 {
			ctx, cancel := context.WithTimeoutCause(w.Led, w.cfg.Times.Peer, errDeadline)
			defer cancel()
			<-ctx.Done()
		}
		return code
	}
	// After a failure, act in place of a lost head, or wait for the head.
	if end.Claimed {
		w.noteBadNodes(end.Nodes)
		w.afterwards(end)
	}
	w.awaitOver(end)
	return code
}

// awaitOver waits, after a failure, until the head has written the result and ended the driver,
// because Slurm kills the whole step as soon as a task exits with an error. It does not wait for a
// lost head, nor longer than the head's grace periods. If the file system is unresponsive, it waits
// only if the run was asked to end, because then the driver may be saving its work.
func (w *worker) awaitOver(end *run.Ending) {
	if end.Cause != nil && len(end.Cause.Lost) > 0 && end.Cause.Lost[0] == 0 {
		return
	}
	if !end.Gentle && w.Silence() > run.SickShare {
		return
	}
	most := w.cfg.Times.GraceOfDriver(end.Gentle) + w.cfg.Times.StopGrace
	if aborts := w.Control.Last().Aborts(); len(aborts) > 0 && aborts[0] == 0 {
		most = health.EndTime // a head that was asked to end publishes that after its driver has ended
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

// tied reports whether the peer link is healthy. Then the head's goodbye message will arrive, and
// this node need not poll often for records that come before it.
func (w *worker) tied() bool { return w.line != nil && w.line.calm(time.Now()) }

// farewell sends the head a goodbye message on the peer link, if there is one: this daemon ends in
// order, and has not died.
func (w *worker) farewell() {
	if w.line != nil {
		w.line.worker.Farewell()
	}
}
