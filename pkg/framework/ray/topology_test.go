package ray

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

// rankAt returns the number of a node with that rank and that position in Slurm's topology.
func rankAt(address, pattern string, rank int) float64 {
	env := launcher.EnvironmentOf([]string{"SLURM_TOPOLOGY_ADDR=" + address, "SLURM_TOPOLOGY_ADDR_PATTERN=" + pattern})
	return topoRank(launcher.TopologyBlock(env), rank)
}

func TestTopoRank(t *testing.T) {
	for _, tc := range []struct {
		name             string
		address, pattern string
		rank             int
		want             float64
	}{
		{"without Slurm", "", "", 0, 1},
		{"Slurm without a topology", "n7", "node", 6, 7},
		{"a tree", "spine2.leaf3.n7", "switch.switch.node", 6, 7},
		{"a block", "block03.node-0117", "block.node", 6, 3_000_007},
		{"a block whose digits are octal in a shell", "b08.n1", "block.node", 0, 8_000_001},
		{"several numbers in a name", "rack-2-b1.n1", "block.node", 0, 21_000_001},
		{"no number in the name", "blue.n7", "block.node", 6, 7},
		{"a number too large for Ray", "rack-2026-01170.n7", "block.node", 6, 7},
		{"a number too large for anything", "b999999999999999999999.n7", "block.node", 6, 7},
		{"an address that is none", "n7", "block.node", 6, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := rankAt(tc.address, tc.pattern, tc.rank); got != tc.want {
				t.Errorf("it is %f, not %f", got, tc.want)
			}
		})
	}
}

func TestRayResources(t *testing.T) {
	const rack = "6e2a1c6f-59b4-4c7e-9b3c-0f3b8a1d2e10"
	node := testNode(t, 2)
	node.Environ = append(node.Environ, "SLURM_TOPOLOGY_ADDR=b4.n2", "SLURM_TOPOLOGY_ADDR_PATTERN=block.node")
	for _, tc := range []struct {
		name   string
		ray    Cluster
		change func(n *framework.Node)
		want   map[string]float64
	}{
		{"in a rack", Cluster{}, func(n *framework.Node) { n.NVLinkDomain = rack }, map[string]float64{
			"slurm_managed_ray_cluster": 1, "worker_units": 8, "topo_rank": 4_000_003, "nvlink_domain_" + rack: 1}},
		{"without NVLink to others", Cluster{}, func(*framework.Node) {}, map[string]float64{
			"slurm_managed_ray_cluster": 1, "worker_units": 8, "topo_rank": 4_000_003}},
		{"without GPUs or Slurm", Cluster{}, func(n *framework.Node) { n.GPUs, n.Environ = 0, nil },
			map[string]float64{"topo_rank": 3}},
		{"a spare that has moved up", Cluster{},
			func(n *framework.Node) { n.TeamIndex, n.Environ = 0, nil }, map[string]float64{
				"worker_units": 8, "topo_rank": 3}},
		{"a head without work", Cluster{DedicatedHead: true},
			func(n *framework.Node) { n.TeamIndex, n.NVLinkDomain = 0, rack }, map[string]float64{
				"slurm_managed_ray_cluster": 1, "ray_head": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := node
			tc.change(&node)
			if diff := cmp.Diff(tc.want, tc.ray.nodeResources(node)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
