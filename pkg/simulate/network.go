package simulate

import (
	"context"
	"io"
	"net"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// Transports of the peer links.
const (
	overTCP    = "loopback TCP"
	overMemory = "memory" // used if this process may not open enough connections
	overNone   = "none"   // heartbeat files only
)

// connectionsANode is the number of files that a peer link needs: both of its ends are in this
// process. connectionsOfAWorld is the number for nodes with ranks, which need one more connection,
// and a socket.
const (
	connectionsANode    = 2
	connectionsOfAWorld = 5
)

// over returns the transport of the job's peer links.
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

// overWith returns TCP if the process may open enough files for the connections and the daemons,
// otherwise memory.
func overWith(nodes, each int, files uint64) string {
	if fits(nodes, files-min(files, uint64(each*nodes))) != nil {
		return overMemory
	}
	return overTCP
}

// connect sets the network of the daemons.
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

// mortal is the network of the daemon that dies. At its death, all its connections and its listener
// are closed without notice, as its kernel would close them.
type mortal struct {
	peerlink.Network
	alive context.Context
}

// kept closes a connection or listener when the daemon dies, or at once if it is dead.
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

// mortalListener is a listener whose connections are closed at the daemon's death.
type mortalListener struct {
	net.Listener
	mortal mortal
}

// Accept implements net.Listener. It returns the connection itself, without a wrapper.
func (l mortalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return kept(l.mortal, c, err)
}

// Dial implements peerlink.Network. After the daemon's death, it blocks until ctx ends.
func (m mortal) Dial(ctx context.Context, address string) (net.Conn, error) {
	if m.alive.Err() != nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c, err := m.Network.Dial(ctx, address)
	return kept(m, c, err)
}
