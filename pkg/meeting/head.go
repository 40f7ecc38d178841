package meeting

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Head is the head's side of the rendezvous. It stores the values that nodes commit, releases
// fences, and delivers events. Methods whose names end in Locked require h.mu.
type Head struct {
	world World
	log   *zap.Logger

	mu     sync.Mutex
	peers  map[int]*peer
	fences map[fenceID]*gathering
	warned map[fenceID]int // warnings logged so far about missing ranks
	store  map[slot][]byte
	owners map[string][]string // owners of each key, in the order of their puts
	gets   map[slot][]asked
	ended  map[int]gone // ended ranks
	lost   map[int]bool // lost nodes
	met    map[int]bool // nodes that have entered a fence
	full   error        // nil until the store has overflowed; then no more values are kept
	events []client.Event
	counts []*census
	serve  *service      // executes calls; nil until [Head.Offer]
	used   chan struct{} // closed at the first request for data of other nodes
	use    func()        // closes [Head.used], once
}

// peer is the head's state of one node.
type peer struct {
	last    uint64              // highest sequence number received
	listens bool                // it has subscribed to events
	answers map[uint64]*message // answers that the node has not acknowledged
	orders  []*order            // orders without a result
	given   int                 // number of orders sent
	queue   []*message          // messages to send on the connection
	bell    chan struct{}       // wakes the writer; nil if not connected
	drop    func()              // closes the connection; nil if not connected
}

type fenceID struct {
	name string
	gen  int
	of   string // the group's ranges, from Group.Ranks
}

// question returns the request for the ranks that are missing in a fence round.
func (id fenceID) question() *message {
	return &message{Kind: kindWho, Name: id.name, Gen: id.gen, Of: id.of}
}

// asked identifies a request of a node.
type asked struct {
	node int
	seq  uint64
}

// gathering is a fence round that not all nodes have entered.
type gathering struct {
	arrived map[int]uint64 // sequence number of each node's arrival
	of      *members
	collect bool
	slots   []slot // keys of the values that came with the arrivals
	data    []byte
	failed  string // reason why it cannot complete; empty if it can
}

// gone describes how a rank ended.
type gone struct {
	words   string
	entered map[string]int // number of entries into each fence; nil if its node was lost
}

// NewHead returns the head's side for a world.
func NewHead(world World, log *zap.Logger) *Head {
	h := &Head{
		world: world, log: log, peers: make(map[int]*peer), fences: make(map[fenceID]*gathering), warned: make(map[fenceID]int),
		store: make(map[slot][]byte), owners: make(map[string][]string), gets: make(map[slot][]asked),
		ended: make(map[int]gone), lost: make(map[int]bool), met: make(map[int]bool),
		used: make(chan struct{}),
	}
	h.use = sync.OnceFunc(func() { close(h.used) })
	return h
}

// Used returns a channel that is closed when a node requests something that involves other nodes
// for the first time: a fence, a value or a call.
func (h *Head) Used() <-chan struct{} { return h.used }

// Serve serves a node's connection until it or ctx ends, and closes it. A new connection of the
// same node replaces the previous one.
func (h *Head) Serve(ctx context.Context, node int, conn io.ReadWriteCloser) {
	ctx, cancel := context.WithCancel(ctx)
	bell := make(chan struct{}, 1)
	var writing sync.WaitGroup
	if h.connect(node, bell, cancel) {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		writing.Go(func() { h.write(ctx, node, bell, conn, cancel) })
		in := bufio.NewReader(conn)
		for {
			m, err := read(in)
			if err != nil {
				break
			}
			h.receive(node, m)
		}
		stop()
	}
	cancel()
	_ = conn.Close()
	writing.Wait()
	h.disconnect(node, bell)
}

// connect makes a connection the current one of its node, and closes the previous one. It returns
// false if the node is unknown.
func (h *Head) connect(node int, bell chan struct{}, drop func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.world.at(node) == nil {
		return false
	}
	p := h.peerLocked(node)
	if p.drop != nil {
		p.drop()
	}
	p.bell, p.drop, p.queue = bell, drop, nil
	return true
}

// disconnect detaches a connection from its node, unless a newer one has replaced it.
func (h *Head) disconnect(node int, bell chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peerLocked(node); p.bell == bell {
		p.bell, p.drop, p.queue = nil, nil, nil
	}
}

// write sends the queued messages until ctx ends or a write fails.
func (h *Head) write(ctx context.Context, node int, bell chan struct{}, conn io.ReadWriteCloser, cancel func()) {
	defer cancel()
	out := bufio.NewWriter(conn)
	for {
		h.mu.Lock()
		var queue []*message
		if p := h.peerLocked(node); p.bell == bell {
			queue, p.queue = p.queue, nil
		}
		h.mu.Unlock()
		for _, m := range queue {
			if m.write(out) != nil {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
		if len(queue) == 0 && !rung(ctx, bell) {
			return
		}
	}
}

// peerLocked returns the state of a node. It creates the state if necessary.
func (h *Head) peerLocked(node int) *peer {
	p := h.peers[node]
	if p == nil {
		p = &peer{answers: make(map[uint64]*message)}
		h.peers[node] = p
	}
	return p
}

// sendLocked queues a message if the node is connected. Messages that must arrive are sent again on
// the next connection.
func (h *Head) sendLocked(node int, m *message) {
	if p := h.peerLocked(node); p.bell != nil {
		p.queue = append(p.queue, m)
		pause.Ring(p.bell)
	}
}

// answerLocked sends the answer to a request, and keeps it until the node acknowledges it.
func (h *Head) answerLocked(to asked, m *message) {
	m.Kind, m.Seq = kindAnswer, to.seq
	h.peerLocked(to.node).answers[to.seq] = m
	h.sendLocked(to.node, m)
}

// receive handles a message of a node. A request that was handled before is not executed again; its
// answer is sent again.
func (h *Head) receive(node int, m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peerLocked(node)
	if m.Kind == kindHello {
		h.helloLocked(node, p, m)
		return
	}
	for _, seq := range m.Seqs {
		delete(p.answers, seq)
	}
	if m.Seq <= p.last {
		if answer := p.answers[m.Seq]; answer != nil {
			h.sendLocked(node, answer)
		}
		return
	}
	p.last = m.Seq
	h.doLocked(asked{node, m.Seq}, m)
}

// helloLocked resumes the exchange on a new connection: it sends again what the node has not
// received.
func (h *Head) helloLocked(node int, p *peer, m *message) {
	maps.DeleteFunc(p.answers, func(seq uint64, _ *message) bool { return !slices.Contains(m.Seqs, seq) })
	h.listenLocked(node, p, m)
	for at := range h.gets {
		if home := h.world.home(at.Owner); home == nil || home.Node == node {
			h.wantLocked(node, at)
		}
	}
	for _, o := range p.orders {
		h.sendLocked(node, o.message)
	}
}

// listenLocked sends a node the events that it has not received, if it has subscribed.
func (h *Head) listenLocked(node int, p *peer, m *message) {
	if p.listens = p.listens || m.Listen; p.listens {
		for at := min(m.Events, len(h.events)); at < len(h.events); at++ {
			h.sendLocked(node, &message{Kind: kindEvent, Events: at + 1, Event: &h.events[at]})
		}
	}
}

// doLocked executes a request of a node. Enter, get, query and call are answered later, when the
// result is known; all others at once.
func (h *Head) doLocked(from asked, m *message) {
	if m.Kind == kindEnter || m.Kind == kindGet || m.Kind == kindCall {
		h.use()
	}
	switch m.Kind {
	case kindEnter:
		h.enterLocked(from, m)
		return
	case kindGet:
		h.getLocked(from, m.Slot)
		return
	case kindWho:
		h.whoLocked(from, m)
		return
	case kindPush:
		h.keepLocked(m.Entries)
	case kindEnded:
		h.keepLocked(m.Entries)
		h.endLocked(m.Rank, gone{m.Words, m.Entered})
	case kindListen:
		h.listenLocked(from.node, h.peerLocked(from.node), m)
	case kindAbort:
		h.tellLocked(*m.Event)
	case kindHere:
		h.hereLocked(from.node, m)
	case kindCall:
		h.calledLocked(from, m)
		return
	case kindDone:
		h.doneLocked(from.node, m)
	default:
		h.answerLocked(from, &message{Error: fmt.Sprintf("cannot do %q: the head does not know it", m.Kind)})
		return
	}
	h.answerLocked(from, &message{})
}

// enterLocked records the arrival of a node at a fence.
func (h *Head) enterLocked(from asked, m *message) {
	h.keepLocked(m.Entries)
	id := fenceID{m.Name, m.Gen, m.Of}
	g := h.fences[id]
	if g == nil {
		of, err := h.world.group(m.Of)
		if err != nil {
			h.answerLocked(from, &message{Error: err.Error()})
			return
		}
		g = &gathering{arrived: make(map[int]uint64), of: of}
		h.fences[id] = g
	}
	g.arrived[from.node] = from.seq
	g.collect = g.collect || m.Collect
	for i := range m.Entries {
		g.slots = append(g.slots, m.Entries[i].slot)
	}
	if g.data = append(g.data, m.data...); len(g.data) > mostData && g.failed == "" {
		h.releaseLocked(g, &message{Error: fmt.Sprintf("the nodes bring more than the %d GiB that are accepted", mostData>>30)})
	}
	h.met[from.node] = true
	h.settleLocked(id, g, from)
}

// settleLocked releases a fence round that has failed or that all nodes have entered. just is the
// arrival that caused the call: if the fence had already failed, only that node still needs the
// answer.
func (h *Head) settleLocked(id fenceID, g *gathering, just asked) {
	known := g.failed != ""
	if !known {
		g.failed = h.hopelessLocked(id, g)
	}
	all := len(g.arrived) == g.of.nodes
	switch {
	case g.failed != "" && known && just.seq != 0:
		h.answerLocked(just, &message{Error: g.failed})
	case g.failed != "" && !known:
		h.releaseLocked(g, &message{Error: g.failed})
	case all:
		release := &message{}
		if g.collect || len(g.data)*len(g.arrived) <= mostSpread {
			release.data = g.data
		}
		if g.collect {
			release.Entries = h.collectLocked(g.slots)
		}
		h.releaseLocked(g, release)
	}
	if all {
		delete(h.fences, id)
		delete(h.warned, id)
	}
}

// collectLocked returns the values that the release of a fence delivers to all nodes, up to
// mostCollected bytes. Nodes request the rest when they need it.
func (h *Head) collectLocked(slots []slot) (entries []entry) {
	size := 0
	for _, at := range slots {
		if size += len(h.store[at]); size > mostCollected {
			break
		}
		entries = append(entries, entryOf(at, h.store[at]))
	}
	return entries
}

// releaseLocked sends the release to all nodes that have entered.
func (h *Head) releaseLocked(g *gathering, release *message) {
	for node, seq := range g.arrived {
		own := *release
		h.answerLocked(asked{node, seq}, &own)
	}
}

// hopelessLocked returns the reason why a fence can never complete: a rank that ended before it
// entered, or values that could not be stored. It returns an empty string if the fence can still
// complete.
func (h *Head) hopelessLocked(id fenceID, g *gathering) string {
	if h.full != nil {
		return h.full.Error()
	}
	for _, rank := range slices.Sorted(maps.Keys(h.ended)) {
		end, place := h.ended[rank], h.world.of(rank)
		if _, here := g.arrived[place.Node]; !here && g.of.has(rank) && end.entered[id.name] < id.gen {
			return fmt.Sprintf("rank %d on %s will never come: %s", rank, place.Host, end.words)
		}
	}
	return ""
}

// overflowLocked handles a committed value that does not fit into the store. It fails everything
// that waits, because no more values will be stored.
func (h *Head) overflowLocked(e *entry) {
	if h.full != nil {
		return
	}
	h.full = fmt.Errorf("cannot keep %s of %s: there are %s keys already, the most that is accepted",
		e.Key, h.world.words(e.Owner), prose.Grouped(client.MostKeys))
	h.log.Warn(h.full.Error())
	h.despairLocked()
}

// keepLocked stores committed values and answers the gets that wait for them.
func (h *Head) keepLocked(entries []entry) {
	for i := range entries {
		e := &entries[i]
		if _, known := h.store[e.slot]; known {
			continue
		}
		if len(h.store) >= client.MostKeys {
			h.overflowLocked(e)
			return
		}
		h.store[e.slot] = e.value
		h.owners[e.Key] = append(h.owners[e.Key], e.Owner)
		for _, at := range []slot{e.slot, {Key: e.Key}} {
			for _, from := range h.gets[at] {
				h.foundLocked(from, at)
			}
			delete(h.gets, at)
		}
	}
}

// foundLocked answers a get for a key that is in the store.
func (h *Head) foundLocked(to asked, at slot) {
	owners := h.owners[at.Key]
	if at.Owner == "" && len(owners) > 1 {
		h.answerLocked(to, &message{Wrong: true, Error: fmt.Sprintf("cannot tell whose %s is meant: both %s and %s have put it; name the owner",
			at.Key, h.world.words(owners[0]), h.world.words(owners[1]))})
		return
	}
	if at.Owner == "" {
		at.Owner = owners[0]
	}
	h.answerLocked(to, &message{Entries: []entry{entryOf(at, h.store[at])}})
}

// getLocked answers a get at once if the value is known or will never be put. Otherwise it requests
// the value from the nodes that may have it and answers later.
func (h *Head) getLocked(from asked, at slot) {
	_, stored := h.store[at]
	switch {
	case stored, at.Owner == "" && len(h.owners[at.Key]) > 0:
		h.foundLocked(from, at)
		return
	case h.neverLocked(at) != "":
		h.answerLocked(from, &message{Error: h.neverLocked(at)})
		return
	}
	h.gets[at] = append(h.gets[at], from)
	if len(h.gets[at]) > 1 { // the nodes were already asked
		return
	}
	if home := h.world.home(at.Owner); home != nil {
		h.wantLocked(home.Node, at)
		return
	}
	for _, place := range h.world.places {
		h.wantLocked(place.Node, at)
	}
}

// wantLocked requests a node to push a value as soon as it is committed there.
func (h *Head) wantLocked(node int, at slot) { h.sendLocked(node, &message{Kind: kindWant, Slot: at}) }

// neverLocked returns the reason why a value will never be put; an empty string if it still may be.
func (h *Head) neverLocked(at slot) string {
	if h.full != nil {
		return h.full.Error()
	}
	place := h.world.home(at.Owner)
	if place == nil {
		return ""
	}
	why := "its node is lost"
	if !h.lost[place.Node] {
		end, over := h.ended[rankOf(at.Owner)]
		if !over {
			return ""
		}
		why = end.words
	}
	return fmt.Sprintf("%s has not put it and never will: %s", h.world.words(at.Owner), why)
}

// NodeLost records that a node and its ranks are lost, and fails what waits for them.
func (h *Head) NodeLost(node int, words string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place := h.world.at(node)
	if place == nil || h.lost[node] {
		return
	}
	h.lost[node] = true
	h.abandonLocked(node)
	h.tellLocked(client.Event{Kind: "lost", Who: place.Host, What: words})
	for _, rank := range place.Ranks {
		if _, over := h.ended[rank]; !over {
			h.ended[rank] = gone{words: place.Host + " is lost: " + words}
		}
	}
	h.despairLocked()
}

// endLocked records the end of a rank, and fails what waits for it.
func (h *Head) endLocked(rank int, end gone) {
	place := h.world.of(rank)
	if _, over := h.ended[rank]; over || place == nil {
		return
	}
	h.ended[rank] = end
	h.tellLocked(client.Event{Kind: "ended", Who: fmt.Sprintf("rank %d on %s", rank, place.Host), What: end.words})
	h.despairLocked()
}

// despairLocked fails the fences and gets that can never complete.
func (h *Head) despairLocked() {
	for id, g := range h.fences {
		if g.failed == "" {
			h.settleLocked(id, g, asked{})
		}
	}
	for at, waiting := range h.gets {
		if why := h.neverLocked(at); why != "" {
			for _, from := range waiting {
				h.answerLocked(from, &message{Error: why})
			}
			delete(h.gets, at)
		}
	}
}

// tellLocked appends an event and sends it to all subscribed nodes.
func (h *Head) tellLocked(event client.Event) {
	h.events = append(h.events, event)
	for node, p := range h.peers {
		if p.listens {
			h.sendLocked(node, &message{Kind: kindEvent, Events: len(h.events), Event: &event})
		}
	}
}
