package instances

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// LastRank is the only rank of an instance that still runs.
type LastRank struct {
	record.WorldRank
	Host       string
	Generation int
	Since      time.Time // when the one before it has ended, as far as the head knows
}

// LastRanks returns the last rank of each instance of which all other ranks have ended.
func (h *Head) LastRanks() (last []LastRank) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, state := range h.instances {
		if !state.role.Placement.HasRanks || !state.spans() {
			continue // its node knows its ranks
		}
		key := world.GenerationKey(state.instance.Number, state.Generation)
		if state.role.IsFlagWorld() && state.Generation == 0 {
			key = ""
		}
		ended, since := h.cfg.Worlds.EndedRanks(key)
		done := state.doneNodes()
		if len(state.evidence.Nodes)-len(done) > 1+len(ended) { // most often
			continue
		}
		places := state.instance.Places()
		donePlaces := make(map[int]bool, len(done))
		for _, at := range done {
			donePlaces[places[at]] = true
		}
		rank, is := lastRank(state.instance.Processes, ended, donePlaces)
		if !is {
			continue
		}
		one := LastRank{Host: h.cfg.Plan.Nodes[rank.Place].Host, Generation: state.Generation,
			Since: latest(since, state.since)}
		if one.Number = rank.Rank; !state.role.IsFlagWorld() {
			one.World = instanceName(state.role, state.instance)
		}
		last = append(last, one)
	}
	return last
}

// lastRank returns the only process that has not ended, of at least two: ended are the ranks that
// are known to have ended, sorted, and done the places of which all ranks have.
func lastRank(all []roles.Process, ended []int, done map[int]bool) (last roles.Process, is bool) {
	left := 0
	for _, p := range all {
		if _, isEnded := slices.BinarySearch(ended, p.Rank); !isEnded && !done[p.Place] {
			last = p
			left++
		}
	}
	return last, left == 1 && len(all) > 1
}

// doneNodes returns the indices of those nodes of the instance on which all processes of the
// present generation have ended.
func (s *instanceState) doneNodes() (done []int) {
	for i, node := range s.evidence.Nodes {
		newest, _ := s.evidence.Marks.Newest(node)
		if newest.State.HasEnded() && newest.Generation >= s.Generation {
			done = append(done, i)
		}
	}
	return done
}
