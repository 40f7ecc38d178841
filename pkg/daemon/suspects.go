package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// outliveTimeout is how long a rank may run after all others of its world have ended before that
	// is reported.
	outliveTimeout  = time.Minute
	outliveInterval = 5 * time.Second // the interval between two looks
)

// watchLastRanks reports the ranks that outlive all others of their worlds, once each, until ctx
// ends.
func (h *head) watchLastRanks(ctx context.Context) {
	told := make(outlivingRanks)
	for ctxutil.SleepContext(ctx, outliveInterval) && h.node.RunCtx.Err() == nil {
		for _, last := range told.due(h.lastRanks(), time.Now()) {
			what := formatOutliving(last)
			h.node.Log.Warn(what)
			h.node.nodeEvents.Report(record.Event{Header: h.node.recordHeader(), Message: what})
		}
	}
}

// outlivingRanks are the ranks that were reported, with their generations.
type outlivingRanks map[string]bool

// due returns those of the last ranks of worlds that must be reported now.
func (o outlivingRanks) due(last []instances.LastRank, now time.Time) (due []instances.LastRank) {
	for _, one := range last {
		key := fmt.Sprint(one.WorldRank, one.Generation)
		if now.Sub(one.Since) >= outliveTimeout && !o[key] {
			o[key] = true
			due = append(due, one)
		}
	}
	return due
}

// lastRanks returns the ranks that have outlived all others of their worlds.
func (h *head) lastRanks() []instances.LastRank {
	if all := h.roleHead(); all != nil {
		return all.LastRanks()
	}
	return nil
}

func formatOutliving(last instances.LastRank) string {
	return fmt.Sprintf("%s (%s) still runs, %s after the end of all other ranks of its world",
		last.WorldRank, last.Host, textutil.FlagDuration(time.Since(last.Since).Round(time.Second)))
}

// describeSuspects returns a clause, which follows why a timeout has expired, about the likely
// reason: a process that has printed an error and nothing since, with its error, or else a rank that
// has outlived all others of its world. Both are empty if there is none.
func (h *head) describeSuspects() (clause, errorLine string) {
	if clause, errorLine = h.nodeEventLog.DescribeSilences(); clause != "" {
		return clause, errorLine
	}
	last := slices.DeleteFunc(h.lastRanks(), func(one instances.LastRank) bool {
		return time.Since(one.Since) < outliveTimeout
	})
	if len(last) == 0 {
		return "", ""
	}
	first := slices.MinFunc(last, func(a, b instances.LastRank) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.World, b.World))
	})
	return ": " + formatOutliving(first), ""
}
