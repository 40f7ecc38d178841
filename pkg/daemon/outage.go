package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/trail"
)

// watchShare notices that the share has not answered for so long that nothing
// can be said of the peers any more, or that it is outwaited no longer.
func (n *node) watchShare(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Times.Peer / 20)
	defer tick.Stop()
	var outwaited time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		silence, most := n.silence(), n.cfg.Times.Peer
		if n.outwaits(time.Now()) {
			most = n.cfg.Times.Share
		}
		switch {
		case silence > most:
			n.end(n.unanswered(silence))
			return
		case silence > n.cfg.Times.Peer:
			if outwaited == 0 {
				n.trail.Event(trail.Share, trail.Fields{Answers: new(false)})
				n.log.Info("the share does not answer: the job goes on, as every lifeline is well")
			}
			outwaited = silence
		case outwaited > 0:
			n.trail.Event(trail.Share, trail.Fields{Answers: new(true)})
			n.log.Info("the share answers again", zap.Duration("after", outwaited.Round(time.Second/10)))
			outwaited = 0
		}
	}
}

// outwaits tells whether a share that is silent is waited for until the time for
// that is over. Once the job runs nobody needs the share: as long as everybody is
// heard by a lifeline, what it withholds are records.
func (n *node) outwaits(now time.Time) bool {
	return n.cfg.Times.outwaits() && n.signs != nil && n.signs.runs() && n.hears(now)
}

func (n *node) unanswered(silence time.Duration) *failure {
	if n.signs != nil {
		if unheard, ever := n.signs.silence(time.Now()); ever && unheard > n.tempo.Silent {
			return n.cutOff(fmt.Sprintf("neither another node nor the share has answered for %s", min(unheard, silence).Round(time.Second/10)))
		}
	}
	return failed(health.Share, "cannot go on: the share has not answered %s for %s: see whether %s hangs on that node",
		n.name(n.id.Rank), silence.Round(time.Second/10), n.dir.Path())
}

// hearsAll tells whether every peer that should live was heard by its lifeline
// within the time that makes it lost, and a beat more: see listenAlone.
func (h *head) hearsAll(now time.Time) bool {
	for rank := range h.roster.living(h.roster.expected(h.nodes.Last()), false) {
		if quiet, ever := h.lines.quiet(rank, now); !ever || quiet >= h.tempo.Silent+h.lineBeat() {
			return false
		}
	}
	return true
}

// listenAlone takes peers for lost by the lifelines alone, while no look at the
// share succeeds. Where all are silent it is this node that can't be reached, which
// is watchShare's affair.
func (h *head) listenAlone(now time.Time) {
	if h.silence() <= h.cfg.Times.Peer || !h.lines.runs() || h.life.Err() != nil {
		return
	}
	var silent, unheard []int // the latter to within a beat, or for want of a lifeline
	longest := time.Duration(0)
	missed := h.missed()
	for rank := range h.roster.living(h.roster.expected(h.nodes.Last()), false) {
		quiet, ever := h.lines.quiet(rank, now)
		if !ever || quiet >= h.tempo.Silent-h.lineBeat() {
			unheard = append(unheard, rank)
		}
		if ever && quiet >= h.tempo.Silent && !missed[rank] {
			silent, longest = append(silent, rank), max(longest, quiet)
		}
	}
	if len(silent) == 0 || h.areAll(unheard) {
		return
	}
	slices.Sort(silent)
	for _, f := range h.losses(silent, longest) {
		f.Age = max(0, longest-h.tempo.Beat)
		h.lose(f, f.Lost, now)
	}
}

// outages tells people of the nodes that the share does not answer.
type outages struct {
	since time.Time // when the first of those was heard of that there are
	told  bool
}

// tell is to be called now and then.
func (o *outages) tell(h *head, now time.Time) {
	sick := h.lines.sick()
	if h.silence() > sickShare {
		sick = append([]int{0}, sick...)
	}
	switch {
	case len(sick) == 0 && o.told:
		h.log.Warn("the share answers all nodes again", zap.Duration("after", now.Sub(o.since).Round(time.Second/10)))
		fallthrough
	case len(sick) == 0:
		*o = outages{}
	case o.since.IsZero():
		o.since = now
	case !o.told && now.Sub(o.since) > h.cfg.Times.Peer && h.lines.runs() && h.life.Err() == nil:
		o.told = true
		h.log.Warn("the share does not answer "+h.hostsOf(sick)+": the job goes on while every lifeline is well, for no longer than --share-timeout",
			zap.Duration("timeout", h.cfg.Times.Share))
	}
}
