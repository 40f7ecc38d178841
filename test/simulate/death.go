package simulate

import (
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// victim is the daemon that dies as by kill -9: from its death on, its calls have no effect and get
// no answer. Its goroutines stay blocked in this process until the field released is closed.
type victim struct {
	node  int
	alive context.Context // ends at its death
	// kill ends alive, so that its calls block, and then its connections close, which the others may
	// notice.
	kill     func()
	released chan struct{} // closed when all others have returned
}

// newVictim returns nil if no daemon should die.
func newVictim(cfg Config) *victim {
	if cfg.Death == "" {
		return nil
	}
	v := &victim{released: make(chan struct{})}
	v.alive, v.kill = context.WithCancel(context.Background())
	if cfg.Death == WorkerDies {
		v.node = cfg.Nodes / 2
	}
	return v
}

// isEndOfVictim reports whether this is the end of the victim.
func (v *victim) isEndOfVictim(one daemonEnd) bool { return one.node == v.node }

// killAndMeasure ends the victim, waits until all other daemons have returned, and returns
// measurements of that. Then it releases the goroutines of the victim.
func (j *simulatedJob) killAndMeasure(ctx context.Context, leave func()) *DeathResult {
	began, calls, used := j.clock.sinceStart(), sumCounts(j.countCalls()...).Calls, processorTime()
	j.victim.kill()
	// The victim's own goroutines may or may not have ended before.
	j.awaitEnds(ctx, leave, func() bool {
		left := len(j.daemons) - len(j.ended)
		return left == 0 || left == 1 && !slices.ContainsFunc(j.ended, j.victim.isEndOfVictim)
	})
	d := &DeathResult{
		Node: j.victim.node, Processor: processorTime() - used,
		Calls: sumCounts(j.countCalls()...).Calls - calls,
	}
	want := health.OutcomeOfKind(health.PeerLost).Code
	var took []time.Duration
	for _, one := range j.ended {
		if one.node == j.victim.node {
			continue
		}
		took = append(took, one.at-began)
		if one.code != want {
			d.WrongCode = one.code
		}
	}
	d.Took = percentilesOf(took)
	close(j.victim.released)
	leave()
	j.interruptDaemons()
	return d
}

// mortalNetwork is the network of the daemon that dies. At its death, all its connections and its
// listener are closed without notice, as its kernel would close them.
type mortalNetwork struct {
	peerlink.Network
	alive context.Context
}

// closeAtDeath closes a connection or listener when the daemon dies, or at once if it is dead.
func closeAtDeath[T io.Closer](m mortalNetwork, one T, err error) (T, error) {
	if err == nil {
		context.AfterFunc(m.alive, func() { _ = one.Close() })
	}
	return one, err
}

// Listen implements peerlink.Network.
func (m mortalNetwork) Listen() (net.Listener, error) {
	l, err := m.Network.Listen()
	return closeAtDeath(m, net.Listener(mortalListener{l, m}), err)
}

// mortalListener is a listener whose connections are closed at the daemon's death.
type mortalListener struct {
	net.Listener
	mortal mortalNetwork
}

// Accept implements net.Listener. It returns the connection itself, without a wrapper.
func (l mortalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return closeAtDeath(l.mortal, c, err)
}

// Dial implements peerlink.Network. After the daemon's death, it blocks until ctx ends.
func (m mortalNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	if m.alive.Err() != nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c, err := m.Network.Dial(ctx, address)
	return closeAtDeath(m, c, err)
}
