package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// followNodes learns, from every look at Nodes, what the peers report and who
// has fallen silent, and ends the head's life by the first failure.
func (h *head) followNodes(ctx context.Context) {
	daemons, sandboxes := health.NewLiveness(h.tempo), health.NewLiveness(h.tempo)
	standbys := health.NewLiveness(standbyTempo(h.tempo))
	read, lost := make(map[string]bool), make(map[int]bool)
	note := h.trail.Musters()
	_, _ = h.nodes.Follow(ctx, func(l signal.Listing) bool {
		note(l)
		for _, rank := range l.Ranks(signal.Failed) {
			h.readFailure(ctx, rank, signal.Failed, l, read)
		}
		for _, rank := range l.Ranks(signal.SandboxFailed) {
			h.readFailure(ctx, rank, signal.SandboxFailed, l, read)
		}
		over := h.life.Err() != nil
		if over && !h.hearing.Load() { // it may be our own share that has failed
			return false
		}
		alive := h.roster.living(h.roster.expected(l), false)
		daemons.Look(alive, l.At)
		h.listen(daemons, alive, l.At)
		if silent := unknown(daemons.Silent(), lost); len(silent) > 0 {
			h.peersLost(ctx, silent, daemons, l.At)
		}
		if over {
			return false
		}
		resting := h.roster.living(h.roster.expected(l), true)
		standbys.Look(resting, l.At)
		h.listen(standbys, resting, l.At)
		if silent := standbys.Silent(); len(silent) > 0 {
			h.peersLost(ctx, silent, standbys, l.At)
		}
		h.muster(l)
		sandboxes.Look(expectedSandboxes(l, h.cfg.Sandbox.Step), l.At)
		if silent := sandboxes.Silent(); len(silent) > 0 {
			h.sandboxesLost(silent, sandboxes, l)
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

// doubted tells whether a peer may be lost and nobody knows yet: its lifeline has
// ended and nobody is back on another, a beat of it is overdue, or it was asked and
// has not answered since. One whose lifeline broke for good long ago is left to its
// files.
func (h *head) doubted(l signal.Listing, now, asked time.Time) bool {
	missed := h.missed()
	for rank := range h.roster.living(h.roster.expected(l), false) {
		at, connected := h.lines.last(rank, now)
		quiet, ever := h.lines.quiet(rank, now)
		if !ever || missed[rank] || !connected && quiet > h.tempo.Silent+h.tempo.Look {
			continue
		}
		if !connected || !h.lines.head.Evidence(rank).Connected || at.Before(asked) || now.Sub(at) > overdue*h.lineBeat() {
			return true
		}
	}
	return false
}

// missed are the ranks whose loss is known.
func (h *head) missed() map[int]bool {
	missed := make(map[int]bool)
	h.failuresMu.Lock()
	defer h.failuresMu.Unlock()
	for _, failure := range h.failures {
		for _, rank := range failure.Lost {
			missed[rank] = true
		}
	}
	return missed
}

// clearDoubts waits until every peer is heard again or lost, for no longer than
// within and while ctx lives: what has failed may have failed of a loss of which
// nobody is sure yet, and of several that are lost at once all are to be known.
// asked is when all were asked for a beat; zero where they were not.
func (h *head) clearDoubts(ctx context.Context, within time.Duration, asked time.Time) {
	if h.lines == nil || h.silence() > sickShare || within == 0 {
		return
	}
	h.hearing.Store(true)
	defer h.hearing.Store(false)
	h.nodes.Quicken()
	for end := time.Now().Add(within); time.Now().Before(end) && h.doubted(h.nodes.Last(), time.Now(), asked); {
		if !pause.For(ctx, eventPause) {
			return
		}
	}
}

// readFailure reads each peer's failure once. The head's own are not read: it
// knows them.
func (h *head) readFailure(ctx context.Context, rank int, state string, l signal.Listing, read map[string]bool) {
	name := signal.NodeName(rank, h.id.Size, state)
	if read[name] || name == signal.NodeName(0, h.id.Size, signal.Failed) {
		return
	}
	read[name] = true
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.FailedRecord
	if err := h.dir.Read(ctx, signal.Nodes, name, &record); err != nil {
		if h.work.Err() != nil || hangs(err) {
			read[name] = false // what it says is known when our own mount answers
			return
		}
		kind := health.Internal
		if errors.Is(err, errDeadline) {
			kind = health.Share
		}
		record = h.unreadable(rank, kind, "%s failed, and its record can't be read: %v", err)
	}
	if state == signal.SandboxFailed && !h.cfg.Sandbox.Require.Missed(h.roster.among(l.Ranks(signal.SandboxFailed)), h.roster.count()) {
		h.log.Warn("a sandbox is lost that the gate can do without", zap.String("what", record.What))
		return
	}
	h.observe(record, l.At)
}

// hangs tells whether an error says nothing but that our own mount hangs.
func hangs(err error) bool {
	_, stalled := errors.AsType[*signal.StallError](err)
	return stalled
}

// unreadable is the failure that stands for one whose record can't be read,
// because the share does not give it, or because it is damaged.
func (h *head) unreadable(rank int, kind health.Kind, format string, err error) signal.FailedRecord {
	record := failed(kind, format, h.name(rank), err).FailedRecord
	record.Rank, record.Host = rank, h.id.HostOf(rank)
	return record
}

// observe takes in a failure that was seen at a time, and ends the head's life
// by it where the job can't go on without the node.
func (h *head) observe(record signal.FailedRecord, at time.Time) {
	if seen := (health.Observed{FailedRecord: record, At: at}); !h.excused(seen) {
		h.failuresMu.Lock()
		h.failures = append(h.failures, h.roster.takeExcused()...)
		h.failuresMu.Unlock()
		h.condemn(seen)
	}
}

// condemn keeps a failure for the verdict, and ends the head's life by it.
func (h *head) condemn(seen health.Observed) {
	record := seen.FailedRecord
	h.failuresMu.Lock()
	h.failures = append(h.failures, seen)
	h.failuresMu.Unlock()
	h.trail.Event(trail.Failure, trail.Fields{Of: &record.Rank, Kind: record.Kind, What: record.What})
	h.end(&peerFailure{record})
}

// peerFailure ends the head's life; the verdict is made from what was observed.
type peerFailure struct{ record signal.FailedRecord }

func (p *peerFailure) Error() string { return p.record.What }

// peersLost takes silent peers for lost. Where all are silent, or one of which the
// files alone tell, it may be the head's own mount, or the share, that takes no
// beats any more: a write must prove it first.
func (h *head) peersLost(ctx context.Context, silent []int, liveness *health.Liveness, at time.Time) {
	byFiles := func(rank int) bool { return h.lossOf(rank) == health.PeerLost }
	if h.areAll(silent) || slices.ContainsFunc(silent, byFiles) {
		if err := h.proveShare(ctx); err != nil {
			h.end(asFailure(err))
			return
		}
	}
	quiet := liveness.Quiet(silent[0])
	for _, f := range h.losses(silent, quiet) {
		// It happened when a beat was due that did not come, at the earliest.
		f.Age = max(0, quiet-h.tempo.Beat)
		h.lose(f, f.Lost, at)
	}
}

// areAll tells whether no other peer is left that the job needs.
func (h *head) areAll(silent []int) bool {
	alive := h.roster.living(h.roster.expected(h.nodes.Last()), false)
	for _, rank := range silent {
		if _, needed := alive[rank]; !needed {
			return false
		}
	}
	return len(silent) == len(alive)
}

// proveShare writes through our own mount.
func (h *head) proveShare(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errors.New("all peers are silent and so is the share"))
	defer cancel()
	return h.dir.Beat(ctx, signal.Control, signal.BeatState)
}

// followRequests heeds what appears in Control that is not the head's own: a
// stop from outside, and the abort of a worker that took the head for lost.
func (h *head) followRequests(ctx context.Context) {
	_, _ = h.control.Follow(ctx, func(l signal.Listing) bool {
		for _, rank := range l.Aborts() {
			if rank != 0 {
				return h.abortedBy(ctx, rank, l.At)
			}
		}
		if l.Has(signal.NameStop) && h.life.Err() == nil {
			h.end(&ending{orderly: true, gentle: true, word: "stopped", why: "a stop was asked for"})
		}
		return false
	})
}

// abortedBy ends the head's life by the abort of a worker, and tells whether it
// could be read.
func (h *head) abortedBy(ctx context.Context, rank int, at time.Time) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.AbortRecord
	err := h.dir.Read(ctx, signal.Control, signal.AbortName(rank, h.id.Size), &record)
	if h.work.Err() != nil || hangs(err) {
		return false
	}
	if err != nil {
		record.Cause = h.unreadable(rank, health.Aborted, "%s has aborted the run, and its record can't be read: %v", err)
	}
	h.condemn(health.Observed{FailedRecord: record.Cause, At: at})
	return true
}
