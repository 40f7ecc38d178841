package lifeline

import (
	"errors"
	"maps"
	"net"
)

// Stats is what a head has seen of its lifelines.
type Stats struct {
	Connected  int       `json:"connected"`  // now
	Reconnects int       `json:"reconnects"` // of ranks that had been connected before
	Strangers  Strangers `json:"strangers"`
}

// Strangers counts the connections that were not let in.
type Strangers struct {
	Late         int `json:"late"`          // they gave no whole proof in time, or none at all
	WrongKey     int `json:"wrong_key"`     // they do not know the attempt's key
	Garbage      int `json:"garbage"`       // they do not speak our protocol
	WrongRank    int `json:"wrong_rank"`    // they know the key, but no worker has their rank
	CrowdedOut   int `json:"crowded_out"`   // there were too many at once
	SecondDaemon int `json:"second_daemon"` // another daemon of their rank is connected
}

// Reasons returns those counts that are not zero, by their names.
func (s Strangers) Reasons() map[string]int {
	reasons := map[string]int{
		"late": s.Late, "wrong_key": s.WrongKey, "garbage": s.Garbage,
		"wrong_rank": s.WrongRank, "crowded_out": s.CrowdedOut, "second_daemon": s.SecondDaemon,
	}
	maps.DeleteFunc(reasons, func(_ string, count int) bool { return count == 0 })
	return reasons
}

var errWrongRank = errors.New("no worker of this attempt has its rank")

// turnAway counts a stranger that is not let in.
func (h *Head) turnAway(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := &h.stats.Strangers
	switch {
	case errors.Is(err, errTaken):
		count.SecondDaemon++
	case errors.Is(err, errWrongRank):
		count.WrongRank++
	case errors.Is(err, errWrongKey):
		count.WrongKey++
	case errors.Is(err, errGarbage):
		count.Garbage++
	case errors.Is(err, net.ErrClosed): // by us: it was crowded out and is counted, or we have ended
	default:
		count.Late++
	}
}

// Stats returns what the head has seen until now.
func (h *Head) Stats() Stats {
	h.mu.Lock()
	stats := h.stats
	h.mu.Unlock()
	for rank := range h.seats {
		if h.seats[rank].live() != nil {
			stats.Connected++
		}
	}
	return stats
}
