package affinity_test

import (
	"maps"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// TestLimitProcess verifies which GPUs a process sees, and that it is not bound to them if it shares the
// machine with other daemons.
func TestLimitProcess(t *testing.T) {
	node := affinity.Node{GPUs: []affinity.GPU{{Name: "4"}, {Name: "6"}, {Name: "7"}}}
	amd := affinity.Node{GPUs: []affinity.GPU{{Name: "1", Vendor: gpu.AMD}}}
	const own = "BRINGUPD_GPUS"
	for name, tc := range map[string]struct {
		node    affinity.Node
		shared  bool
		gpus    []int
		want    map[string]string
		isBound bool
	}{
		"no binding": {node, false, nil, nil, false},
		"two of three": {node, false, []int{1, 2}, map[string]string{own: "1-2", "CUDA_VISIBLE_DEVICES": "6,7"},
			true},
		"none":            {node, false, []int{}, map[string]string{own: "", "CUDA_VISIBLE_DEVICES": "-1"}, false},
		"none of AMD":     {amd, false, []int{}, map[string]string{own: "", "ROCR_VISIBLE_DEVICES": "-1"}, false},
		"another daemon":  {node, true, []int{1}, map[string]string{own: "1"}, false},
		"unknown devices": {affinity.Node{}, false, []int{1}, map[string]string{own: "1"}, false},
	} {
		prepare, variables := tc.node.LimitProcess(tc.gpus, tc.shared)
		delete(variables, affinity.EnvVariable) // describes the binding
		if !maps.Equal(variables, tc.want) || (prepare != nil) != tc.isBound {
			t.Errorf("%s: got %v, bound %t, want %v", name, variables, prepare != nil, tc.want)
		}
	}
}
