package lifeline

import (
	"net"
	"time"
)

// Lines are the head's ends of the workers' lifelines, and what was heard by them.
// Nil lines are none.
type Lines struct {
	*Signs
	Head     *Head // nil before Serve
	listener net.Listener
}

// Offer opens the port that the workers' lifelines come to, at which they beat
// that often, and returns where that is on each of the hosts that have a name.
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

// Serve makes ready the head that takes lifelines in, and whoever asks for
// commands by one: its Run is still to be called.
func (l *Lines) Serve(cfg Config, workers Peers, guests Callers) {
	l.Head = NewHead(cfg, l.listener, workers)
	l.Head.Receive(guests)
}

// Calm tells whether so many workers are heard by their lifelines, and their
// kernels have what we say. One that has just ended is told of when it isn't back
// in time: our beats by files must not wait for that.
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

// Ties tells whether a worker is connected.
func (l *Lines) Ties(rank int) bool {
	if l == nil {
		return false
	}
	known, _ := l.Of(rank)
	return known.Connected
}

// Ended tells whether a worker's daemon has: the kernel of its host has closed its
// lifeline. A goodbye comes last, too, but who can look sees more by that; where
// nobody can, one who never had a lifeline is not waited for, either.
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

// Close ends the lifelines in order. A port that was never served is closed, too.
func (l *Lines) Close() {
	if l == nil {
		return
	}
	if l.Head != nil {
		l.Head.Farewell()
	}
	_ = l.listener.Close()
}
