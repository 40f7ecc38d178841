package rsh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Team provides information about the nodes to the head.
type Team interface {
	Hosts() (nodes []int, hosts []string) // the driver's nodes, in order
	Address(node int) string              // address that other nodes can use; empty if unknown
	// RequestConn asks a node, by its peer link, for a connection. It returns an error if the node has
	// no peer link.
	RequestConn(node int) error
}

// Broker is the head's side: it connects agents with the nodes that run their commands.
type Broker struct {
	team Team
	node *Node

	activeAgents atomic.Int32 // number of agents being served

	mu          sync.Mutex
	arrived     map[int]chan Conn // unbuffered, by node; guarded by mu
	running     map[int][]Conn    // connections of running commands, by node; guarded by mu
	brokenHosts []string          // hosts of killed or cut off commands, each once; guarded by mu
}

// NewBroker returns the exchange of a head. node is the head's own: the exchange also serves its
// agents.
func NewBroker(team Team, node *Node) *Broker {
	x := &Broker{
		team: team, node: node, arrived: make(map[int]chan Conn), running: make(map[int][]Conn),
	}
	node.broker = x
	return x
}

// ServeConn handles a connection from a node, which either carries the request of an agent there,
// or was requested by the head.
func (x *Broker) ServeConn(ctx context.Context, node int, conn Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	r, err := readRequest(conn)
	switch stop(); {
	case err != nil:
		_ = conn.Close()
	case r.AwaitsCommand:
		ctx, cancel := context.WithTimeout(ctx, connRetryInterval)
		defer cancel()
		select {
		case x.arrivals(node) <- conn:
		case <-ctx.Done(): // no agent waits for it any more
			_ = conn.Close()
		}
	default:
		x.serveAgent(ctx, node, conn, r)
		_ = conn.Close()
	}
}

// serveAgent runs the command of an agent on the node from, and returns after its end.
func (x *Broker) serveAgent(ctx context.Context, from int, agent Conn, r request) {
	x.activeAgents.Add(1)
	defer x.activeAgents.Add(-1)
	node, err := FindNode(r.Host, from, x.team)
	// The head runs the command itself.
	if err == nil && node == 0 {
		x.node.runCommand(ctx, agent, r)
		return
	}
	// Ask the other node for a connection, and forward the request.
	var conn Conn
	if err == nil {
		conn, err = x.requestConn(ctx, node)
	}
	if err == nil {
		defer x.releaseConn(node, conn)
		err = writeRequest(conn, r)
	}
	if err != nil {
		refuse(agent, err)
		return
	}
	// A code above 128 means that a signal ended the command, or (255) that its exit is unknown.
	ended := joinConns(ctx, agent, conn)
	x.mu.Lock()
	defer x.mu.Unlock()
	if ended.Code > 128 && !slices.Contains(x.brokenHosts, r.Host) {
		x.brokenHosts = append(x.brokenHosts, r.Host)
	}
}

const (
	// settleTimeout is how long the end of a driver waits for its agents. They have ended before the
	// driver, but if an mpirun ends because its agent was killed, this daemon may notice the end of
	// the agent later. settlePollInterval is the polling interval.
	settleTimeout      = time.Second
	settlePollInterval = 2 * time.Millisecond
)

// DescribeBroken describes the hosts on which commands were killed, or cut off from their agents.
// It returns an empty string if there are none. It should be called when the driver has ended,
// because an mpirun may report success nevertheless: that of Open MPI 5 does. It waits at most a
// second for agents that are still served, but not longer, because a driver may leave agents
// behind.
func (x *Broker) DescribeBroken(ctx context.Context) string {
	for end := time.Now().Add(settleTimeout); x.activeAgents.Load() > 0 && time.Now().Before(end) && ctxutil.SleepContext(ctx, settlePollInterval); {
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch hosts := x.brokenHosts; len(hosts) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("a command that it ran on %s with bringupd rsh was killed or disconnected", hosts[0])
	default:
		return fmt.Sprintf("commands that it ran on %s and %d more with bringupd rsh were killed or disconnected", hosts[0], len(hosts)-1)
	}
}

const (
	// connRetryInterval is the time after which the head asks a node again for a connection, and
	// connTimeout the timeout for all tries.
	connRetryInterval = time.Second
	connTimeout       = 10 * time.Second
	// linkTimeout is how long the head tolerates that a node has no peer link, because a driver may
	// start faster than the first connection. linkRetryInterval is the retry interval.
	linkTimeout       = time.Second
	linkRetryInterval = 10 * time.Millisecond
)

var errNoAnswer = errors.New("it does not respond on its peer link")

// requestConn asks a node for a connection until it arrives, and returns it.
func (x *Broker) requestConn(ctx context.Context, node int) (Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connTimeout, errNoAnswer)
	defer cancel()
	// Repeat the request, because it may get lost with a peer link.
	for began := time.Now(); ; {
		pace, err := connRetryInterval, x.team.RequestConn(node)
		if err != nil {
			pace = linkRetryInterval
		}
		select {
		case conn := <-x.arrivals(node):
			x.mu.Lock()
			defer x.mu.Unlock()
			x.running[node] = append(x.running[node], conn)
			return conn, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pace):
			if err != nil && time.Since(began) >= linkTimeout {
				return nil, err
			}
		}
	}
}

// arrivals returns the channel for the connections of a node, from which its waiting agents read.
func (x *Broker) arrivals(node int) chan Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.arrived[node] == nil {
		x.arrived[node] = make(chan Conn)
	}
	return x.arrived[node]
}

// releaseConn closes a node's connection after the end of its command.
func (x *Broker) releaseConn(node int, conn Conn) {
	_ = conn.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running[node] = slices.DeleteFunc(x.running[node], func(other Conn) bool { return other == conn })
}

// CloseNodeConns closes the connections of commands on a lost node, so that their agents get an
// error instead of waiting for an unresponsive host. It does nothing if x is nil.
func (x *Broker) CloseNodeConns(node int) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, conn := range x.running[node] {
		_ = conn.Close()
	}
}
