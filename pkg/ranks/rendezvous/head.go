package rendezvous

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
)

// Head is the head's side of the rendezvous. It stores the values that nodes commit, and releases
// fences. Methods whose names end in Locked require h.mu.
type Head struct {
	layout Layout
	log    *zap.Logger

	mu            sync.Mutex
	peers         []*peer // by node
	fences        map[fenceID]*pendingFence
	warningCounts map[fenceID]int // warnings logged so far about missing ranks
	endedRanks    map[int]rankEnd
	lostNodes     map[int]bool
	fencedNodes   map[int]bool // nodes that have entered a fence
	valueStore
	missingQueries []*missingQuery
	handleCall     Handler // nil until [Head.SetCallHandler]
	background     func(task func(ctx context.Context))
	firstUse       chan struct{} // closed at the first request for data of other nodes
	signalUse      func()        // closes [Head.firstUse], once
}

// valueStore holds the committed values and the gets that wait for more. It requires [Head.mu].
type valueStore struct {
	store       map[valueKey][]byte
	keyOwners   map[string][]string // owners of each key, in the order of their puts
	pendingGets map[valueKey][]requestID
	storeErr    error // nil until the store has overflowed; then no more values are kept
}

type peer struct {
	lastSeq    uint64              // highest sequence number received
	unacked    map[uint64]*message // answers that the node has not acknowledged
	orders     []*pendingOrder     // orders without a result
	orderCount int                 // number of orders sent
	sendQueue  []*message          // messages to send on the connection
	wake       chan struct{}       // wakes the writer; nil if not connected
	closeConn  func()              // closes the connection; nil if not connected
}

type fenceID struct {
	name  string
	round int
	group string // the group's ranges, from Group.Ranks
}

func (id fenceID) missingRequest() *message {
	return &message{Kind: kindQueryMissing, Name: id.name, FenceFields: FenceFields{Number: id.round, Group: id.group}}
}

type requestID struct {
	node int
	seq  uint64
}

// pendingFence is a fence round that not all nodes have entered.
type pendingFence struct {
	arrivals map[int]uint64 // sequence number of each node's arrival
	members  *groupMembers
	collect  bool
	data     []byte
	failure  string // reason why it cannot complete; empty if it can
}

type rankEnd struct {
	description string
	fenceCounts map[string]int // number of entries into each fence; nil if its node was lost
	recordedAt  time.Time
}

// NewHead returns the head's side for a world.
func NewHead(world Layout, log *zap.Logger) *Head {
	h := &Head{
		layout: world, log: log, fences: make(map[fenceID]*pendingFence),
		warningCounts: make(map[fenceID]int),
		valueStore: valueStore{store: make(map[valueKey][]byte), keyOwners: make(map[string][]string),
			pendingGets: make(map[valueKey][]requestID)},
		endedRanks: make(map[int]rankEnd), lostNodes: make(map[int]bool), fencedNodes: make(map[int]bool),
		firstUse: make(chan struct{}),
	}
	for range world.nodes {
		h.peers = append(h.peers, &peer{unacked: make(map[uint64]*message)})
	}
	h.signalUse = sync.OnceFunc(func() { close(h.firstUse) })
	return h
}

// FirstUse returns a channel that is closed when a node requests something that involves other
// nodes for the first time: a fence, a value or a call.
func (h *Head) FirstUse() <-chan struct{} { return h.firstUse }

// ServeNode serves a node's connection until it or ctx ends, and closes it. A new connection of the
// same node replaces the previous one.
func (h *Head) ServeNode(ctx context.Context, node int, conn io.ReadWriteCloser) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bell := make(chan struct{}, 1)
	if !h.attachConn(node, bell, cancel) {
		_ = conn.Close()
		return
	}
	exchangeMessages(ctx, conn, bell, func() (next []*message) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if p := h.peers[node]; p.wake == bell {
			next, p.sendQueue = p.sendQueue, nil
		}
		return next
	}, func(m *message) { h.handleMessage(node, m) })
	h.detachConn(node, bell)
}

// attachConn makes a connection the current one of its node, and closes the previous one. It
// returns false if the node is unknown.
func (h *Head) attachConn(node int, bell chan struct{}, drop func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.layout.nodeAt(node) == nil {
		return false
	}
	p := h.peers[node]
	if p.closeConn != nil {
		p.closeConn()
	}
	p.wake, p.closeConn, p.sendQueue = bell, drop, nil
	return true
}

func (h *Head) detachConn(node int, bell chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[node]; p.wake == bell {
		p.wake, p.closeConn, p.sendQueue = nil, nil, nil
	}
}

// sendLocked queues a message if the node is connected. Messages that must arrive are sent again on
// the next connection.
func (h *Head) sendLocked(node int, m *message) {
	if p := h.peers[node]; p.wake != nil {
		p.sendQueue = append(p.sendQueue, m)
		ctxutil.NotifyChannel(p.wake)
	}
}

// answerLocked sends the answer to a request, and keeps it until the node acknowledges it.
func (h *Head) answerLocked(to requestID, m *message) {
	m.Kind, m.Seq = kindAnswer, to.seq
	h.peers[to.node].unacked[to.seq] = m
	h.sendLocked(to.node, m)
}

// handleMessage handles a message of a node. A request that was handled before is not executed
// again; its answer is sent again.
func (h *Head) handleMessage(node int, m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[node]
	if m.Kind == kindHello {
		h.resumePeerLocked(node, p, m)
		return
	}
	for _, seq := range m.Seqs {
		delete(p.unacked, seq)
	}
	if m.Seq <= p.lastSeq {
		if answer := p.unacked[m.Seq]; answer != nil {
			h.sendLocked(node, answer)
		}
		return
	}
	p.lastSeq = m.Seq
	h.dispatchLocked(requestID{node, m.Seq}, m)
}

// resumePeerLocked resumes the exchange on a new connection: it sends again what the node has not
// received.
func (h *Head) resumePeerLocked(node int, p *peer, m *message) {
	maps.DeleteFunc(p.unacked, func(seq uint64, _ *message) bool { return !slices.Contains(m.Seqs, seq) })
	for at := range h.pendingGets {
		if home := h.layout.nodeOfOwner(at.Owner); home == nil || home.Node == node {
			h.requestPushLocked(node, at)
		}
	}
	for _, o := range p.orders {
		h.sendLocked(node, o.message)
	}
}

// dispatchLocked executes a request of a node. Enter, get, query and call are answered later, when
// the result is known; all others at once.
func (h *Head) dispatchLocked(from requestID, m *message) {
	if m.Kind == kindEnter || m.Kind == kindGet || m.Kind == kindCall {
		h.signalUse()
	}
	switch m.Kind {
	case kindEnter:
		h.enterFenceLocked(from, m)
		return
	case kindGet:
		h.handleGetLocked(from, m.Slot)
		return
	case kindQueryMissing:
		h.answerMissingLocked(from, m)
		return
	case kindPush:
		h.storeEntriesLocked(m.Entries)
	case kindRankEnded:
		h.storeEntriesLocked(m.Entries)
		h.recordRankEndLocked(m.Rank, rankEnd{description: m.Text, fenceCounts: m.Entered})
	case kindLocalMissing:
		h.recordMissingLocked(from.node, m)
	case kindCall:
		h.executeCallLocked(from, m)
		return
	case kindOrderDone:
		h.completeOrderLocked(from.node, m)
	default:
		h.answerLocked(from, &message{Error: fmt.Sprintf("cannot execute %q: the head does not support it", m.Kind)})
		return
	}
	h.answerLocked(from, &message{})
}

func (h *Head) enterFenceLocked(from requestID, m *message) {
	h.storeEntriesLocked(m.Entries)
	id := fenceID{m.Name, m.Number, m.Group}
	g := h.fences[id]
	if g == nil {
		of, err := h.layout.resolveGroup(m.Group)
		if err != nil {
			h.answerLocked(from, &message{Error: err.Error()})
			return
		}
		g = &pendingFence{arrivals: make(map[int]uint64), members: of}
		h.fences[id] = g
	}
	g.arrivals[from.node] = from.seq
	g.collect = g.collect || m.Collect
	if g.failure == "" {
		g.data = append(g.data, m.Data...)
	}
	h.fencedNodes[from.node] = true
	h.settleFenceLocked(id, g, from)
}

// settleFenceLocked releases a fence round that has failed or that all nodes have entered. just is
// the arrival that caused the call: if the fence had already failed, only that node still needs the
// answer.
func (h *Head) settleFenceLocked(id fenceID, g *pendingFence, just requestID) {
	known := g.failure != ""
	if !known {
		g.failure = h.fenceFailureLocked(id, g)
	}
	all := len(g.arrivals) == g.members.nodeCount
	switch {
	case g.failure != "" && known && just.seq != 0:
		h.answerLocked(just, &message{Error: g.failure})
	case g.failure != "" && !known:
		h.releaseFenceLocked(g, &message{Error: g.failure})
	case all:
		release := &message{}
		if g.collect || len(g.data)*len(g.arrivals) <= maxBroadcastSize {
			release.Data = g.data
		}
		h.releaseFenceLocked(g, release)
	}
	if all {
		delete(h.fences, id)
		delete(h.warningCounts, id)
	}
}

func (h *Head) releaseFenceLocked(g *pendingFence, release *message) {
	for node, seq := range g.arrivals {
		own := *release
		h.answerLocked(requestID{node, seq}, &own)
	}
}

// fenceFailureLocked returns the reason why a fence can never complete: a rank that ended before it
// entered, values that could not be stored, or too much data. It returns an empty string if the
// fence can still complete.
func (h *Head) fenceFailureLocked(id fenceID, g *pendingFence) string {
	if len(g.data) > maxDataSize {
		return fmt.Sprintf("the data of all nodes exceeds %d GiB, the maximum", maxDataSize>>30)
	}
	if h.storeErr != nil {
		return h.storeErr.Error()
	}
	for _, rank := range slices.Sorted(maps.Keys(h.endedRanks)) {
		end, place := h.endedRanks[rank], h.layout.nodeOfRank(rank)
		if _, here := g.arrivals[place.Node]; !here && g.members.hasRank(rank) && end.fenceCounts[id.name] < id.round {
			return fmt.Sprintf("rank %d on %s will not arrive: %s", rank, place.Host, end.description)
		}
	}
	return ""
}

// failStoreLocked handles a committed value that does not fit into the store. It fails everything
// that waits, because no more values will be stored.
func (h *Head) failStoreLocked(e *entry) {
	if h.storeErr != nil {
		return
	}
	h.storeErr = fmt.Errorf("cannot store %s of %s: the store already has %s keys, the maximum",
		e.Slot.Key, h.layout.describeOwner(e.Slot.Owner), textutil.GroupThousands(MaxKeys))
	h.log.Warn(h.storeErr.Error())
	h.failHopelessLocked()
}

// storeEntriesLocked stores committed values and answers the gets that wait for them.
func (h *Head) storeEntriesLocked(entries []entry) {
	for i := range entries {
		e := &entries[i]
		if _, known := h.store[e.Slot]; known {
			continue
		}
		if len(h.store) >= MaxKeys {
			h.failStoreLocked(e)
			return
		}
		h.store[e.Slot] = e.Value
		h.keyOwners[e.Slot.Key] = append(h.keyOwners[e.Slot.Key], e.Slot.Owner)
		for _, at := range []valueKey{e.Slot, {Key: e.Slot.Key}} {
			for _, from := range h.pendingGets[at] {
				h.answerStoredLocked(from, at)
			}
			delete(h.pendingGets, at)
		}
	}
}

func (h *Head) answerStoredLocked(to requestID, at valueKey) {
	owners := h.keyOwners[at.Key]
	if at.Owner == "" && len(owners) > 1 {
		h.answerLocked(to, &message{Invalid: true, Error: fmt.Sprintf("cannot get %s without an owner: both %s "+
			"and %s have put it; name one of them",
			at.Key, h.layout.describeOwner(owners[0]), h.layout.describeOwner(owners[1]))})
		return
	}
	if at.Owner == "" {
		at.Owner = owners[0]
	}
	h.answerLocked(to, &message{Entries: []entry{{at, h.store[at]}}})
}

// handleGetLocked answers a get at once if the value is known or will never be put. Otherwise it
// requests the value from the nodes that may have it and answers later.
func (h *Head) handleGetLocked(from requestID, at valueKey) {
	_, stored := h.store[at]
	switch {
	case stored, at.Owner == "" && len(h.keyOwners[at.Key]) > 0:
		h.answerStoredLocked(from, at)
		return
	case h.getFailureLocked(at) != "":
		h.answerLocked(from, &message{Error: h.getFailureLocked(at)})
		return
	}
	h.pendingGets[at] = append(h.pendingGets[at], from)
	if len(h.pendingGets[at]) > 1 { // the nodes were already asked
		return
	}
	if home := h.layout.nodeOfOwner(at.Owner); home != nil {
		h.requestPushLocked(home.Node, at)
		return
	}
	for _, place := range h.layout.nodes {
		h.requestPushLocked(place.Node, at)
	}
}

// requestPushLocked requests a node to push a value as soon as it is committed there.
func (h *Head) requestPushLocked(node int, at valueKey) {
	h.sendLocked(node, &message{Kind: kindRequestPush, Slot: at})
}

func (h *Head) getFailureLocked(at valueKey) string {
	if h.storeErr != nil {
		return h.storeErr.Error()
	}
	place := h.layout.nodeOfOwner(at.Owner)
	if place == nil {
		return ""
	}
	why := "its node is lost"
	if !h.lostNodes[place.Node] {
		end, over := h.endedRanks[ownerRank(at.Owner)]
		if !over {
			return ""
		}
		why = end.description
	}
	return fmt.Sprintf("%s has not put it and cannot any more: %s", h.layout.describeOwner(at.Owner), why)
}

// MarkNodeLost records that a node and its ranks are lost, and fails what waits for them.
func (h *Head) MarkNodeLost(node int, words string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place := h.layout.nodeAt(node)
	if place == nil || h.lostNodes[node] {
		return
	}
	h.lostNodes[node] = true
	h.failOrdersLocked(node)
	for _, rank := range place.Ranks {
		if _, over := h.endedRanks[rank]; !over {
			h.endedRanks[rank] = rankEnd{description: place.Host + " is lost: " + words,
				recordedAt: time.Now()}
		}
	}
	h.failHopelessLocked()
}

func (h *Head) recordRankEndLocked(rank int, end rankEnd) {
	place := h.layout.nodeOfRank(rank)
	if _, over := h.endedRanks[rank]; over || place == nil {
		return
	}
	end.recordedAt = time.Now()
	h.endedRanks[rank] = end
	h.failHopelessLocked()
}

// failHopelessLocked fails the fences and gets that can never complete.
func (h *Head) failHopelessLocked() {
	for id, g := range h.fences {
		if g.failure == "" {
			h.settleFenceLocked(id, g, requestID{})
		}
	}
	for at, waiting := range h.pendingGets {
		if why := h.getFailureLocked(at); why != "" {
			for _, from := range waiting {
				h.answerLocked(from, &message{Error: why})
			}
			delete(h.pendingGets, at)
		}
	}
}
