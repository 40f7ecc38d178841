package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// lines are the head's ends of the workers' lifelines.
type lines struct {
	*signs
	head     *lifeline.Head
	listener net.Listener
}

// offerLines opens the port that the workers' lifelines come to, and returns
// where it is; nothing where there are to be none.
func (h *head) offerLines(address string) ([]string, error) {
	if h.cfg.Lifeline == LifelineOff || h.id.Size == 1 {
		return nil, nil
	}
	listener, err := h.network().Listen()
	if err != nil && h.cfg.Lifeline == LifelineOn {
		return nil, failed(health.Launch, "cannot offer lifelines on %s: %v; give --lifeline=auto", h.name(0), err)
	}
	if err != nil {
		h.log.Warn("cannot offer lifelines: beat files replace them, and a death is noticed later", zap.Error(err))
		return nil, nil
	}
	h.signs = newSigns(h.lineBeat())
	h.lines = &lines{signs: h.signs, listener: listener}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, failed(health.Internal, "cannot tell where lifelines may come to: %v", err)
	}
	var where []string
	for _, host := range []string{address, h.id.Host} {
		if host != "" {
			where = append(where, net.JoinHostPort(host, port))
		}
	}
	return where, nil
}

// serveLines begins to take lifelines in.
func (h *head) serveLines() {
	if h.lines == nil {
		return
	}
	cfg := lifeline.Config{Key: h.dir.Nonce(), Size: h.id.Size, Beat: h.lineBeat()}
	h.lines.head = lifeline.NewHead(cfg, h.lines.listener, &workerLines{h})
	h.lines.head.Receive(h.requests)
	if !h.cfg.Sandbox.Step { // the daemons of those sandboxes hear the head's beats by files alone
		h.calm = func(now time.Time) bool { return h.lines.calm(h.id.Size-1, now) }
	}
	h.hears = h.hearsAll
	h.nudge = h.lines.head.Nudge
	h.background(h.lines.head.Run)
	h.background(func(ctx context.Context) {
		tick := time.NewTicker(h.lineBeat() / 2)
		defer tick.Stop()
		var told outages
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				h.lines.tick(now)
				h.watchLink(now)
				h.listenAlone(now)
				told.tell(h, now)
			}
		}
	})
}

// calm tells whether so many workers are heard by their lifelines, and their
// kernels have what we say. One that has just ended is told of when it isn't back
// in time: our beats by files must not wait for that.
func (l *lines) calm(workers int, now time.Time) bool {
	if !l.well(workers, now) {
		return false
	}
	for rank := range workers {
		if !l.head.Evidence(rank + 1).Answers {
			return false
		}
	}
	return true
}

// ties tells whether a worker is connected.
func (l *lines) ties(rank int) bool {
	if l == nil {
		return false
	}
	known, _ := l.of(rank)
	return known.connected
}

// ended tells whether a worker's daemon has: the kernel of its host has closed its
// lifeline. A goodbye comes last, too, but who can look sees more by that; where
// nobody can, one who never had a lifeline is not waited for, either.
func (l *lines) ended(rank int, blind bool) bool {
	if l == nil {
		return blind
	}
	known, ever := l.of(rank)
	if !ever {
		return blind
	}
	return !known.connected && (known.parting == lifeline.Closed || blind)
}

// workerLines takes in what the lifelines tell of the workers.
type workerLines struct{ *head }

// Connected notes that a worker can be heard. What it said while it could not is
// in Nodes.
func (p *workerLines) Connected(rank int) {
	if _, again := p.lines.of(rank); again {
		p.nodes.Nudge()
	}
	p.lines.connect(rank)
}

// Heard notes a sign of life.
func (p *workerLines) Heard(rank int, shareSick bool) { p.lines.hear(rank, shareSick) }

// Nudged has the head look at what a worker has published.
func (p *workerLines) Nudged(int) { p.nodes.Nudge() }

// Gone learns that a worker can't be heard any more. One whose kernel has closed
// the connection, without a farewell before, has died; where the connection
// broke, the worker's beat files are seen or not.
func (p *workerLines) Gone(rank int, how lifeline.Parting) {
	known, _ := p.lines.of(rank)
	p.lines.part(rank, how)
	p.nodes.Nudge()
	switch how {
	case lifeline.Closed:
		f := failed(health.DaemonDied, "the daemon of %s has died: its host has closed the lifeline", p.name(rank))
		p.mourn(f, rank, known.sick, time.Now().Add(-lifeline.ComeBackTime))
	case lifeline.Left:
		left := time.Now()
		p.background(func(ctx context.Context) { p.miss(ctx, rank, known.sick, left) })
	}
}

// mourn takes a worker for dead, unless it has told that it is done. how says
// what became of the daemon, and since when it is gone: what has died of it in
// the meantime is no cause.
func (h *head) mourn(f *failure, rank int, sick bool, since time.Time) {
	last := h.nodes.Last()
	done := slices.Contains(last.Ranks(signal.Done), rank) || slices.Contains(last.Ranks(signal.Failed), rank)
	if done || h.recorded.Load() {
		return
	}
	if sick {
		f = failed(health.HostHangs, "%s hangs: its mount of the share has not answered, and its daemon has ended", h.name(rank))
	}
	now := time.Now()
	f.Age = now.Sub(since)
	h.lose(f, []int{rank}, now)
}

// miss takes a worker for dead that has ended in order and not said so in the
// run directory, as one does that can't write there: or where we can't look, and
// the job goes on without.
func (h *head) miss(ctx context.Context, rank int, sick bool, since time.Time) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
	defer cancel()
	looking, stop := h.whileAnswered(ctx, h.tempo.Silent/2)
	defer stop()
	before := h.nodes.Last().Looks
	_, err := h.nodes.Follow(looking, func(l signal.Listing) bool { return l.Looks > before+1 })
	if err == nil || h.outwaits(time.Now()) && errors.Is(context.Cause(looking), errSilent) {
		f := failed(health.HostHangs, "the daemon of %s has ended and could not write so into the run directory: its standard error tells why", h.name(rank))
		h.mourn(f, rank, sick, since)
	}
}

// lose observes the loss of ranks.
func (h *head) lose(f *failure, ranks []int, at time.Time) {
	record := f.FailedRecord
	record.Header, record.Phase, record.Lost = h.header(), h.trail.Phase(), ranks
	h.observe(record, at)
}

// listen adds to the looks what the lifelines have told.
func (h *head) listen(daemons *health.Liveness, alive map[int]int64, now time.Time) {
	if h.lines == nil {
		return
	}
	for rank := range alive {
		if at, heard := h.lines.last(rank, now); heard {
			daemons.Hear(rank, at)
		}
		// What has hung for all of us when we could not look, either, is the
		// share: our own mount may be back a moment before the others'.
		if known, _ := h.lines.of(rank); known.sick {
			daemons.Excuse(rank)
		}
	}
}

// lossOf is what the silence of a worker is, by what else there is to see.
func (h *head) lossOf(rank int) health.Kind {
	if h.lines == nil {
		return health.PeerLost
	}
	known, ever := h.lines.of(rank)
	switch {
	case !ever:
		return health.PeerLost
	case known.connected && (known.sick || h.lines.head.Evidence(rank).Answers):
		return health.HostHangs
	case !known.connected && known.parting == lifeline.Broken:
		return health.DaemonDied // its kernel was there to say so
	default:
		return health.HostLost
	}
}

// losses tells what the silent ranks are lost by: one failure for each kind.
func (h *head) losses(silent []int, quiet time.Duration) []*failure {
	since := quiet.Round(time.Second / 10)
	kinds := make(map[health.Kind][]int)
	for _, rank := range silent {
		kind := h.lossOf(rank)
		kinds[kind] = append(kinds[kind], rank)
	}
	if f := h.unreached(kinds[health.HostLost], since); f != nil {
		return []*failure{f}
	}
	var all []*failure
	for _, row := range []struct {
		kind      health.Kind
		one, many string
	}{
		{health.DaemonDied, "the daemon of %s has died: its host has reset the lifeline, and it has not come back for %s",
			"the daemons of %s have died: their hosts have reset the lifelines, and they have not come back for %s"},
		{health.HostLost, "the host of %s is lost: nothing there has answered for %s", "the hosts of %s are lost: nothing there has answered for %s"},
		{health.HostHangs, "%s hangs: the kernel of its host answers, and its daemon, or its mount of the share, has not for %s",
			"%s hang: the kernels of their hosts answer, and their daemons, or their mounts of the share, have not for %s"},
		{health.PeerLost, "%s is lost: no beat for %s (the daemon was killed, or the node or its mount hangs)",
			"%s are lost: no beat for %s (the daemons were killed, or the nodes or their mounts hang)"},
	} {
		ranks := kinds[row.kind]
		if len(ranks) == 0 {
			continue
		}
		f := failed(row.kind, row.one, h.name(ranks[0]), since)
		if len(ranks) > 1 {
			f = failed(row.kind, row.many, h.hostsOf(ranks), since)
		}
		f.Lost = ranks
		all = append(all, f)
	}
	return all
}

// unreached tells whether it is the head that the others can't reach: its own
// link is down, or of several others none answers.
func (h *head) unreached(lost []int, since time.Duration) *failure {
	if len(lost) == 0 {
		return nil
	}
	if f := h.linkDown(); f != nil {
		return f
	}
	if len(lost) > 1 && h.areAll(lost) {
		return h.cutOff(fmt.Sprintf("none of the %d others has answered for %s", len(lost), since))
	}
	return nil
}

// farewell lets the other ends of the lifelines know that this daemon ends in
// order.
func (n *node) farewell() {
	if n.line != nil {
		n.line.worker.Farewell()
	}
}

// tellOver tells the workers by which code the run ends.
func (h *head) tellOver(end *ending) {
	code := end.code
	if end.orderly {
		code = 0
	}
	h.lines.head.Over(code)
}

// closeLines ends the lifelines: in order where the head ends in order. A port
// that was never served is closed, too.
func (h *head) closeLines() {
	if h.lines == nil {
		return
	}
	if h.lines.head != nil {
		if h.concluded != nil {
			h.tellOver(h.concluded)
		}
		h.lines.head.Farewell()
	}
	_ = h.lines.listener.Close()
}

// lineReport tells what was seen of the lifelines, and of strangers at their
// port.
func (h *head) lineReport() *signal.LifelineReport {
	if h.lines == nil || h.lines.head == nil {
		return nil
	}
	stats := h.lines.head.Stats()
	strangers := stats.Strangers.Reasons()
	if len(strangers) > 0 {
		h.log.Warn("strangers came to the port of the lifelines and were turned away", zap.Any("why", strangers))
	}
	return &signal.LifelineReport{Reconnects: stats.Reconnects, Strangers: strangers}
}
