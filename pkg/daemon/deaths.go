package daemon

import (
	"context"
	"errors"
	"io"
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

// serveLines begins to take lifelines in, and whoever asks for commands by one.
func (d *deaths) serveLines(guests lifeline.Callers) {
	if d.lines == nil {
		return
	}
	cfg := lifeline.Config{Key: d.Dir.Secret(lifeline.SecretName), Size: d.id.Size, Beat: d.cfg.Times.LineBeat()}
	d.lines.Serve(cfg, &workerLines{d}, guests)
	if !d.cfg.Sandbox.Step { // the daemons of those sandboxes hear the head's beats by files alone
		d.ties.calm = func(now time.Time) bool { return d.lines.Calm(d.id.Size-1, now) }
	}
	d.ties.hears = d.hearsAll
	d.lines.Head.Meet(lifeline.ForMeeting, d.welcome)
	d.lines.Head.Meet(lifeline.ForRemote, d.exchange.Serve)
	d.Nudge = d.lines.Head.Nudge
	d.Background(d.lines.Head.Run)
	d.Background(func(ctx context.Context) {
		tick := time.NewTicker(d.cfg.Times.LineBeat() / 2)
		defer tick.Stop()
		var told outages
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				d.lines.Tick(now)
				d.watchLink(now)
				d.listenAlone(now)
				told.tell(d, now)
			}
		}
	})
}

// welcome lets a node's ranks meet the others, by its connection.
func (d *deaths) welcome(ctx context.Context, rank int, conn io.ReadWriteCloser) {
	d.hall.Serve(ctx, slices.Index(d.roster.Ranks(), rank), conn)
}

// workerLines takes in what the lifelines tell of the workers.
type workerLines struct{ *deaths }

// Connected notes that a worker can be heard. What it said while it could not is
// in Nodes.
func (p *workerLines) Connected(rank int) {
	if _, again := p.lines.Of(rank); again {
		p.nodes.Nudge()
	}
	p.lines.Connect(rank)
}

// Heard notes a sign of life.
func (p *workerLines) Heard(rank int, shareSick bool) { p.lines.Hear(rank, shareSick) }

// Nudged has the head look at what a worker has published.
func (p *workerLines) Nudged(int) { p.nodes.Nudge() }

// Gone learns that a worker can't be heard any more. One whose kernel has closed
// the connection, without a farewell before, has died; where the connection
// broke, the worker's beat files are seen or not.
func (p *workerLines) Gone(rank int, how lifeline.Parting) {
	known, _ := p.lines.Of(rank)
	p.lines.Part(rank, how)
	p.nodes.Nudge()
	switch how {
	case lifeline.Closed:
		f := health.Failed(health.DaemonDied, "the daemon of %s has died: its host has closed the lifeline", p.name(rank))
		p.mourn(f, rank, known.Sick, time.Now().Add(-lifeline.ComeBackTime))
	case lifeline.Left:
		left := time.Now()
		p.Background(func(ctx context.Context) { p.miss(ctx, rank, known.Sick, left) })
	}
}

// mourn takes a worker for dead, unless it has told that it is done. how says
// what became of the daemon, and since when it is gone: what has died of it in
// the meantime is no cause.
func (d *deaths) mourn(f *health.Failure, rank int, sick bool, since time.Time) {
	last := d.nodes.Last()
	done := slices.Contains(last.Ranks(signal.Done), rank) || slices.Contains(last.Ranks(signal.Failed), rank)
	if done || d.recorded.Load() {
		return
	}
	if sick {
		f = health.Failed(health.HostHangs, "%s hangs: its mount of the share has not answered, and its daemon has ended", d.name(rank))
	}
	now := time.Now()
	f.Age = now.Sub(since)
	d.lose(f, []int{rank}, now)
}

// miss takes a worker for dead that has ended in order and not said so in the
// run directory, as one does that can't write there: or where we can't look, and
// the job goes on without.
func (d *deaths) miss(ctx context.Context, rank int, sick bool, since time.Time) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errDeadline)
	defer cancel()
	looking, stop := d.WhileAnswered(ctx, d.tempo.Silent/2)
	defer stop()
	before := d.nodes.Last().Looks
	_, err := d.nodes.Follow(looking, func(l signal.Listing) bool { return l.Looks > before+1 })
	if err == nil || d.outwaits(time.Now()) && errors.Is(context.Cause(looking), run.ErrSilent) {
		f := health.Failed(health.HostHangs, "the daemon of %s has ended and could not write so into the run directory: its standard error tells why", d.name(rank))
		d.mourn(f, rank, sick, since)
	}
}

// followNodes learns, from every look at Nodes, what the peers report and who
// has fallen silent, and ends the head's life by the first failure.
func (d *deaths) followNodes(ctx context.Context) {
	daemons, sandboxes := health.NewLiveness(d.tempo), health.NewLiveness(d.tempo)
	standbys := health.NewLiveness(standbyTempo(d.tempo))
	read, lost := make(map[string]bool), make(map[int]bool)
	note := d.Trail.Musters()
	_, _ = d.nodes.Follow(ctx, func(l signal.Listing) bool {
		note(l)
		for _, state := range []string{signal.Failed, signal.SandboxFailed} {
			for _, rank := range l.Ranks(state) {
				d.readFailure(ctx, rank, state, l, read)
			}
		}
		d.roster.ReleaseHeld(health.Passed(l), d.cfg.Causes, d.observe)
		over := d.Life.Err() != nil
		if over && !d.hearing.Load() { // it may be our own share that has failed
			return false
		}
		alive := d.roster.Living(d.roster.Expected(l), false)
		daemons.Look(alive, l.At)
		d.listen(daemons, alive, l.At)
		if silent := unknown(daemons.Silent(), lost); len(silent) > 0 {
			d.peersLost(ctx, silent, daemons, l.At)
		}
		if over {
			return false
		}
		resting := d.roster.Living(d.roster.Expected(l), true)
		standbys.Look(resting, l.At)
		d.listen(standbys, resting, l.At)
		if silent := standbys.Silent(); len(silent) > 0 {
			d.peersLost(ctx, silent, standbys, l.At)
		}
		d.muster(l)
		sandboxes.Look(expectedSandboxes(l, d.cfg.Sandbox.Step), l.At)
		if silent := sandboxes.Silent(); len(silent) > 0 {
			d.sandboxesLost(silent, sandboxes, l)
		}
		return false
	})
}

// unknown returns the ranks that were not lost before, and notes that they are.
func unknown(silent []int, lost map[int]bool) []int {
	silent = slices.DeleteFunc(silent, func(rank int) bool { return lost[rank] })
	for _, rank := range silent {
		lost[rank] = true
	}
	return silent
}

// readFailure reads each peer's failure once. The head's own are not read: it
// knows them.
func (d *deaths) readFailure(ctx context.Context, rank int, state string, l signal.Listing, read map[string]bool) {
	name := signal.NodeName(rank, d.id.Size, state)
	if read[name] || name == signal.NodeName(0, d.id.Size, signal.Failed) {
		return
	}
	read[name] = true
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.FailedRecord
	if err := d.Dir.Read(ctx, signal.Nodes, name, &record); err != nil {
		if d.Work.Err() != nil || signal.Stalled(err) {
			read[name] = false // what it says is known when our own mount answers
			return
		}
		kind := health.Internal
		if errors.Is(err, errDeadline) {
			kind = health.Share
		}
		record = d.unreadable(rank, kind, "%s failed, and its record can't be read: %v", err)
	}
	if state == signal.SandboxFailed && !d.cfg.Sandbox.Require.Missed(d.roster.Among(l.Ranks(signal.SandboxFailed)), d.roster.Count()) {
		d.Log.Warn("a sandbox is lost that the gate can do without", zap.String("what", record.What))
		return
	}
	d.observe(record, l.At)
}

// unreadable is the failure that stands for one whose record can't be read,
// because the share does not give it, or because it is damaged.
func (d *deaths) unreadable(rank int, kind health.Kind, format string, err error) signal.FailedRecord {
	record := health.Failed(kind, format, d.name(rank), err).FailedRecord
	record.Rank, record.Host = rank, d.id.HostOf(rank)
	return record
}

// peersLost takes silent peers for lost. Where all are silent, or one of which the
// files alone tell, it may be the head's own mount, or the share, that takes no
// beats any more: a write must prove it first.
func (d *deaths) peersLost(ctx context.Context, silent []int, liveness *health.Liveness, at time.Time) {
	byFiles := func(rank int) bool { return d.lossOf(rank) == health.PeerLost }
	if d.areAll(silent) || slices.ContainsFunc(silent, byFiles) {
		if err := d.proveShare(ctx); err != nil {
			d.End(health.AsFailure(err))
			return
		}
	}
	quiet := liveness.Quiet(silent[0])
	for _, f := range d.losses(silent, quiet) {
		// It happened when a beat was due that did not come, at the earliest.
		f.Age = max(0, quiet-d.tempo.Beat)
		d.lose(f, f.Lost, at)
	}
}

// proveShare writes through our own mount.
func (d *deaths) proveShare(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errors.New("all peers are silent and so is the share"))
	defer cancel()
	return d.Dir.Beat(ctx, signal.Control, signal.BeatState)
}

// sandboxesLost takes sandboxes for lost whose daemons have fallen silent.
func (d *deaths) sandboxesLost(silent []int, liveness *health.Liveness, l signal.Listing) {
	lost := append(l.Ranks(signal.SandboxFailed), silent...)
	slices.Sort(lost)
	if !d.cfg.Sandbox.Require.Missed(d.roster.Among(slices.Compact(lost)), d.roster.Count()) {
		return
	}
	quiet := liveness.Quiet(silent[0]).Round(time.Second / 10)
	f := health.Failed(health.SandboxDied, "the sandbox of %s is lost: no beat of its daemon for %s", d.name(silent[0]), quiet)
	f.Header, f.Phase = d.header(), d.Trail.Phase()
	if d.roster.Spares() {
		f.Lost = silent // it may be one that can be dropped
	}
	d.observe(f.FailedRecord, l.At)
}

// expectedSandboxes are the sandboxes whose own daemons should live.
func expectedSandboxes(l signal.Listing, step bool) map[int]int64 {
	alive := make(map[int]int64)
	if !step {
		return alive
	}
	beats := l.Beats(signal.SandboxBeat)
	for _, rank := range signal.Without(l.Ranks(signal.Sandbox), l.Ranks(signal.SandboxFailed)) {
		alive[rank] = beats[rank]
	}
	return alive
}

// followRequests heeds what appears in Control that is not the head's own: a
// stop from outside, and the abort of a worker that took the head for lost.
func (d *deaths) followRequests(ctx context.Context) {
	_, _ = d.Control.Follow(ctx, func(l signal.Listing) bool {
		for _, rank := range l.Aborts() {
			if rank != 0 {
				return d.abortedBy(ctx, rank, l.At)
			}
		}
		if l.Has(signal.NameStop) && d.Life.Err() == nil {
			d.End(&run.Ending{Orderly: true, Gentle: true, Word: "stopped", Why: "a stop was asked for"})
		}
		return false
	})
}

// abortedBy ends the head's life by the abort of a worker, and tells whether it
// could be read.
func (d *deaths) abortedBy(ctx context.Context, rank int, at time.Time) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.AbortRecord
	err := d.Dir.Read(ctx, signal.Control, signal.AbortName(rank, d.id.Size), &record)
	if d.Work.Err() != nil || signal.Stalled(err) {
		return false
	}
	if err != nil {
		record.Cause = d.unreadable(rank, health.Aborted, "%s has aborted the run, and its record can't be read: %v", err)
	}
	d.condemn(health.Observed{FailedRecord: record.Cause, At: at})
	return true
}

// observe takes in a failure that was seen at a time, and ends the head's life
// by it where the job can't go on without the node.
func (d *deaths) observe(record signal.FailedRecord, at time.Time) {
	if seen := (health.Observed{FailedRecord: record, At: at}); !d.excused(seen) {
		d.mu.Lock()
		d.failures = append(d.failures, d.roster.TakeExcused()...)
		d.mu.Unlock()
		d.condemn(seen)
	}
}

// excused takes in a failure that the job goes on without.
func (d *deaths) excused(seen health.Observed) bool {
	goesOn, news := d.roster.Excuse(seen, d.id.HostOf)
	if !goesOn || !news {
		return goesOn
	}
	d.Trail.Event(trail.Dropped, trail.Fields{Of: &seen.Rank, Kind: seen.Kind, What: seen.What})
	d.Log.Warn("a node is dropped, and the job goes on: "+seen.What, zap.String("kind", seen.Kind))
	d.nodes.Nudge()
	return true
}

// condemn keeps a failure for the verdict, and ends the head's life by it. Nobody,
// hearLosses least of all, sees the one without the other.
func (d *deaths) condemn(seen health.Observed) {
	record := seen.FailedRecord
	d.Trail.Event(trail.Failure, trail.Fields{Of: &record.Rank, Kind: record.Kind, What: record.What})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures = append(d.failures, seen)
	d.End(&peerFailure{record})
}

// peerFailure ends the head's life; the verdict is made from what was observed.
type peerFailure struct{ record signal.FailedRecord }

func (p *peerFailure) Error() string { return p.record.What }

// judge returns how the run ends: as the sequence says where it ended well, by
// the verdict on all that failed otherwise.
func (d *deaths) judge(err error, opened time.Duration) *run.Ending {
	var end *run.Ending
	if errors.As(err, &end) && end.Orderly {
		d.recorded.Store(true)
		return end
	}
	phase := d.Trail.Phase()
	d.End(err)
	if _, told := errors.AsType[*peerFailure](err); !told {
		f := d.report(err, signal.Failed)
		d.condemn(health.Observed{FailedRecord: f.FailedRecord, At: time.Now()})
	}
	d.hear()
	d.clearDoubts(d.Work, d.doubtTime(err), time.Time{})
	d.hearRanks()
	d.mu.Lock()
	defer d.mu.Unlock()
	weighed := health.Weigh(d.failures, health.Passed(d.nodes.Last()), d.cfg.Causes)
	end = d.reconsider(run.EndingOf(health.Decide(weighed, d.id.HostOf)))
	end.Phase, end.Opened = phase, opened
	return end
}

// hearRanks waits as long as only such ranks are known to have failed as look as if
// another had before them, or checks that others' records judge.
func (d *deaths) hearRanks() {
	undecided := func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failures = append(d.failures, d.roster.TakeHeld()...)
		return time.Now().Before(health.Undecided(d.failures, health.Passed(d.nodes.Last()), d.id.Size))
	}
	for first := true; undecided() && pause.For(d.Work, lookPause); first = false {
		if first {
			d.nodes.Quicken()
		}
	}
}

// doubtTime is for how long the verdict may wait for who may be lost, too: what a
// service, a sandbox or a rank has died of may be a loss, and who was lost at the same time
// as another is known a beat later at most. So is who was lost before a signal: a
// launcher ends the other tasks as soon as one is killed.
func (d *deaths) doubtTime(err error) time.Duration {
	kind := health.Kind(health.AsFailure(err).Kind)
	if told, ok := errors.AsType[*peerFailure](err); ok {
		kind = health.Kind(told.record.Kind)
	}
	switch {
	case kind == health.ServiceDied || kind == health.SandboxDied || kind == health.RankFailed || kind == health.RankAborted:
		return d.tempo.Silent
	case health.Loss(kind), health.Gentle(kind):
		return d.cfg.Times.LineBeat()
	default:
		return 0
	}
}

// hear takes one more look before the verdict: where one failure shows, the
// cause of it may have been written a moment later.
func (d *deaths) hear() {
	if d.Silence() > run.SickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(d.Work, min(d.tempo.Look/2, run.SickShare/2), errDeadline)
	defer cancel()
	before := d.nodes.Last().Looks
	_, _ = d.nodes.Wait(ctx, func(l signal.Listing) bool { return l.Looks > before+1 })
}

// hearLosses waits, where the driver has failed, until every peer has answered or
// is lost: it may have failed of the loss, and have seen it before us. It tells
// whether the run goes on.
func (d *deaths) hearLosses(ctx context.Context) bool {
	if d.lines != nil {
		asked := time.Now()
		d.lines.Head.Ask()
		d.clearDoubts(ctx, d.tempo.Silent+2*d.tempo.Look, asked) // who was heard just now is lost then
	}
	return ctx.Err() == nil
}

// clearDoubts waits until every peer is heard again or lost, for no longer than
// within and while ctx lives: what has failed may have failed of a loss of which
// nobody is sure yet, and of several that are lost at once all are to be known.
// asked is when all were asked for a beat; zero where they were not.
func (d *deaths) clearDoubts(ctx context.Context, within time.Duration, asked time.Time) {
	if d.lines == nil || d.Silence() > run.SickShare || within == 0 {
		return
	}
	d.hearing.Store(true)
	defer d.hearing.Store(false)
	d.nodes.Quicken()
	for end := time.Now().Add(within); time.Now().Before(end) && d.doubted(d.nodes.Last(), time.Now(), asked); {
		if !pause.For(ctx, lookPause) {
			return
		}
	}
}

// doubted tells whether a peer may be lost and nobody knows yet: its lifeline has
// ended and nobody is back on another, a beat of it is lifeline.Overdue, or it was asked and
// has not answered since. One whose lifeline broke for good long ago is left to its
// files.
func (d *deaths) doubted(l signal.Listing, now, asked time.Time) bool {
	missed := d.missed()
	for rank := range d.roster.Living(d.roster.Expected(l), false) {
		at, connected := d.lines.Last(rank, now)
		quiet, ever := d.lines.Quiet(rank, now)
		if !ever || missed[rank] || !connected && quiet > d.tempo.Silent+d.tempo.Look {
			continue
		}
		if !connected || !d.lines.Head.Evidence(rank).Connected || at.Before(asked) || now.Sub(at) > lifeline.Overdue*d.cfg.Times.LineBeat() {
			return true
		}
	}
	return false
}

// lateLosses is how much later than the verdict the result may be, for who was lost
// with the one that the verdict is about: on a busy machine the kernels of several
// that die at once take their time, one after the other.
const lateLosses = 500 * time.Millisecond

// takeLateLosses adds to the end who was lost besides until all is torn down here,
// which nobody waits for: the verdict stays.
func (d *deaths) takeLateLosses(end *run.Ending, torn <-chan struct{}) {
	defer d.recorded.Store(true)
	if end.Orderly || !health.Loss(health.Kind(end.Cause.Kind)) {
		return
	}
	pause.Until(torn, lateLosses)
	d.mu.Lock()
	defer d.mu.Unlock()
	all := health.Decide(health.Weigh(d.failures, health.Passed(d.nodes.Last()), d.cfg.Causes), d.id.HostOf)
	besides := append([]signal.FailedRecord{all.Cause}, all.Consequences...)
	cause := slices.IndexFunc(besides, func(f signal.FailedRecord) bool {
		return f.Kind == end.Cause.Kind && f.Rank == end.Cause.Rank && f.What == end.Cause.What
	})
	if cause >= 0 {
		end.Consequences, end.Nodes = slices.Delete(besides, cause, cause+1), all.BadNodes
	}
}
