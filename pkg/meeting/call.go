package meeting

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Operation executes a named operation that the other side of the connection requests. node is the
// node that requests the operation from the head, or that executes it for the head. It may block
// until ctx ends.
type Operation func(ctx context.Context, node int, name string, data []byte) ([]byte, error)

// service executes the operations that nodes request, on goroutines that the daemon waits for.
type service struct {
	do         Operation
	background func(task func(ctx context.Context))
}

// order is an operation that the head requested from a node, until the node reports its result.
type order struct {
	*message
	done chan *message // receives the result; buffered by one
}

// errLost is the result of an operation on a node that has been lost.
var errLost = errors.New("the node is lost")

// Offer sets the function that executes the nodes' calls, and the function that starts a goroutine
// for each of them. It must be called before the first call arrives.
func (h *Head) Offer(do Operation, background func(task func(ctx context.Context))) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serve = &service{do, background}
}

// Add adds ranks that did not exist when the run began. Each place names a node and its new ranks.
func (h *Head) Add(places []Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.world.add(places)
}

// calledLocked executes a node's call on a background goroutine and then answers it. It requires
// h.mu.
func (h *Head) calledLocked(from asked, m *message) {
	if h.serve == nil {
		h.answerLocked(from, &message{Error: fmt.Sprintf("cannot do %q: the head offers nothing yet", m.Name)})
		return
	}
	do := h.serve.do
	h.serve.background(func(ctx context.Context) {
		answer := &message{}
		data, err := do(ctx, from.node, m.Name, m.data)
		if answer.data = data; err != nil {
			answer.Error = err.Error()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answerLocked(from, answer)
	})
}

// Order requests an operation from a node and waits for its result until ctx ends or the node is
// lost.
func (h *Head) Order(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
	h.mu.Lock()
	if h.world.at(node) == nil || h.lost[node] {
		h.mu.Unlock()
		return nil, errLost
	}
	p := h.peerLocked(node)
	p.given++
	o := &order{&message{Kind: kindOrder, Name: name, Gen: p.given, data: data}, make(chan *message, 1)}
	p.orders = append(p.orders, o)
	h.sendLocked(node, o.message)
	h.mu.Unlock()
	select {
	case m := <-o.done:
		if m.Error != "" {
			return nil, errors.New(m.Error)
		}
		return m.data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// doneLocked passes the result of an order to its waiting caller. It ignores results of orders that
// are no longer pending. It requires h.mu.
func (h *Head) doneLocked(node int, m *message) {
	p := h.peerLocked(node)
	if at := slices.IndexFunc(p.orders, func(o *order) bool { return o.Gen == m.Gen }); at >= 0 {
		p.orders[at].done <- m
		p.orders = slices.Delete(p.orders, at, at+1)
	}
}

// abandonLocked fails all pending orders of a lost node. It requires h.mu.
func (h *Head) abandonLocked(node int) {
	p := h.peerLocked(node)
	for _, o := range p.orders {
		o.done <- &message{Error: errLost.Error()}
	}
	p.orders = nil
}

// Add adds the ranks of this node that did not exist when the run began. It ignores the places of
// other nodes.
func (n *Node) Add(places []Place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, more := range places {
		if more.Node == n.place.Node {
			n.place.Ranks = append(n.place.Ranks, more.Ranks...)
		}
	}
}

// Call requests an operation from the head and waits for its result until ctx ends.
func (n *Node) Call(ctx context.Context, name string, data []byte) ([]byte, error) {
	m, err := n.ask(ctx, &message{Kind: kindCall, Name: name, data: data})
	switch {
	case err != nil:
		return nil, err
	case m.Error != "":
		return nil, errors.New(m.Error)
	}
	return m.data, nil
}

// ask sends a request to the head and waits for its answer until ctx ends.
func (n *Node) ask(ctx context.Context, question *message) (*message, error) {
	to := make(chan *message, 1)
	n.mu.Lock()
	n.touched = true // from now on, ends of ranks are reported without delay
	seq := n.askLocked(question)
	n.asked[seq] = to
	n.mu.Unlock()
	select {
	case m := <-to:
		return m, nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.asked, seq)
		return nil, context.Cause(ctx)
	}
}

// orderedLocked executes an order of the head on a background goroutine and then reports the
// result. It ignores an order that was received before. It requires n.mu.
func (n *Node) orderedLocked(m *message) {
	if m.Gen <= n.orders {
		return
	}
	n.orders = m.Gen
	n.cfg.Background(func(ctx context.Context) {
		answer := &message{Kind: kindDone, Gen: m.Gen}
		data, err := n.cfg.Do(ctx, n.place.Node, m.Name, m.data)
		if answer.data = data; err != nil {
			answer.Error = err.Error()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.askLocked(answer)
	})
}

// Arrive records that a rank of this node has entered the group's fence, so that a query for
// missing ranks does not list it. It does not report anything to the head; [Node.Gather] does that
// when all local ranks have entered.
func (n *Node) Arrive(name string, of Group, rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.fenceLocked(of.named(name), of)
	f.counts[rank] = max(f.counts[rank], f.rounds+1)
	f.inside[rank] = f.rounds + 1
	f.openLocked(f.rounds + 1)
	n.touchLocked()
}

// Gather enters all local ranks of a group into the group's fence, with data, and waits until the
// ranks of the other nodes have entered or ctx ends. It returns the data of all nodes, concatenated
// in any order. If no node sets need, the head may omit data that is large; the nodes then request
// the parts that they use.
func (n *Node) Gather(ctx context.Context, name string, of Group, data []byte, need bool) ([]byte, error) {
	name = of.named(name)
	n.mu.Lock()
	// Enter the fence for all local ranks.
	f := n.fenceLocked(name, of)
	f.rounds++
	gen := f.rounds
	m := f.openLocked(gen)
	m.sent = true
	for _, rank := range of.Local {
		f.counts[rank], f.inside[rank] = max(f.counts[rank], gen), gen
	}
	n.touched = true
	n.askLocked(&message{Kind: kindEnter, Name: name, Gen: gen, Of: of.Ranks, Collect: need, data: data})
	n.mu.Unlock()
	// Wait for the release by the head, and clean up in any case.
	passed := pause.Await(ctx, m.done)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, rank := range of.Local {
		if f.inside[rank] == gen {
			delete(f.inside, rank)
		}
	}
	delete(f.open, gen)
	if !passed {
		return nil, context.Cause(ctx)
	}
	return m.data, m.err
}
