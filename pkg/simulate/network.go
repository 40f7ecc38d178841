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
	transportTCP    = "loopback TCP"
	transportMemory = "memory" // used if this process may not open enough connections
	transportNone   = "none"   // heartbeat files only
)

// filesPerLink is the number of files that a peer link needs: both of its ends are in this
// process. filesPerRankNode is the number for nodes with ranks, which need one more connection,
// and a socket.
const (
	filesPerLink     = 2
	filesPerRankNode = 5
)

// chooseTransport returns the transport of the job's peer links.
func (c Config) chooseTransport() string {
	if c.LinkMode == config.LinkOff || c.Nodes == 1 {
		return transportNone
	}
	each := filesPerLink
	if c.Ranks > 0 {
		each = filesPerRankNode
	}
	return transportWithin(c.Nodes, each, openFileLimit())
}

// transportWithin returns TCP if the process may open enough files for the connections and the
// daemons, otherwise memory.
func transportWithin(nodes, each int, files uint64) string {
	if checkFilesNeeded(nodes, files-min(files, uint64(each*nodes))) != nil {
		return transportMemory
	}
	return transportTCP
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
