package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// missingTimeout is how long the head waits for the nodes' answers about missing ranks. After that
// it assumes that all ranks of a silent node are missing.
const missingTimeout = 300 * time.Millisecond

type missingQuery struct {
	fenceID
	requester  requestID
	unanswered map[int]bool  // nodes that have not answered
	missing    map[int][]int // missing ranks of each node
	timer      *time.Timer
}

// answerMissingLocked answers a query for missing ranks. For a get, the answer describes the ranks
// that may put the value; for a fence, the ranks that the nodes report as missing. It requires
// h.mu.
func (h *Head) answerMissingLocked(from requestID, m *message) {
	if m.Name == "" {
		h.answerLocked(from, &message{Text: h.describeAbsentLocked(m.Slot)})
		return
	}
	// If several nodes are due to log the same warning, only the first one receives the ranks.
	id := fenceID{m.Name, m.Number, m.Group}
	if m.Warning > 0 {
		if m.Warning <= h.warningCounts[id] { // another node has logged this warning
			h.answerLocked(from, &message{})
			return
		}
		h.warningCounts[id] = m.Warning
	}
	c := &missingQuery{fenceID: id, requester: from, unanswered: make(map[int]bool), missing: make(map[int][]int)}
	of, err := h.layout.resolveGroup(m.Group)
	if err != nil {
		h.answerLocked(from, &message{Text: err.Error()})
		return
	}
	// Ask every node that has not entered. Until it answers, all of its members count as missing.
	for _, place := range h.layout.nodes {
		ranks := of.filterRanks(place.Ranks)
		if len(ranks) == 0 || h.hasArrivedLocked(c.fenceID, place.Node) {
			continue
		}
		c.missing[place.Node] = ranks
		if h.peers[place.Node].wake != nil {
			c.unanswered[place.Node] = true
			h.sendLocked(place.Node, &message{Kind: kindQueryLocalMissing, Name: m.Name,
				FenceFields: FenceFields{Number: m.Number, Group: m.Group}, RankFields: RankFields{Ranks: ranks}})
		}
	}
	h.missingQueries = append(h.missingQueries, c)
	c.timer = time.AfterFunc(missingTimeout, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finishMissingQueryLocked(c)
	})
	if len(c.unanswered) == 0 {
		h.finishMissingQueryLocked(c)
	}
}

// hasArrivedLocked reports whether a node has entered a fence round. It requires h.mu.
func (h *Head) hasArrivedLocked(id fenceID, node int) bool {
	g := h.fences[id]
	if g == nil {
		return false
	}
	_, here := g.arrivals[node]
	return here
}

// recordMissingLocked records a node's answer about its missing ranks. It requires h.mu.
func (h *Head) recordMissingLocked(node int, m *message) {
	for _, c := range slices.Clone(h.missingQueries) {
		if c.fenceID == (fenceID{m.Name, m.Number, m.Group}) && c.unanswered[node] {
			delete(c.unanswered, node)
			c.missing[node] = m.Ranks
			if len(c.unanswered) == 0 {
				h.finishMissingQueryLocked(c)
			}
		}
	}
}

// finishMissingQueryLocked answers a query, unless it was answered before. It requires h.mu.
func (h *Head) finishMissingQueryLocked(c *missingQuery) {
	at := slices.Index(h.missingQueries, c)
	if at < 0 {
		return
	}
	c.timer.Stop()
	h.missingQueries = slices.Delete(h.missingQueries, at, at+1)
	ranks := slices.Concat(slices.Collect(maps.Values(c.missing))...)
	slices.Sort(ranks)
	h.answerLocked(c.requester, &message{Text: h.layout.describeRanks(c.missing), RankFields: RankFields{Ranks: ranks}})
}

// describeAbsentLocked describes the ranks that may still put a value. It requires h.mu.
func (h *Head) describeAbsentLocked(at valueKey) string {
	if at.Owner != "" {
		return h.layout.describeOwner(at.Owner) + " has not put it"
	}
	never := make(map[int][]int)
	for _, place := range h.layout.nodes {
		if !h.fencedNodes[place.Node] {
			never[place.Node] = place.Ranks
		}
	}
	if words := h.layout.describeRanks(never); words != "" {
		return "no program has put it; not yet in any fence: " + words
	}
	return "no program has put it"
}

// ownerRank returns the rank that an owner's name denotes; -1 if it is not a rank.
func ownerRank(owner string) int {
	rank := -1
	if !strings.HasPrefix(owner, "n") {
		_, _ = fmt.Sscan(owner, &rank)
	}
	return rank
}
