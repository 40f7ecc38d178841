package lifeline

import (
	"errors"
	"maps"
	"net"
)

// Stats are the head's statistics of peer links.
type Stats struct {
	Connected  int // number of workers that are connected now
	Reconnects int // number of connections of workers that had been connected before
	// Strangers has the number of rejected connections by reason. It is nil if there were none.
	Strangers map[string]int
}

// stranger is the error of a rejected connection.
type stranger struct{ word, text string } // the key in Stats, and the message

func (s *stranger) Error() string { return s.text }

var (
	errGarbage   = &stranger{"garbage", "it does not speak the lifeline's protocol"}
	errWrongKey  = &stranger{"wrong_key", "it does not know this attempt's key"}
	errWrongRank = &stranger{"wrong_rank", "no worker of this attempt has its rank"}
	errTaken     = &stranger{"second_daemon", "another daemon of this rank is connected already"}
	errLate      = &stranger{"late", "it gave no whole proof in time, or none at all"}
	errCrowded   = &stranger{"crowded_out", "there were too many at once"}
)

// turnAway counts a rejected connection. An err that is not a stranger counts as errLate.
func (h *Head) turnAway(err error) {
	why, known := errors.AsType[*stranger](err)
	if !known {
		why = errLate
	}
	if !known && errors.Is(err, net.ErrClosed) { // this side has closed it: it is counted already, or the head has ended
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strange(why)
}

// strange counts a rejected connection. mu must be held.
func (h *Head) strange(why *stranger) {
	if h.stats.Strangers == nil {
		h.stats.Strangers = make(map[string]int)
	}
	h.stats.Strangers[why.word]++
}

// Stats returns the statistics so far.
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
