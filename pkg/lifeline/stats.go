package lifeline

import (
	"errors"
	"maps"
	"net"
)

// Stats is what a head has seen of its lifelines.
type Stats struct {
	Connected  int // now
	Reconnects int // of ranks that had been connected before
	// Strangers are the connections that were not let in, by what was wrong with
	// them; nil where there were none.
	Strangers map[string]int
}

// What was wrong with a stranger.
const (
	late         = "late"          // it gave no whole proof in time, or none at all
	wrongKey     = "wrong_key"     // it does not know the attempt's key
	garbage      = "garbage"       // it does not speak our protocol
	wrongRank    = "wrong_rank"    // it knows the key, but no worker has its rank
	crowdedOut   = "crowded_out"   // there were too many at once
	secondDaemon = "second_daemon" // another daemon of its rank is connected
)

var errWrongRank = errors.New("no worker of this attempt has its rank")

// turnAway counts a stranger that is not let in.
func (h *Head) turnAway(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, errTaken):
		h.strange(secondDaemon)
	case errors.Is(err, errWrongRank):
		h.strange(wrongRank)
	case errors.Is(err, errWrongKey):
		h.strange(wrongKey)
	case errors.Is(err, errGarbage):
		h.strange(garbage)
	case errors.Is(err, net.ErrClosed): // by us: it was crowded out and is counted, or we have ended
	default:
		h.strange(late)
	}
}

// strange counts a stranger. It needs mu.
func (h *Head) strange(why string) {
	if h.stats.Strangers == nil {
		h.stats.Strangers = make(map[string]int)
	}
	h.stats.Strangers[why]++
}

// Stats returns what the head has seen until now.
func (h *Head) Stats() Stats {
	h.mu.Lock()
	stats := h.stats
	stats.Strangers = maps.Clone(stats.Strangers)
	h.mu.Unlock()
	for rank := range h.seats {
		if h.seats[rank].live() != nil {
			stats.Connected++
		}
	}
	return stats
}
