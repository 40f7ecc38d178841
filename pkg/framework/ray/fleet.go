package ray

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/framework"
)

// expectedNode is a node that should be in Ray's node table.
type expectedNode struct {
	TeamIndex    int
	Host         string
	Name         string             // in the node table
	MinResources map[string]float64 // the minimum of each resource
}

// compareMembers returns nil if the node table has every member alive, once, with its resources,
// and no other node. Otherwise the error names the missing members with the reasons, in the order
// of the nodes, and unexpected nodes last.
func compareMembers(members []expectedNode, nodes []tableEntry) error {
	byName := make(map[string][]tableEntry, len(nodes))
	for _, node := range nodes {
		byName[node.Name] = append(byName[node.Name], node)
	}
	var gaps []string
	for _, member := range members {
		if gap := nodeGap(member, byName[member.Name]); gap != "" {
			gaps = append(gaps, fmt.Sprintf("node %d (%s) %s", member.TeamIndex, member.Host, gap))
		}
		delete(byName, member.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if alive := aliveEntries(byName[name]); len(alive) > 0 {
			gaps = append(gaps, fmt.Sprintf("%s (%s, %s) is not a node of this job",
				cmp.Or(name, "an unnamed node"), alive[0].Host, alive[0].Address))
		}
	}
	return framework.GapsError(gaps)
}

// nodeGap describes what is wrong with the entries of a member's name. It returns an empty string
// if nothing is.
func nodeGap(member expectedNode, entries []tableEntry) string {
	alive := aliveEntries(entries)
	switch {
	case len(entries) == 0:
		return "is not in Ray's node table"
	case len(alive) == 0:
		last := slices.MaxFunc(entries, compareNameAndStart)
		return "is DEAD in Ray's node table: " + cmp.Or(last.DeathReason, "no reason given")
	case len(alive) > 1:
		// Work of the driver could go to either of them.
		return fmt.Sprintf("is %d times in Ray's node table: Ray has not yet detected the death "+
			"of an earlier start", len(alive))
	}
	return framework.DescribeShortage(alive[0].Resources, member.MinResources)
}

func aliveEntries(nodes []tableEntry) []tableEntry {
	return slices.DeleteFunc(slices.Clone(nodes), func(node tableEntry) bool { return !node.Alive })
}
