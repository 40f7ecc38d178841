package instances

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/world"
)

// LastRanks returns the last rank of each instance of which all other ranks have ended. h may be
// nil: there are no instances yet.
func (h *Head) LastRanks() (last []lifecycle.LastRank) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, state := range h.instances {
		if !state.Role.Placement.HasRanks || !state.Spans() {
			continue // its node knows its ranks
		}
		key := world.GenerationKey(state.Instance.Number, state.Generation)
		if state.Role.IsFlagWorld() {
			key = FlagGenerationID(h.cfg.Dir, state.Instance.Number, state.Generation).Key
		}
		ended, since := h.cfg.Worlds.EndedRanks(key)
		left := slices.Concat(state.Running, state.Unknown)
		if len(left) > 1+len(ended) { // most often
			continue
		}
		areLeft := make(map[int]bool)
		for i, place := range state.Instance.Places() {
			areLeft[place] = slices.Contains(left, state.Evidence.Nodes[i])
		}
		if p, is := state.Instance.LastProcess(ended, areLeft); is {
			one := lifecycle.LastRank{Host: h.cfg.Plan.Nodes[p.Place].Host,
				Generation: state.Generation, Since: latest(since, state.ChangedAt)}
			one.Log = state.Role.LogName(state.Instance, p, state.Generation, 0, 0)
			if one.Number = p.Rank; !state.Role.IsFlagWorld() {
				one.World = instanceName(state.Role, state.Instance)
			}
			last = append(last, one)
		}
	}
	return last
}

// IsLost reports whether a node is lost. h may be nil: there are no instances yet.
func (h *Head) IsLost(node int) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[node]
}
