package peerlink

import (
	"errors"
	"maps"
	"net"
)

// Stats are the head's statistics of peer links.
type Stats struct {
	Reconnects int // number of connections of workers that had been connected before
	// Rejected has the number of rejected connections by reason. It is nil if there were none.
	Rejected map[string]int
}

// rejection is the error of a rejected connection.
type rejection struct{ reason, message string } // the key in Stats, and the message

func (s *rejection) Error() string { return s.message }

var (
	errWrongProtocol   = &rejection{"garbage", "it does not speak the peer link's protocol"}
	errWrongKey        = &rejection{"wrong_key", "it does not have this attempt's key"}
	errWrongIndex      = &rejection{"wrong_rank", "no worker of this attempt has its node index"}
	errDuplicateDaemon = &rejection{"second_daemon", "another daemon of this node is connected already"}
	errNoProof         = &rejection{"late", "it did not complete the handshake in time"}
	errTooManyConns    = &rejection{"crowded_out", "there were too many at the same time"}
)

// countRejected counts a rejected connection. An err that is not a stranger counts as errNoProof.
func (h *Head) countRejected(err error) {
	why, known := errors.AsType[*rejection](err)
	if !known {
		why = errNoProof
	}
	// this side has closed it: it is counted already, or the head has ended
	if !known && errors.Is(err, net.ErrClosed) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.countRejectedLocked(why)
}

// countRejectedLocked counts a rejected connection. mu must be held.
func (h *Head) countRejectedLocked(why *rejection) {
	if h.stats.Rejected == nil {
		h.stats.Rejected = make(map[string]int)
	}
	h.stats.Rejected[why.reason]++
}

// Stats returns the statistics so far.
func (h *Head) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Reconnects: h.stats.Reconnects, Rejected: maps.Clone(h.stats.Rejected)}
}
