package simulate

import (
	"context"
	"io"
	"net"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// What lifelines are held over.
const (
	overTCP    = "loopback TCP"
	overMemory = "memory" // this process may not open so many connections
	overNone   = "none"   // beat files alone
)

// connectionsANode is how many files a lifeline takes: both its ends are here. Where nodes have
// ranks, these have a connection as well, and a socket.
const (
	connectionsANode    = 2
	connectionsOfAWorld = 5
)

// over returns what the lifelines of a job are held over.
func (c Config) over() string {
	if c.Lifeline == config.LinkOff || c.Nodes == 1 {
		return overNone
	}
	each := connectionsANode
	if c.Ranks > 0 {
		each = connectionsOfAWorld
	}
	return overWith(c.Nodes, each, mostFiles())
}

func overWith(nodes, each int, files uint64) string {
	if fits(nodes, files-min(files, uint64(each*nodes))) != nil {
		return overMemory
	}
	return overTCP
}

// connect gives the daemons the network that their lifelines are held over.
func (j *job) connect() {
	var network peerlink.Network = peerlink.TCP{}
	if j.over == overMemory {
		network = new(memory)
	}
	for rank := range j.daemons {
		j.daemons[rank].Network = network
	}
	if v := j.victim; v != nil {
		j.daemons[v.rank].Network = mortal{network, v.alive}
	}
}

// mortal is the network of a daemon that is to die: when it does, all its
// connections and its port are closed without a word, as by its kernel.
type mortal struct {
	peerlink.Network
	alive context.Context
}

// kept is closed where the daemon dies, or has died.
func kept[T io.Closer](m mortal, one T, err error) (T, error) {
	if err == nil {
		context.AfterFunc(m.alive, func() { _ = one.Close() })
	}
	return one, err
}

// Listen implements peerlink.Network.
func (m mortal) Listen() (net.Listener, error) {
	l, err := m.Network.Listen()
	return kept(m, net.Listener(mortalListener{l, m}), err)
}

type mortalListener struct {
	net.Listener
	mortal mortal
}

// Accept implements net.Listener. What it returns is the socket itself.
func (l mortalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return kept(l.mortal, c, err)
}

// Dial implements peerlink.Network. The dead get no answer.
func (m mortal) Dial(ctx context.Context, address string) (net.Conn, error) {
	if m.alive.Err() != nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c, err := m.Network.Dial(ctx, address)
	return kept(m, c, err)
}
