package daemon

import (
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// lookCost is what one node's look takes of a share that answers some ten
	// thousand calls a second: a look is three.
	lookCost = 300 * time.Microsecond
	// fewAtOnce is how many nodes may look in the same moment.
	fewAtOnce = 64
)

// lines are the head's ends of the workers' lifelines. Nil lines are none.
type lines struct {
	*lifeline.Signs
	head     *lifeline.Head // nil before they are served
	listener net.Listener
}

// offerLines opens the port that the workers' lifelines come to, and returns
// where it is; nothing where there are to be none.
func offerLines(n *node, address string) (*lines, []string, error) {
	if n.cfg.Lifeline == config.LifelineOff || n.id.Size == 1 {
		return nil, nil, nil
	}
	listener, err := n.network().Listen()
	if err != nil && n.cfg.Lifeline == config.LifelineOn {
		return nil, nil, health.Failed(health.Launch, "cannot offer lifelines on %s: %v; give --lifeline=auto", n.name(0), err)
	}
	if err != nil {
		n.log.Warn("cannot offer lifelines: beat files replace them, and a death is noticed later", zap.Error(err))
		return nil, nil, nil
	}
	l := &lines{Signs: lifeline.NewSigns(n.lineBeat()), listener: listener}
	n.ties = &ties{Signs: l.Signs} // before begin, whose tasks read it
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return l, nil, health.Failed(health.Internal, "cannot tell where lifelines may come to: %v", err)
	}
	var where []string
	for _, host := range []string{address, n.id.Host} {
		if host != "" {
			where = append(where, net.JoinHostPort(host, port))
		}
	}
	return l, where, nil
}

// calm tells whether so many workers are heard by their lifelines, and their
// kernels have what we say. One that has just ended is told of when it isn't back
// in time: our beats by files must not wait for that.
func (l *lines) calm(workers int, now time.Time) bool {
	if !l.Well(workers, now) {
		return false
	}
	for rank := range workers {
		if !l.head.Evidence(rank + 1).Answers {
			return false
		}
	}
	return true
}

// ties tells whether a worker is connected.
func (l *lines) ties(rank int) bool {
	if l == nil {
		return false
	}
	known, _ := l.Of(rank)
	return known.Connected
}

// ended tells whether a worker's daemon has: the kernel of its host has closed its
// lifeline. A goodbye comes last, too, but who can look sees more by that; where
// nobody can, one who never had a lifeline is not waited for, either.
func (l *lines) ended(rank int, blind bool) bool {
	if l == nil {
		return blind
	}
	known, ever := l.Of(rank)
	if !ever {
		return blind
	}
	return !known.Connected && (known.Parting == lifeline.Closed || blind)
}

// tell tells the workers by which code the run ends.
func (l *lines) tell(end *ending) {
	code := end.code
	if end.orderly {
		code = 0
	}
	l.head.Over(code)
}

// close ends the lifelines: in order where the head ends in order, by an end that
// is told, or nil. A port that was never served is closed, too.
func (l *lines) close(concluded *ending) {
	if l == nil {
		return
	}
	if l.head != nil {
		if concluded != nil {
			l.tell(concluded)
		}
		l.head.Farewell()
	}
	_ = l.listener.Close()
}

// report tells what was seen of the lifelines, and of strangers at their port.
func (l *lines) report(log *zap.Logger) *signal.LifelineReport {
	if l == nil || l.head == nil {
		return nil
	}
	stats := l.head.Stats()
	strangers := stats.Strangers
	if len(strangers) > 0 {
		log.Warn("strangers came to the port of the lifelines and were turned away", zap.Any("why", strangers))
	}
	return &signal.LifelineReport{Reconnects: stats.Reconnects, Strangers: strangers}
}
