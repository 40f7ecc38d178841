package roles

import "slices"

// Spares is the number of nodes of each group that no role claims until a node is lost.
type Spares map[int]int

// Split returns the places of the nodes that the roles get, and those of the spare ones: the last
// of each group. A group that has no more nodes than spares has no node left for roles.
func (s Spares) Split(nodes []NodeFacts) (used, spare []int) {
	left := make(map[int]int)
	for _, node := range nodes {
		left[node.Group]++
	}
	for place, node := range nodes {
		if left[node.Group] > s[node.Group] {
			used = append(used, place)
		} else {
			spare = append(spare, place)
		}
		left[node.Group]--
	}
	return used, spare
}

// SurvivesNodeLoss reports whether a run of these roles may go on after the loss of a node: a spare
// can take its place, or a role does not need all of its instances.
func (s Spares) SurvivesNodeLoss(defs []Definition) bool {
	hasSpare := false
	for _, count := range s {
		hasSpare = hasSpare || count > 0
	}
	return slices.ContainsFunc(defs, func(d Definition) bool {
		return d.Restarts.Max > 0 && hasSpare || d.Required.Run != QuorumAll
	})
}
