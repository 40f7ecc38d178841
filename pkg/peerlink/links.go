package peerlink

import (
	"net"
	"time"
)

// Links has the head's ends of all peer links, and their state. If it is nil, there are no links.
type Links struct {
	*Liveness
	Head     *Head // nil before [Links.PrepareHead]
	listener net.Listener
}

// OpenLinks opens the port for the workers' peer links, with the given heartbeat interval. It
// returns the address of the port on each host with a non-empty name.
func OpenLinks(network Network, beat time.Duration, hosts ...string) (l *Links, where []string, err error) {
	listener, err := network.Listen()
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		_ = listener.Close()
		return nil, nil, err
	}
	for _, host := range hosts {
		if host != "" {
			where = append(where, net.JoinHostPort(host, port))
		}
	}
	return &Links{Liveness: NewLiveness(beat), listener: listener}, where, nil
}

// PrepareHead creates the Head that accepts peer links of workers, and of guests that request
// commands. The caller must still run it.
func (l *Links) PrepareHead(cfg Config, workers HeadHandler, guests ClientHandler) {
	l.Head = NewHead(cfg, l.listener, workers)
	l.Head.AcceptClients(guests)
}

// AreHealthy reports whether the given number of workers send heartbeats on their links, and their
// kernels acknowledge the head's data. Then no heartbeat files are necessary. A link that has just
// ended is reported as gone only after the time to reconnect, but its evidence shows the end at
// once.
func (l *Links) AreHealthy(workers int, now time.Time) bool {
	if !l.AllOnTime(workers, now) {
		return false
	}
	for node := range workers {
		if !l.Head.WorkerTCPState(node + 1).Acknowledges {
			return false
		}
	}
	return true
}

// IsConnected reports whether a worker is connected.
func (l *Links) IsConnected(node int) bool {
	if l == nil {
		return false
	}
	known, _ := l.PeerState(node)
	return known.Connected
}

// HasEnded reports whether a worker's daemon has ended, because the kernel of its host has closed
// its link. A daemon that has sent a goodbye message has ended, too, but is not reported, because
// the run directory has more information. If blind is true, the run directory cannot be read: then
// a link that has ended in any way, or has never existed, counts as ended.
func (l *Links) HasEnded(node int, blind bool) bool {
	if l == nil {
		return blind
	}
	known, ever := l.PeerState(node)
	if !ever {
		return blind
	}
	return !known.Connected && (known.CloseReason == Closed || blind)
}

// Close sends goodbye messages on all links, and closes the port.
func (l *Links) Close() {
	if l == nil {
		return
	}
	if l.Head != nil {
		l.Head.SayGoodbye()
	}
	_ = l.listener.Close()
}
