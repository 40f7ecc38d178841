package lifeline

import (
	"net"
	"time"
)

// Lines has the head's ends of all peer links, and their state. If it is nil, there are no links.
type Lines struct {
	*Signs
	Head     *Head // nil before [Lines.Serve]
	listener net.Listener
}

// Offer opens the port for the workers' peer links, with the given heartbeat interval. It returns
// the address of the port on each host with a non-empty name.
func Offer(network Network, beat time.Duration, hosts ...string) (l *Lines, where []string, err error) {
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
	return &Lines{Signs: NewSigns(beat), listener: listener}, where, nil
}

// Serve creates the Head that accepts peer links of workers, and of guests that request commands.
// The caller must still run it.
func (l *Lines) Serve(cfg Config, workers Peers, guests Callers) {
	l.Head = NewHead(cfg, l.listener, workers)
	l.Head.Receive(guests)
}

// Calm reports whether the given number of workers send heartbeats on their links, and their
// kernels acknowledge the head's data. Then no heartbeat files are necessary. A link that has just
// ended is reported as gone only after the time to reconnect, but its evidence shows the end at
// once.
func (l *Lines) Calm(workers int, now time.Time) bool {
	if !l.Well(workers, now) {
		return false
	}
	for rank := range workers {
		if !l.Head.Evidence(rank + 1).Answers {
			return false
		}
	}
	return true
}

// Ties reports whether a worker is connected.
func (l *Lines) Ties(rank int) bool {
	if l == nil {
		return false
	}
	known, _ := l.Of(rank)
	return known.Connected
}

// Ended reports whether a worker's daemon has ended, because the kernel of its host has closed its
// link. A daemon that has sent a goodbye message has ended, too, but is not reported, because the
// run directory has more information. If blind is true, the run directory cannot be read: then a
// link that has ended in any way, or has never existed, counts as ended.
func (l *Lines) Ended(rank int, blind bool) bool {
	if l == nil {
		return blind
	}
	known, ever := l.Of(rank)
	if !ever {
		return blind
	}
	return !known.Connected && (known.Parting == Closed || blind)
}

// Close sends goodbye messages on all links, and closes the port.
func (l *Lines) Close() {
	if l == nil {
		return
	}
	if l.Head != nil {
		l.Head.Farewell()
	}
	_ = l.listener.Close()
}
