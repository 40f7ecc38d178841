package exec

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
)

// Team provides information about the run's nodes to the head.
type Team interface {
	// SelectNodes returns the sorted indices of the nodes that words select: see [Request].
	SelectNodes(words []string) ([]int, error)
	// OutputPrefix returns the host of a node, which is the prefix of its output.
	OutputPrefix(node int) string
	// AbsentNodes returns the nodes that will not answer although the run continues.
	AbsentNodes() []int
	// NotifyWorker makes a worker poll the control directory now, if it has a peer link.
	NotifyWorker(node int)
	Hosts() (nodes []int, hosts []string) // the driver's nodes, in order
	Address(node int) string              // address that other nodes can use; empty if unknown
	// RequestConn asks a node, by its peer link, for a connection. It returns an error if the node has
	// no peer link.
	RequestConn(node int) error
	HasLink(node int) bool // a node has a peer link
}

// Head is the head's side: it connects callers and agents with the nodes that run their commands.
type Head struct {
	Daemon
	node *Node
	team Team

	activeAgents  atomic.Int32 // number of agents being served
	activeCallers atomic.Int32 // number of callers with a connection, or whose request is being answered

	mu          sync.Mutex
	arrived     map[int]chan Conn // unbuffered, by node; guarded by mu
	running     map[int][]Conn    // connections of running commands, by node; guarded by mu
	brokenHosts []string          // hosts of killed or cut off commands, each once; guarded by mu
}

// NewHead returns the head's side. node is the head's own [Node]: the head also serves its agents.
func NewHead(node *Node, team Team) *Head {
	h := &Head{
		Daemon: node.Daemon, node: node, team: team,
		arrived: make(map[int]chan Conn), running: make(map[int][]Conn),
	}
	node.head = h
	return h
}

// ServeConn handles a connection from a node, which either carries the request of an agent there,
// or was requested by the head.
func (h *Head) ServeConn(ctx context.Context, node int, conn Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	m, further, err := readMessage(conn)
	switch stop(); {
	case err != nil:
		_ = conn.Close()
	case m.AwaitsCommand:
		ctx, cancel := context.WithTimeout(ctx, connRetryInterval)
		defer cancel()
		select {
		case h.arrivals(node) <- conn:
		case <-ctx.Done(): // no command waits for it any more
			_ = conn.Close()
		}
	default:
		h.serveAgent(ctx, node, conn, m, further)
		_ = conn.Close()
	}
}

// ServeCaller handles the connection of a caller, a process outside the job.
func (h *Head) ServeCaller(ctx context.Context, _ int, conn Conn) {
	defer conn.Close()
	h.activeCallers.Add(1)
	defer h.activeCallers.Add(-1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	m, further, err := readMessage(conn)
	if stop(); err != nil || m.Request == nil {
		return
	}
	var mu sync.Mutex // the nodes send concurrently
	to := gob.NewEncoder(conn)
	send := func(a answer) error {
		mu.Lock()
		defer mu.Unlock()
		return to.Encode(a)
	}
	taken := h.acceptRequest(m.ID, *m.Request, nil)
	taken.UseFiles = slices.ContainsFunc(taken.members(),
		func(node int) bool { return node > 0 && !h.team.HasLink(node) })
	if send(answer{Accepted: taken}) != nil || taken.UseFiles {
		return
	}
	wanted, done := watchPeer(ctx, conn, further)
	defer done()
	var nodes sync.WaitGroup
	for i, node := range taken.Nodes {
		nodes.Go(func() {
			pass := func(o Output) error { return send(answer{Node: i, Output: o}) }
			h.runOn(ctx, wanted, node.NodeIndex, m, pass)
		})
	}
	nodes.Wait()
}

// acceptRequest selects the nodes that run a request, or finds the reason for a refusal, and logs
// the result. err is the error of reading the request.
func (h *Head) acceptRequest(id string, request Request, err error) (taken accepted) {
	var nodes []int
	switch {
	case err != nil:
	case h.RunCtx.Err() != nil:
		err = errEnding
	case len(request.Argv) == 0:
		err = errors.New("no command was given")
	default:
		nodes, err = h.team.SelectNodes(request.Nodes)
	}
	if err != nil {
		nodes, taken.Refused = nil, err.Error()
		h.Log.Warn("a request of another bringupd command is refused", zap.String("request", id), zap.Error(err))
	}
	for _, node := range nodes {
		taken.Nodes = append(taken.Nodes, Result{NodeIndex: node, Host: h.team.OutputPrefix(node)})
	}
	h.Trail.WriteEvent(eventlog.RequestAccepted, eventlog.Fields{
		ObjectFields: eventlog.ObjectFields{Request: id, Nodes: new(len(nodes))}, OK: new(err == nil),
	})
	return taken
}

// lostExit is the exit of a command on a lost node. Its code is that of bringupd itself.
var lostExit = Exit{Code: 76, Exit: "lost", Failed: "the node is lost"}

// runOn runs the command of a caller or an agent on a node, and passes on its output and its exit.
func (h *Head) runOn(ctx, wanted context.Context, node int, m message, pass func(Output) error) {
	if node == 0 {
		h.node.runMessage(wanted, m, pass)
		return
	}
	conn, err := h.requestConn(ctx, node)
	if err == nil {
		defer h.releaseConn(node, conn)
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		err = writeMessage(conn, m)
	}
	if err != nil {
		_ = pass(notStarted(err))
		return
	}
	defer context.AfterFunc(wanted, func() { _ = writeMessage(conn, message{Cancel: true}) })()
	// If the caller has gone, the output is discarded until the command has ended.
	if _, err := receiveOutput(conn, func(o Output) { _ = pass(o) }); err != nil && ctx.Err() == nil {
		_ = pass(Output{End: &lostExit})
	}
}

// serveAgent runs the command of an agent on the node from, and returns after its end.
func (h *Head) serveAgent(ctx context.Context, from int, agent Conn, m message, further *json.Decoder) {
	h.activeAgents.Add(1)
	defer h.activeAgents.Add(-1)
	wanted, done := watchPeer(ctx, agent, further)
	defer done()
	ended, to := Exit{Code: NoCode}, gob.NewEncoder(agent)
	pass := func(o Output) error {
		if o.End != nil {
			ended = *o.End
			if o.End = &ended; ended.Failed != "" {
				ended.Code = NoCode
			}
		}
		return to.Encode(o)
	}
	node, err := FindNode(m.Host, from, h.team)
	if err != nil {
		_ = pass(notStarted(err))
		return
	}
	h.runOn(ctx, wanted, node, message{Host: m.Host, Command: m.Command}, pass)
	// A code above 128 means that a signal ended the command, or (255) that its exit is unknown.
	h.mu.Lock()
	defer h.mu.Unlock()
	if ended.Code > 128 && ended.Exit != exitNotStarted && !slices.Contains(h.brokenHosts, m.Host) {
		h.brokenHosts = append(h.brokenHosts, m.Host)
	}
}

const (
	// settleTimeout is how long the end of a driver waits for its agents, and that of a run for the
	// callers. Agents have ended before the driver, but if an mpirun ends because its agent was killed,
	// this daemon may notice the end of the agent later. settlePollInterval is the polling interval.
	settleTimeout      = time.Second
	settlePollInterval = 2 * time.Millisecond
)

// DescribeBroken describes the hosts on which commands were killed, or cut off from their agents.
// It returns an empty string if there are none. It should be called when the driver has ended,
// because an mpirun may report success nevertheless: that of Open MPI 5 does. It waits at most a
// second for agents that are still served, but not longer, because a driver may leave agents
// behind.
func (h *Head) DescribeBroken(ctx context.Context) string {
	awaitZero(ctx, &h.activeAgents)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch hosts := h.brokenHosts; len(hosts) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("a command that it ran on %s with bringupd rsh was killed or disconnected", hosts[0])
	default:
		return fmt.Sprintf("commands that it ran on %s and %d more with bringupd rsh were killed or disconnected",
			hosts[0], len(hosts)-1)
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

var errNotResponding = errors.New("it does not respond on its peer link")

// requestConn asks a node for a connection until it arrives, and returns it.
func (h *Head) requestConn(ctx context.Context, node int) (Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connTimeout, errNotResponding)
	defer cancel()
	// Repeat the request, because it may get lost with a peer link.
	for began := time.Now(); ; {
		pace, err := connRetryInterval, h.team.RequestConn(node)
		if err != nil {
			pace = linkRetryInterval
		}
		select {
		case conn := <-h.arrivals(node):
			h.mu.Lock()
			defer h.mu.Unlock()
			h.running[node] = append(h.running[node], conn)
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

// arrivals returns the channel for the connections of a node, from which its waiting commands read.
func (h *Head) arrivals(node int) chan Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.arrived[node] == nil {
		h.arrived[node] = make(chan Conn)
	}
	return h.arrived[node]
}

func (h *Head) releaseConn(node int, conn Conn) {
	_ = conn.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[node] = slices.DeleteFunc(h.running[node], func(other Conn) bool { return other == conn })
}

// CloseNodeConns closes the connections of commands on a lost node, so that those who wait for them
// get an error instead of waiting for an unresponsive host. It does nothing if h is nil.
func (h *Head) CloseNodeConns(node int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.running[node] {
		_ = conn.Close()
	}
}

// AwaitCallers waits at most a second until all callers have the answers of their nodes.
func (h *Head) AwaitCallers(ctx context.Context) { awaitZero(ctx, &h.activeCallers) }

// awaitZero waits until a number is zero, at most for settleTimeout.
func awaitZero(ctx context.Context, number *atomic.Int32) {
	for end := time.Now().Add(settleTimeout); number.Load() > 0 && time.Now().Before(end); {
		if !ctxutil.SleepContext(ctx, settlePollInterval) {
			return
		}
	}
}
