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

// stranger is why somebody is not let in.
type stranger struct{ word, text string } // the one for Stats, the other for people

func (s *stranger) Error() string { return s.text }

var (
	errGarbage   = &stranger{"garbage", "it does not speak the lifeline's protocol"}
	errWrongKey  = &stranger{"wrong_key", "it does not know this attempt's key"}
	errWrongRank = &stranger{"wrong_rank", "no worker of this attempt has its rank"}
	errTaken     = &stranger{"second_daemon", "another daemon of this rank is connected already"}
	errLate      = &stranger{"late", "it gave no whole proof in time, or none at all"}
	errCrowded   = &stranger{"crowded_out", "there were too many at once"}
)

// turnAway counts a stranger that is not let in.
func (h *Head) turnAway(err error) {
	why, known := errors.AsType[*stranger](err)
	if !known {
		why = errLate
	}
	if !known && errors.Is(err, net.ErrClosed) { // by us: it was crowded out and is counted, or we have ended
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strange(why)
}

// strange counts a stranger. It needs mu.
func (h *Head) strange(why *stranger) {
	if h.stats.Strangers == nil {
		h.stats.Strangers = make(map[string]int)
	}
	h.stats.Strangers[why.word]++
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
