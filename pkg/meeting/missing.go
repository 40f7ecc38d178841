package meeting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// censusTime is how long the head waits for the nodes' answers about missing ranks. After that it
// assumes that all ranks of a silent node are missing.
const censusTime = 300 * time.Millisecond

// census is a query for the ranks that are missing in a fence round.
type census struct {
	fenceID
	to      asked
	left    map[int]bool  // nodes that have not answered
	missing map[int][]int // missing ranks of each node
	timer   *time.Timer
}

// whoLocked answers a query for missing ranks. For a get, the answer describes the ranks that may
// put the value; for a fence, the ranks that the nodes report as missing. It requires h.mu.
func (h *Head) whoLocked(from asked, m *message) {
	if m.Name == "" {
		h.answerLocked(from, &message{Words: h.absentLocked(m.Slot)})
		return
	}
	// If several nodes are due to log the same warning, only the first one receives the ranks.
	id := fenceID{m.Name, m.Gen, m.Of}
	if m.Warning > 0 {
		if m.Warning <= h.warned[id] { // another node has logged this warning
			h.answerLocked(from, &message{})
			return
		}
		h.warned[id] = m.Warning
	}
	c := &census{fenceID: id, to: from, left: make(map[int]bool), missing: make(map[int][]int)}
	of, err := h.world.group(m.Of)
	if err != nil {
		h.answerLocked(from, &message{Words: err.Error()})
		return
	}
	// Ask every node that has not entered. Until it answers, all of its members count as missing.
	for _, place := range h.world.places {
		ranks := of.of(place.Ranks)
		if len(ranks) == 0 || h.arrivedLocked(c.fenceID, place.Node) {
			continue
		}
		c.missing[place.Node] = ranks
		if h.peerLocked(place.Node).bell != nil {
			c.left[place.Node] = true
			h.sendLocked(place.Node, &message{Kind: kindCensus, Name: m.Name, Gen: m.Gen, Of: m.Of, Ranks: ranks})
		}
	}
	h.counts = append(h.counts, c)
	c.timer = time.AfterFunc(censusTime, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.countedLocked(c)
	})
	if len(c.left) == 0 {
		h.countedLocked(c)
	}
}

// arrivedLocked reports whether a node has entered a fence round. It requires h.mu.
func (h *Head) arrivedLocked(id fenceID, node int) bool {
	g := h.fences[id]
	if g == nil {
		return false
	}
	_, here := g.arrived[node]
	return here
}

// hereLocked records a node's answer about its missing ranks. It requires h.mu.
func (h *Head) hereLocked(node int, m *message) {
	for _, c := range slices.Clone(h.counts) {
		if c.fenceID == (fenceID{m.Name, m.Gen, m.Of}) && c.left[node] {
			delete(c.left, node)
			c.missing[node] = m.Ranks
			if len(c.left) == 0 {
				h.countedLocked(c)
			}
		}
	}
}

// countedLocked answers a query, unless it was answered before. It requires h.mu.
func (h *Head) countedLocked(c *census) {
	at := slices.Index(h.counts, c)
	if at < 0 {
		return
	}
	c.timer.Stop()
	h.counts = slices.Delete(h.counts, at, at+1)
	ranks := slices.Concat(slices.Collect(maps.Values(c.missing))...)
	slices.Sort(ranks)
	h.answerLocked(c.to, &message{Words: h.world.missing(c.missing), Ranks: ranks})
}

// absentLocked describes the ranks that may still put a value. It requires h.mu.
func (h *Head) absentLocked(at slot) string {
	if at.Owner != "" {
		return h.world.words(at.Owner) + " has not put it"
	}
	never := make(map[int][]int)
	for _, place := range h.world.places {
		if !h.met[place.Node] {
			never[place.Node] = place.Ranks
		}
	}
	if words := h.world.missing(never); words != "" {
		return "nobody has put it; not in any fence yet: " + words
	}
	return "nobody has put it"
}

// rankOf returns the rank that an owner's name denotes; -1 if it is not a rank.
func rankOf(owner string) int {
	rank := -1
	if !strings.HasPrefix(owner, "n") {
		_, _ = fmt.Sscan(owner, &rank)
	}
	return rank
}
