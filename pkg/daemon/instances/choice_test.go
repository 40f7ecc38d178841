package instances_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// TestChooseNodes verifies which nodes the roles use if there are more than they need and some have
// no peer link, and whether the choice waits for their links.
func TestChooseNodes(t *testing.T) {
	const (
		two   = `[{name: store, nodes: 2, command: serve}]`
		all   = `[{name: store, nodes: 1, command: serve}, {name: main, nodes: rest, command: work}]`
		bound = `[{name: store, nodes: 3, gpus: 2, command: serve}]`
		pair  = `[{name: store, nodes: 2, command: serve, segment: 2}]`
	)
	for _, tc := range []struct {
		name     string
		roles    string
		domains  []string // of the nodes
		gpus     []int    // of the nodes
		spares   roles.Spares
		unlinked []int
		comesAt  time.Duration // after this time all have links
		used     []int
		spare    []int
		waited   bool
	}{
		{
			name: "all links are there", roles: all, spares: roles.Spares{0: 1},
			used: []int{0, 1, 2}, spare: []int{3},
		},
		{
			name: "a spare instead of it", roles: all, spares: roles.Spares{0: 1},
			unlinked: []int{1}, used: []int{0, 2, 3}, spare: []int{1}, waited: true,
		},
		{
			name: "the one with a link is the first spare", roles: all, spares: roles.Spares{0: 2},
			unlinked: []int{2}, used: []int{0, 1}, spare: []int{3, 2},
		},
		{
			name: "it is a spare anyway", roles: all, spares: roles.Spares{0: 1},
			unlinked: []int{3}, used: []int{0, 1, 2}, spare: []int{3},
		},
		{name: "it is needed", roles: all, unlinked: []int{1}, used: []int{0, 1, 2, 3}},
		{
			name: "no node has a link", roles: all, spares: roles.Spares{0: 1},
			unlinked: []int{1, 2, 3}, used: []int{0, 1, 2}, spare: []int{3},
		},
		{
			name: "its link comes", roles: all, spares: roles.Spares{0: 1},
			unlinked: []int{1}, comesAt: 20 * time.Millisecond, used: []int{0, 1, 2}, spare: []int{3}, waited: true,
		},
		{
			name: "roles need fewer nodes", roles: two,
			unlinked: []int{1}, used: []int{0, 2}, waited: true,
		},
		{
			name: "roles need fewer nodes, and it is not the first", roles: two,
			unlinked: []int{2}, used: []int{0, 1},
		},
		{
			name: "they do not fit on the others", roles: bound, spares: roles.Spares{0: 1},
			gpus: []int{2, 2, 2, 0}, unlinked: []int{1}, used: []int{0, 1, 2}, spare: []int{3},
		},
		{
			name: "a segment needs it", roles: pair, domains: []string{"a", "a", "b", "c"},
			unlinked: []int{1}, used: []int{0, 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var list yaml.Node
			if err := yaml.Unmarshal([]byte(tc.roles), &list); err != nil {
				t.Fatal(err)
			}
			defs, err := rolefile.Parse(list.Content[0])
			if err != nil {
				t.Fatal(err)
			}
			offers := make([]roles.NodeFacts, 4)
			for node := range offers {
				offers[node].NodeIndex, offers[node].FirstPort = node, 20000
				if tc.gpus != nil {
					offers[node].GPUs = tc.gpus[node]
				}
				if tc.domains != nil {
					offers[node].Domain = tc.domains[node]
				}
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				unlinked := func([]int) map[int]bool {
					missing := make(map[int]bool)
					if tc.comesAt == 0 || time.Since(began) < tc.comesAt {
						for _, node := range tc.unlinked {
							missing[node] = true
						}
					}
					return missing
				}
				choice, err := instances.ChooseNodes(t.Context(), defs, offers, tc.spares, unlinked)
				if err != nil {
					t.Fatal(err)
				}
				used, spare := nodesOf(choice.Record.Offers), nodesOf(choice.Spares)
				used = slices.DeleteFunc(used, func(node int) bool {
					return slices.Contains(choice.IdleNodes(), node)
				})
				if !slices.Equal(used, tc.used) || !slices.Equal(spare, tc.spare) {
					t.Errorf("used: %v, want %v; spare: %v, want %v", used, tc.used, spare, tc.spare)
				}
				if took := time.Since(began); tc.waited != (took > 0) || took > time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// nodesOf returns the nodes that have made these offers.
func nodesOf(offers []roles.NodeFacts) (nodes []int) {
	for _, offer := range offers {
		nodes = append(nodes, offer.NodeIndex)
	}
	return nodes
}
