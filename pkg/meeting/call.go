package meeting

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Operation does what one side asks of the other by that name. It may wait until ctx ends.
type Operation func(ctx context.Context, node int, name string, data []byte) ([]byte, error)

// service does what nodes call, on goroutines that the daemon waits for.
type service struct {
	do         Operation
	background func(task func(ctx context.Context))
}

// order is what a node is to do.
type order struct {
	*message
	done chan *message // its answer
}

// errLost is that a node will never answer.
var errLost = errors.New("the node is lost")

// Offer says who does what nodes call. It must be told before they do.
func (h *Head) Offer(do Operation, background func(task func(ctx context.Context))) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serve = &service{do, background}
}

// Add has ranks come that the run has not begun with: each place tells which, of its node.
func (h *Head) Add(places []Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.world.add(places)
}

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

// Order has a node do something, and waits for what comes of it until ctx ends or the node is lost.
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

func (h *Head) doneLocked(node int, m *message) {
	p := h.peerLocked(node)
	if at := slices.IndexFunc(p.orders, func(o *order) bool { return o.Gen == m.Gen }); at >= 0 {
		p.orders[at].done <- m
		p.orders = slices.Delete(p.orders, at, at+1)
	}
}

// abandonLocked gives up the orders of a node that is lost.
func (h *Head) abandonLocked(node int) {
	p := h.peerLocked(node)
	for _, o := range p.orders {
		o.done <- &message{Error: errLost.Error()}
	}
	p.orders = nil
}

// Add has ranks come that the run has not begun with: each place tells which, of its node.
func (n *Node) Add(places []Place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, more := range places {
		if more.Node == n.place.Node {
			n.place.Ranks = append(n.place.Ranks, more.Ranks...)
		}
	}
}

// Call has the head do something, and waits for what comes of it until ctx ends.
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

// ask asks the head, and waits for its answer until ctx ends.
func (n *Node) ask(ctx context.Context, question *message) (*message, error) {
	to := make(chan *message, 1)
	n.mu.Lock()
	n.touched = true // or the end of a rank that was told before would be asked for later
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

// orderedLocked does what the head orders, once, on a goroutine of its own.
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

// Arrive tells that a rank of this node has come to the group's fence of this name, for who asks who is missing. Gather tells when all have.
func (n *Node) Arrive(name string, of Group, rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.fenceLocked(of.named(name), of)
	f.counts[rank] = max(f.counts[rank], f.rounds+1)
	f.inside[rank] = f.rounds + 1
	f.openLocked(f.rounds + 1)
	n.touchLocked()
}

// Gather enters all ranks of a group that this node has into the group's fence of this name, with what they bring, and waits until the other
// nodes' ranks have come, or ctx ends. It returns what all nodes have brought, one after the other, in any order; nothing where that is much
// and no node needs it, but can ask for what it wants of it.
func (n *Node) Gather(ctx context.Context, name string, of Group, data []byte, need bool) ([]byte, error) {
	name = of.named(name)
	n.mu.Lock()
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
