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

// serveLines starts to accept peer links, and connections of clients that request commands
// (guests). It does nothing if there are no peer links.
func (d *deaths) serveLines(guests lifeline.Callers) {
	if d.lines == nil {
		return
	}
	cfg := lifeline.Config{Key: d.Dir.Secret(lifeline.SecretName), Size: d.id.Size, Beat: d.cfg.Times.LineBeat()}
	d.lines.Serve(cfg, &workerLines{d}, guests)
	// The daemons of sandboxes in a step of their own have no peer links and need heartbeat files.
	if !d.cfg.Sandbox.Step {
		d.ties.calm = func(now time.Time) bool { return d.lines.Calm(d.id.Size-1, now) }
	}
	d.ties.hears = d.hearsAll
	// Serve the further connections of workers, by purpose.
	d.lines.Head.Meet(lifeline.ForMeeting, d.welcome)
	d.lines.Head.Meet(lifeline.ForRemote, d.exchange.Serve)
	d.Nudge = d.lines.Head.Nudge
	d.Background(d.lines.Head.Run)
	// Evaluate the heartbeats of the links, also while no poll of the file system succeeds.
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

// welcome serves a worker's connection to the rendezvous, by which its ranks exchange data.
func (d *deaths) welcome(ctx context.Context, rank int, conn io.ReadWriteCloser) {
	d.hall.Serve(ctx, slices.Index(d.roster.Ranks(), rank), conn)
}

// workerLines handles the events of the peer links to workers.
type workerLines struct{ *deaths }

// Connected records that a worker is connected. If it was connected before, it also polls Nodes for
// the records that the worker has published while the head could not be notified.
func (p *workerLines) Connected(rank int) {
	if _, again := p.lines.Of(rank); again {
		p.nodes.Nudge()
	}
	p.lines.Connect(rank)
}

// Heard records a heartbeat of a worker, and whether the worker's file system is unresponsive.
func (p *workerLines) Heard(rank int, shareSick bool) { p.lines.Hear(rank, shareSick) }

// Nudged handles a worker's notification of a new record: the head polls Nodes.
func (p *workerLines) Nudged(int) { p.nodes.Nudge() }

// Gone handles the end of a peer link. If the worker's kernel has closed the connection, and there
// was no goodbye message, the worker's daemon has died. If the connection broke, the heartbeat
// files decide whether the worker is alive.
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

// mourn records that a worker's daemon has died, unless the worker has published that it is done or
// has failed, or the result is final. f is the failure. since is the time of death: failures after
// it are consequences. If sick is set, the worker's file system was unresponsive, and the failure
// is that its host hangs.
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

// miss records that a worker's daemon has died if it has sent a goodbye message, but does not
// publish in time that it is done or has failed. Either the worker cannot write to the run
// directory, or the head cannot read it while the job runs on without the file system.
func (d *deaths) miss(ctx context.Context, rank int, sick bool, since time.Time) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errDeadline)
	defer cancel()
	// Wait for two polls: the first may have started before the worker's last record appeared.
	looking, stop := d.WhileAnswered(ctx, d.tempo.Silent/2)
	defer stop()
	before := d.nodes.Last().Looks
	_, err := d.nodes.Follow(looking, func(l signal.Listing) bool { return l.Looks > before+1 })
	if err == nil || d.outwaits(time.Now()) && errors.Is(context.Cause(looking), run.ErrSilent) {
		f := health.Failed(health.HostHangs, "the daemon of %s has ended and could not write so into the run directory: its standard error tells why", d.name(rank))
		d.mourn(f, rank, sick, since)
	}
}

// followNodes evaluates each listing of Nodes until ctx ends: it reads the failures that peers
// publish, declares peers lost whose heartbeats have stopped, and chooses the team. The first
// failure that the job cannot tolerate ends the run.
func (d *deaths) followNodes(ctx context.Context) {
	daemons, sandboxes := health.NewLiveness(d.tempo), health.NewLiveness(d.tempo)
	standbys := health.NewLiveness(standbyTempo(d.tempo))
	read, lost := make(map[string]bool), make(map[int]bool)
	note := d.Trail.Musters()
	_, _ = d.nodes.Follow(ctx, func(l signal.Listing) bool {
		// Read new failures.
		note(l)
		for _, state := range []string{signal.Failed, signal.SandboxFailed} {
			for _, rank := range l.Ranks(state) {
				d.readFailure(ctx, rank, state, l, read)
			}
		}
		d.roster.ReleaseHeld(health.Passed(l), d.cfg.Causes, d.observe)
		// Once the run is ending, silent peers matter only while the verdict waits for further losses:
		// otherwise the silence may be due to this node's own mount.
		over := d.Life.Err() != nil
		if over && !d.hearing.Load() {
			return false
		}
		// Check the heartbeats of the members.
		alive := d.roster.Living(d.roster.Expected(l), false)
		daemons.Look(alive, l.At)
		d.listen(daemons, alive, l.At)
		if silent := unknown(daemons.Silent(), lost); len(silent) > 0 {
			d.peersLost(ctx, silent, daemons, l.At)
		}
		if over {
			return false
		}
		// Check those of the spares, which are less frequent.
		resting := d.roster.Living(d.roster.Expected(l), true)
		standbys.Look(resting, l.At)
		d.listen(standbys, resting, l.At)
		if silent := standbys.Silent(); len(silent) > 0 {
			d.peersLost(ctx, silent, standbys, l.At)
		}
		// Choose the team, and check the heartbeats of sandboxes with their own daemons.
		d.muster(l)
		sandboxes.Look(expectedSandboxes(l, d.cfg.Sandbox.Step), l.At)
		if silent := sandboxes.Silent(); len(silent) > 0 {
			d.sandboxesLost(silent, sandboxes, l)
		}
		return false
	})
}

// unknown returns those of the silent nodes that are not in lost yet, and adds them to it.
func unknown(silent []int, lost map[int]bool) []int {
	silent = slices.DeleteFunc(silent, func(rank int) bool { return lost[rank] })
	for _, rank := range silent {
		lost[rank] = true
	}
	return silent
}

// readFailure reads the failure that a node has published as state, and records it, unless it is in
// read, the set of names that have been read. The head's own failures are known without reading.
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
			read[name] = false // read it again when this node's mount answers
			return
		}
		kind := health.Internal
		if errors.Is(err, errDeadline) {
			kind = health.Share
		}
		record = d.unreadable(rank, kind, "%s failed, and its record can't be read: %v", err)
	}
	// A failed sandbox matters only if too few are left.
	if state == signal.SandboxFailed && !d.cfg.Sandbox.Require.Missed(d.roster.Among(l.Ranks(signal.SandboxFailed)), d.roster.Count()) {
		d.Log.Warn("a sandbox is lost that the gate can do without", zap.String("what", record.What))
		return
	}
	d.observe(record, l.At)
}

// unreadable returns the failure that replaces the record of a node, if the record cannot be read
// or is damaged. format has the verbs for the name of the node and for err.
func (d *deaths) unreadable(rank int, kind health.Kind, format string, err error) signal.FailedRecord {
	record := health.Failed(kind, format, d.name(rank), err).FailedRecord
	record.Rank, record.Host = rank, d.id.HostOf(rank)
	return record
}

// peersLost declares silent peers lost. If all peers are silent, or one of them is known only by
// its heartbeat files, the reason may be the head's own mount, or the file system. Therefore a
// write must first prove that the file system works.
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
		// The peer may have failed as early as the time of its first missing heartbeat.
		f.Age = max(0, quiet-d.tempo.Beat)
		d.lose(f, f.Lost, at)
	}
}

// proveShare verifies that this node can write to the shared file system.
func (d *deaths) proveShare(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.tempo.Silent, errors.New("all peers are silent and so is the share"))
	defer cancel()
	return d.Dir.Beat(ctx, signal.Control, signal.BeatState)
}

// sandboxesLost declares the sandboxes of silent daemons lost, if too few others are left.
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
		f.Lost = silent // the job may drop these nodes and continue
	}
	d.observe(f.FailedRecord, l.At)
}

// expectedSandboxes returns the nodes on which the daemon of a sandbox should be alive, with their
// newest heartbeats. It returns none unless sandboxes run in a step of their own.
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

// followRequests handles the records in Control that the head has not written: a request to stop
// the run, and the abort record of a worker that has declared the head lost.
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

// abortedBy ends the run with the cause in the abort record of a worker. It reports whether that is
// done; it is not while the file system is unresponsive.
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

// observe records a failure that was seen at the given time. It ends the run if the job cannot
// continue without the node; earlier failures that the job has tolerated then count, too.
func (d *deaths) observe(record signal.FailedRecord, at time.Time) {
	if seen := (health.Observed{FailedRecord: record, At: at}); !d.excused(seen) {
		d.mu.Lock()
		d.failures = append(d.failures, d.roster.TakeExcused()...)
		d.mu.Unlock()
		d.condemn(seen)
	}
}

// excused reports whether the job can continue in spite of a failure, because it does not need the
// node. If so, it records and logs that the node is dropped.
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

// condemn records a failure for the verdict, and ends the run by it. Both happen under the lock mu:
// hearLosses and others rely on never seeing one without the other.
func (d *deaths) condemn(seen health.Observed) {
	record := seen.FailedRecord
	d.Trail.Event(trail.Failure, trail.Fields{Of: &record.Rank, Kind: record.Kind, What: record.What})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures = append(d.failures, seen)
	d.End(&peerFailure{record})
}

// peerFailure is the cause with which an observed failure ends the run. The verdict does not depend
// on it, but on all observed failures.
type peerFailure struct{ record signal.FailedRecord }

func (p *peerFailure) Error() string { return p.record.What }

// judge returns the outcome of the run: err, the result of the sequence, if it is an orderly end,
// and otherwise the verdict on all failures. opened is how long the gate has been open.
func (d *deaths) judge(err error, opened time.Duration) *run.Ending {
	var end *run.Ending
	if errors.As(err, &end) && end.Orderly {
		d.recorded.Store(true)
		return end
	}
	// Record the failure of the sequence, unless it is one that was recorded before.
	phase := d.Trail.Phase()
	d.End(err)
	if _, told := errors.AsType[*peerFailure](err); !told {
		f := d.report(err, signal.Failed)
		d.condemn(health.Observed{FailedRecord: f.FailedRecord, At: time.Now()})
	}
	// Wait for failures that may be the cause, and decide.
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

// hearRanks waits while the known failures are not sufficient for a verdict: failed ranks that look
// like consequences of a failure that is not known yet, or failed checks that the results of other
// nodes may put in a different light. See health.Undecided.
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

// doubtTime returns how long the verdict on err may wait for losses of nodes. The death of a
// service, a sandbox or a rank may be the consequence of a loss that is detected only after the
// peer timeout. Nodes that are lost at the same time as another one are detected at most a
// heartbeat later. The same holds for nodes that are lost before this node gets a signal, because a
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

// hear waits for a new listing of Nodes, because the cause of a failure may be published a moment
// later than its consequence. It waits for two polls: the first may have started before. It does
// not wait if the file system is unresponsive.
func (d *deaths) hear() {
	if d.Silence() > run.SickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(d.Work, min(d.tempo.Look/2, run.SickShare/2), errDeadline)
	defer cancel()
	before := d.nodes.Last().Looks
	_, _ = d.nodes.Wait(ctx, func(l signal.Listing) bool { return l.Looks > before+1 })
}

// hearLosses waits, after a failure of the driver, until every peer has answered a request for a
// heartbeat or is lost: the driver may have failed because of a loss that the head has not detected
// yet. It reports whether the run continues, which means that there is no loss.
func (d *deaths) hearLosses(ctx context.Context) bool {
	if d.lines != nil {
		asked := time.Now()
		d.lines.Head.Ask()
		// By then even a peer that died just after a heartbeat has been declared lost.
		d.clearDoubts(ctx, d.tempo.Silent+2*d.tempo.Look, asked)
	}
	return ctx.Err() == nil
}

// clearDoubts waits until every peer has either sent a recent heartbeat or been declared lost, but
// not longer than within, and only until ctx ends. A failure may be the consequence of a loss that
// is not certain yet, and if several nodes are lost at once, all of them should be known. asked is
// the time at which all peers were asked for a heartbeat, or zero if they were not.
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

// doubted reports whether it is uncertain for any peer if it is alive: its peer link has ended and
// there is no new one, its heartbeat is overdue (see lifeline.Overdue), or it was asked for a
// heartbeat and has not answered. It ignores peers without a link for longer than the peer timeout,
// because the heartbeat files decide about them.
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

// lateLosses is how long the result may wait, after the verdict, for nodes that were lost together
// with the one in the verdict. If several daemons die at once on a busy machine, the kernel closes
// their connections one after the other.
const lateLosses = 500 * time.Millisecond

// takeLateLosses waits until torn is closed, which is when all children have ended, or lateLosses
// has passed, and adds the losses that were detected meanwhile to the consequences in end. This
// takes no additional time. The cause does not change. It does nothing unless the cause is a loss.
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
