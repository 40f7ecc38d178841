package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Handler executes a named operation that the other side of the connection requests. node is the
// node that requests the operation from the head, or that executes it for the head. It may block
// until ctx ends.
type Handler func(ctx context.Context, node int, name string, data []byte) ([]byte, error)

type pendingOrder struct {
	*message
	result chan *message // receives the result; buffered by one
}

var errNodeLost = errors.New("the node is lost")

// SetCallHandler sets the function that executes the nodes' calls, and the function that starts a
// goroutine for each of them. It must be called before the first call arrives.
func (h *Head) SetCallHandler(do Handler, background func(task func(ctx context.Context))) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handleCall, h.background = do, background
}

// AddRanks adds ranks that did not exist when the run began. Each place names a node and its new
// ranks.
func (h *Head) AddRanks(places []NodeRanks) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.layout.addRanks(places)
}

func (h *Head) executeCallLocked(from requestID, m *message) {
	do := h.handleCall
	if do == nil {
		h.answerLocked(from, &message{Error: fmt.Sprintf("cannot execute %q: the head is not ready yet", m.Name)})
		return
	}
	h.background(func(ctx context.Context) {
		answer := &message{}
		data, err := do(ctx, from.node, m.Name, m.Data)
		if answer.Data = data; err != nil {
			answer.Error = err.Error()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answerLocked(from, answer)
	})
}

// CallNode requests an operation from a node and waits for its result until ctx ends or the node is
// lost.
func (h *Head) CallNode(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
	h.mu.Lock()
	if h.layout.nodeAt(node) == nil || h.lostNodes[node] {
		h.mu.Unlock()
		return nil, errNodeLost
	}
	p := h.peers[node]
	p.orderCount++
	o := &pendingOrder{&message{Kind: kindOrder, Name: name, FenceFields: FenceFields{Number: p.orderCount},
		Data: data}, make(chan *message, 1)}
	p.orders = append(p.orders, o)
	h.sendLocked(node, o.message)
	h.mu.Unlock()
	select {
	case m := <-o.result:
		if m.Error != "" {
			return nil, errors.New(m.Error)
		}
		return m.Data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (h *Head) completeOrderLocked(node int, m *message) {
	p := h.peers[node]
	if at := slices.IndexFunc(p.orders, func(o *pendingOrder) bool { return o.Number == m.Number }); at >= 0 {
		p.orders[at].result <- m
		p.orders = slices.Delete(p.orders, at, at+1)
	}
}

// failOrdersLocked fails all pending orders of a lost node. It requires h.mu.
func (h *Head) failOrdersLocked(node int) {
	p := h.peers[node]
	for _, o := range p.orders {
		o.result <- &message{Error: errNodeLost.Error()}
	}
	p.orders = nil
}

// AddRanks adds the ranks of this node that did not exist when the run began. It ignores the places
// of other nodes.
func (n *Node) AddRanks(places []NodeRanks) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, more := range places {
		if more.Node == n.self.Node {
			n.self.Ranks = append(n.self.Ranks, more.Ranks...)
		}
	}
}

// CallHead requests an operation from the head and waits for its result until ctx ends.
func (n *Node) CallHead(ctx context.Context, name string, data []byte) ([]byte, error) {
	m, err := n.requestHead(ctx, &message{Kind: kindCall, Name: name, Data: data})
	switch {
	case err != nil:
		return nil, err
	case m.Error != "":
		return nil, errors.New(m.Error)
	}
	return m.Data, nil
}

// requestHead sends a request to the head and waits for its answer until ctx ends.
func (n *Node) requestHead(ctx context.Context, question *message) (*message, error) {
	to := make(chan *message, 1)
	n.mu.Lock()
	n.active = true // from now on, ends of ranks are reported without delay
	seq := n.queueRequestLocked(question)
	n.answerChans[seq] = to
	n.mu.Unlock()
	select {
	case m := <-to:
		return m, nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.answerChans, seq)
		return nil, context.Cause(ctx)
	}
}

// executeOrderLocked executes an order of the head on a background goroutine and then reports the
// result. It ignores an order that was received before. It requires n.mu.
func (n *Node) executeOrderLocked(m *message) {
	if m.Number <= n.lastOrder {
		return
	}
	n.lastOrder = m.Number
	n.cfg.Background(func(ctx context.Context) {
		answer := &message{Kind: kindOrderDone, FenceFields: FenceFields{Number: m.Number}}
		data, err := n.cfg.HandleOrder(ctx, n.self.Node, m.Name, m.Data)
		if answer.Data = data; err != nil {
			answer.Error = err.Error()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.queueRequestLocked(answer)
	})
}

// GatherGroup enters all local ranks of a group into the group's fence, with data, and waits until
// the ranks of the other nodes have entered or ctx ends. It returns the data of all nodes,
// concatenated in any order. The head may omit data that is large; the nodes then request the parts
// that they use.
func (n *Node) GatherGroup(ctx context.Context, name string, of Group, data []byte) ([]byte, error) {
	name = of.fenceName(name)
	var gen int
	var m *fenceRound
	for _, rank := range of.Local {
		var err error
		gen, m, err = n.enterFence(name, of, rank, Exchange{Send: func() []byte { return data }})
		if err != nil {
			return nil, err
		}
	}
	if err := n.awaitRound(ctx, name, gen, m, of.Local...); err != nil {
		return nil, err
	}
	return m.data, nil
}
