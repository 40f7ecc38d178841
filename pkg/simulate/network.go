package simulate

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/simulate/memory"
)

// What lifelines are held over.
const (
	OverTCP    = "loopback TCP"
	OverMemory = "memory" // this process may not open so many connections
	OverNone   = "none"   // beat files alone
)

// connectionsANode is how many files a lifeline takes: both its ends are here.
const connectionsANode = 2

// over returns what the lifelines of a job are held over.
func (c Config) over() string {
	if c.Lifeline == daemon.LifelineOff || c.Nodes == 1 {
		return OverNone
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return OverTCP // what can't be told is found out
	}
	return overWith(c.Nodes, limit.Cur)
}

func overWith(nodes int, files uint64) string {
	if fits(nodes, files-min(files, uint64(connectionsANode*nodes))) != nil {
		return OverMemory
	}
	return OverTCP
}

// connect gives the daemons the network that their lifelines are held over.
func (j *job) connect(over string) {
	switch over {
	case OverMemory:
		all := new(memory.Net)
		for rank := range j.daemons {
			host := all.Host(j.daemons[rank].Identity.Host)
			j.daemons[rank].Network = host
			if j.victim != nil && j.victim.rank == rank {
				j.victim.network = host
			}
		}
	case OverTCP:
		if j.victim != nil {
			mortal := &mortal{}
			j.daemons[j.victim.rank].Network, j.victim.network = mortal, mortal
		}
	}
}

// mortal is the network of a daemon that is to die: TCP, until all is closed, as
// its kernel does.
type mortal struct {
	mu       sync.Mutex
	vanished bool
	open     []interface{ Close() error }
}

var _ lifeline.Network = (*mortal)(nil)

// keep notes what is open, and closes it where the daemon is dead.
func (m *mortal) keep(one interface{ Close() error }) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vanished {
		_ = one.Close()
		return
	}
	m.open = append(m.open, one)
}

// Vanish closes all connections without a word, and the port.
func (m *mortal) Vanish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vanished = true
	for _, one := range m.open {
		_ = one.Close()
	}
	m.open = nil
}

// Listen implements lifeline.Network.
func (m *mortal) Listen() (net.Listener, error) {
	l, err := lifeline.TCP{}.Listen()
	if err != nil {
		return nil, err
	}
	m.keep(l)
	return mortalListener{l, m}, nil
}

type mortalListener struct {
	net.Listener
	mortal *mortal
}

// Accept implements net.Listener. What it returns is the socket itself.
func (l mortalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mortal.keep(c)
	}
	return c, err
}

// Dial implements lifeline.Network. The dead get no answer.
func (m *mortal) Dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	vanished := m.vanished
	m.mu.Unlock()
	if vanished {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c, err := lifeline.TCP{}.Dial(ctx, address)
	if err == nil {
		m.keep(c)
	}
	return c, err
}
