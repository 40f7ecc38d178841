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

// Head brings together what the nodes of a world put and wait for.
type Head struct {
	world World
	log   *zap.Logger

	mu     sync.Mutex
	peers  map[int]*peer
	fences map[fenceID]*gathering
	warned map[fenceID]int // how often people were told who is missing
	store  map[slot][]byte
	owners map[string][]string // of each key
	gets   map[slot][]asked
	ended  map[int]gone // by rank
	lost   map[int]bool // by node
	met    map[int]bool // nodes that have been in a fence
	full   error        // why nothing more is kept
	events []client.Event
	counts []*census
	serve  *service      // of what nodes call
	used   chan struct{} // closed by the first request for data of other nodes
	use    func()        // closes used, once
}

// peer is a node as the head sees it.
type peer struct {
	last    uint64              // its highest request
	listens bool                // somebody there watches
	answers map[uint64]*message // that it may not have yet
	orders  []*order            // that it has not done
	given   int                 // how many orders it was given
	queue   []*message          // to be sent on its connection
	bell    chan struct{}       // nil without a connection
	drop    func()              // ends the connection
}

type fenceID struct {
	name string
	gen  int
	of   string // as a Group has it
}

// question asks who is missing.
func (id fenceID) question() *message {
	return &message{Kind: kindWho, Name: id.name, Gen: id.gen, Of: id.of}
}

// asked is a node's request.
type asked struct {
	node int
	seq  uint64
}

// gathering is a fence that not all nodes have entered.
type gathering struct {
	arrived map[int]uint64 // the node's request
	of      *members
	collect bool
	slots   []slot
	data    []byte
	failed  string
}

// gone is a rank that has ended.
type gone struct {
	words   string
	entered map[string]int // nil of one that was lost with its node
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

// Used is closed once a node has asked for what takes the other nodes: a fence, a value or a call.
func (h *Head) Used() <-chan struct{} { return h.used }

// Serve serves a node's connection until it or ctx ends, and closes it. A later one of the same node takes its place.
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

func (h *Head) disconnect(node int, bell chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peerLocked(node); p.bell == bell {
		p.bell, p.drop, p.queue = nil, nil, nil
	}
}

// write sends what is queued until ctx ends.
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

func (h *Head) peerLocked(node int) *peer {
	p := h.peers[node]
	if p == nil {
		p = &peer{answers: make(map[uint64]*message)}
		h.peers[node] = p
	}
	return p
}

// sendLocked has a message sent where there is a connection. All that must arrive is sent again on the next one.
func (h *Head) sendLocked(node int, m *message) {
	if p := h.peerLocked(node); p.bell != nil {
		p.queue = append(p.queue, m)
		pause.Ring(p.bell)
	}
}

func (h *Head) answerLocked(to asked, m *message) {
	m.Kind, m.Seq = kindAnswer, to.seq
	h.peerLocked(to.node).answers[to.seq] = m
	h.sendLocked(to.node, m)
}

// receive does what a node asks, once.
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

// helloLocked begins a connection: what the node has not is sent again.
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

// listenLocked sends a node, if it listens, the events that it has not.
func (h *Head) listenLocked(node int, p *peer, m *message) {
	if p.listens = p.listens || m.Listen; p.listens {
		for at := min(m.Events, len(h.events)); at < len(h.events); at++ {
			h.sendLocked(node, &message{Kind: kindEvent, Events: at + 1, Event: &h.events[at]})
		}
	}
}

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

// enterLocked counts a node into a fence.
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

// settleLocked releases a fence that has failed or that all have entered. just has entered now: the others were told of
// a failure before.
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

// collectLocked returns what is brought to all nodes: the first of it where it is much. The rest is got when it is asked for.
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

func (h *Head) releaseLocked(g *gathering, release *message) {
	for node, seq := range g.arrived {
		own := *release
		h.answerLocked(asked{node, seq}, &own)
	}
}

// hopelessLocked says which rank will never come to a fence, or that what was put before it could not be kept; empty
// where neither is.
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

// overflowLocked is what happens when there is no room for what was committed: all who wait for anything are told, since
// nothing more will come.
func (h *Head) overflowLocked(e *entry) {
	if h.full != nil {
		return
	}
	h.full = fmt.Errorf("cannot keep %s of %s: there are %s keys already, the most that is accepted",
		e.Key, h.world.words(e.Owner), prose.Grouped(client.MostKeys))
	h.log.Warn(h.full.Error())
	h.despairLocked()
}

// keepLocked stores what was committed, and answers who waits for it.
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

// foundLocked answers a get of what is in the store.
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

// getLocked answers at once or when there is a value.
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
	if len(h.gets[at]) > 1 { // they were asked before
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

// wantLocked asks a node for what it may have.
func (h *Head) wantLocked(node int, at slot) { h.sendLocked(node, &message{Kind: kindWant, Slot: at}) }

// neverLocked says why an owner will never put it; empty where it may.
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

// NodeLost tells that a node will not be heard of again, nor its ranks.
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

func (h *Head) endLocked(rank int, end gone) {
	place := h.world.of(rank)
	if _, over := h.ended[rank]; over || place == nil {
		return
	}
	h.ended[rank] = end
	h.tellLocked(client.Event{Kind: "ended", Who: fmt.Sprintf("rank %d on %s", rank, place.Host), What: end.words})
	h.despairLocked()
}

// despairLocked gives up what will never come.
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

func (h *Head) tellLocked(event client.Event) {
	h.events = append(h.events, event)
	for node, p := range h.peers {
		if p.listens {
			h.sendLocked(node, &message{Kind: kindEvent, Events: len(h.events), Event: &event})
		}
	}
}
