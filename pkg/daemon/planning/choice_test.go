package planning_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
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
	none, one := roles.Spares(nil), roles.Spares{0: 1}
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
		{"all links are there", all, nil, nil, one, nil, 0, []int{0, 1, 2}, []int{3}, false},
		{"a spare instead of it", all, nil, nil, one, []int{1}, 0, []int{0, 2, 3}, []int{1}, true},
		{"a loss decides which spare is the first", all, nil, nil, roles.Spares{0: 2}, []int{2}, 0,
			[]int{0, 1}, []int{2, 3}, false},
		{"it is a spare anyway", all, nil, nil, one, []int{3}, 0, []int{0, 1, 2}, []int{3}, false},
		{"it is needed", all, nil, nil, none, []int{1}, 0, []int{0, 1, 2, 3}, nil, false},
		{"no node has a link", all, nil, nil, one, []int{1, 2, 3}, 0, []int{0, 1, 2}, []int{3}, false},
		{"its link comes", all, nil, nil, one, []int{1}, 20 * time.Millisecond, []int{0, 1, 2}, []int{3}, true},
		{"roles need fewer nodes", two, nil, nil, none, []int{1}, 0, []int{0, 2}, nil, true},
		{"fewer nodes, not the first ones", two, nil, nil, none, []int{2}, 0, []int{0, 1}, nil, false},
		{"they do not fit on the others", bound, nil, []int{2, 2, 2, 0}, one, []int{1}, 0,
			[]int{0, 1, 2}, []int{3}, false},
		{"a segment needs it", pair, []string{"a", "a", "b", "c"}, nil, none, []int{1}, 0, []int{0, 1}, nil, false},
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
				choice, err := planning.ChooseNodes(t.Context(), defs, offers, tc.spares, unlinked)
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
