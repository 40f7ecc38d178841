package instances

import (
	"maps"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// TestBindToGPUs verifies which GPUs a process sees, and that it is not bound to them if it shares the
// machine with other daemons.
func TestBindToGPUs(t *testing.T) {
	node := affinity.Node{GPUs: []affinity.GPU{{Name: "4"}, {Name: "6"}, {Name: "7"}}}
	amd := affinity.Node{GPUs: []affinity.GPU{{Name: "1", Vendor: gpu.AMD}}}
	const own = "BRINGUPD_GPUS"
	for name, tc := range map[string]struct {
		node    affinity.Node
		daemons int // on the machine
		gpus    []int
		want    map[string]string
		isBound bool
	}{
		"no binding":      {node, 1, nil, nil, false},
		"two of three":    {node, 1, []int{1, 2}, map[string]string{own: "1-2", "CUDA_VISIBLE_DEVICES": "6,7"}, true},
		"none":            {node, 1, []int{}, map[string]string{own: "", "CUDA_VISIBLE_DEVICES": "-1"}, false},
		"none of AMD":     {amd, 1, []int{}, map[string]string{own: "", "ROCR_VISIBLE_DEVICES": "-1"}, false},
		"another daemon":  {node, 2, []int{1}, map[string]string{own: "1"}, false},
		"unknown devices": {affinity.Node{}, 1, []int{1}, map[string]string{own: "1"}, false},
	} {
		cfg := world.NodeConfig{Config: new(deps.Config), Layout: tc.node}
		cfg.Identity.LocalSize = tc.daemons
		prepare, variables := bindToGPUs(cfg, tc.gpus)
		delete(variables, affinity.EnvVariable) // describes the binding
		if !maps.Equal(variables, tc.want) || (prepare != nil) != tc.isBound {
			t.Errorf("%s: got %v, bound %t, want %v", name, variables, prepare != nil, tc.want)
		}
	}
}

// TestKeysAreHidden verifies that the failure of a process that has printed its key does not show it.
func TestKeysAreHidden(t *testing.T) {
	inBubble(t, 1, "\n  - {name: server, nodes: 1, command: serve}\n", func(r *run) {
		key := r.find("server.0.0.g0").env("BRINGUPD_ROLE_SERVER_KEY")
		r.print("server.0.0.g0", "the key is "+key)
		r.exit("server.0.0.g0", 3)
		r.later()
		cause := r.cause()
		if key == "" || cause == nil || !slices.Contains(cause.Lines, "the key is …") {
			t.Errorf("the key is %q, and the cause %+v", key, cause)
		}
		f := health.NewFailure(health.ServiceDied, "a probe has the key %s", key)
		if f := r.nodes[0].environment.withoutKeys(f); f.Message != "a probe has the key …" {
			t.Errorf("the message is %q", f.Message)
		}
	})
}
