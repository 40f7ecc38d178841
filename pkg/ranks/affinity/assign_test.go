package affinity

import (
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/zoo"
)

var all = ResourceKinds{CPU: true, Memory: true, Network: true, GPU: true}

func words(places []Affinity) (lines []string) {
	for _, p := range places {
		line := p.String()
		if p.Note != "" {
			line += "; " + p.Note
		}
		lines = append(lines, line)
	}
	return lines
}

func TestAssign(t *testing.T) {
	for _, tc := range []struct {
		node  string
		ranks int
		kinds string
		want  []string
	}{
		{"dgx-a100", 8, "auto", []string{
			"CPUs 48-55,176-183, memory 3, GPU 0, mlx5_0:1,mlx5_1:1",
			"CPUs 56-63,184-191, memory 3, GPU 1, mlx5_0:1,mlx5_1:1",
			"CPUs 16-23,144-151, memory 1, GPU 2, mlx5_2:1,mlx5_3:1",
			"CPUs 24-31,152-159, memory 1, GPU 3, mlx5_2:1,mlx5_3:1",
			"CPUs 112-119,240-247, memory 7, GPU 4, mlx5_6:1,mlx5_7:1",
			"CPUs 120-127,248-255, memory 7, GPU 5, mlx5_6:1,mlx5_7:1",
			"CPUs 80-87,208-215, memory 5, GPU 6, mlx5_8:1,mlx5_9:1",
			"CPUs 88-95,216-223, memory 5, GPU 7, mlx5_8:1,mlx5_9:1"}},
		{"dgx-a100", 4, "cpu,gpu", []string{"CPUs 48-63,176-191, GPU 0,1",
			"CPUs 16-31,144-159, GPU 2,3", "CPUs 112-127,240-255, GPU 4,5", "CPUs 80-95,208-223, GPU 6,7"}},
		{"dgx-h100", 2, "auto", []string{
			"CPUs 0-55,112-167, memory 0, GPU 0,1,2,3, mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1",
			"CPUs 56-111,168-223, memory 1, GPU 4,5,6,7, mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1"}},
		{"dgx-h100", 3, "auto", []string{ // they do not divide the GPUs evenly: one each
			"CPUs 0-17,112-129, memory 0, GPU 0, mlx5_0:1",
			"CPUs 18-36,130-148, memory 0, GPU 1, mlx5_3:1", "CPUs 37-55,149-167, memory 0, GPU 2, mlx5_4:1"}},
		{"dgx-h100", 1, "auto", []string{ // all GPUs, and the network cards that are near one
			"CPUs 0-223, GPU 0,1,2,3,4,5,6,7, " +
				"mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1"}},
		{"gb200", 4, "auto", []string{ // and not the GPUs' own memory
			"CPUs 0-35, memory 0, GPU 0, mlx5_0:1,mlx5_1:1", "CPUs 36-71, memory 0, GPU 1, mlx5_0:1,mlx5_1:1",
			"CPUs 72-107, memory 1, GPU 2, mlx5_2:1,mlx5_3:1", "CPUs 108-143, memory 1, GPU 3, mlx5_2:1,mlx5_3:1"}},
		{"gb200", 1, "memory", []string{"not bound"}},
		{"cgroup-cut", 2, "auto", []string{ // the second GPU's CPUs do not belong to the job
			"CPUs 4-6,36-38, GPU 1", "CPUs 7-10,39-41, GPU 2"}},
		{"cgroup-cut", 8, "auto", slices.Repeat([]string{"GPU 1; ranks are not bound to CPUs: " +
			"this node has 8 ranks, but only 7 usable cores",
			"GPU 2; ranks are not bound to CPUs: this node has 8 ranks, but only 7 usable cores"}, 4)},
		{"numa-unknown", 4, "auto", []string{ // too few are left for those that are near all
			"CPUs 0-3, memory 0, GPU 0; " + noteNotNear, "CPUs 4-7, memory 0, GPU 1; " + noteNotNear,
			"CPUs 8-11, memory 1, GPU 2; " + noteNotNear, "CPUs 12-15, memory 1, GPU 3; " + noteNotNear}},
		{"numa-unknown", 2, "cpu", []string{"CPUs 0-7", "CPUs 8-15"}},
		{"mig", 3, "auto", []string{
			"CPUs 0-7,16-23, memory 0, GPU MIG-1111-1", "CPUs 8-11,24-27, memory 1, GPU MIG-2222-0",
			"CPUs 12-15,28-31, memory 1, GPU MIG-2222-1"}},
		{"two-sockets", 2, "memory,network", []string{"memory 0, mlx5_0:1", "memory 1, mlx5_1:1"}},
		{"this-machine", 2, "auto", []string{"CPUs 0", "CPUs 1"}},
		{"this-machine", 3, "none", []string{"not bound", "not bound", "not bound"}},
		{"this-machine", 0, "auto", nil},
	} {
		t.Run(fmt.Sprintf("%s/%d/%s", tc.node, tc.ranks, tc.kinds), func(t *testing.T) {
			kinds, err := ParseKinds(tc.kinds)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, words(known(t, tc.node).AssignRanks(tc.ranks, kinds))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSlots(t *testing.T) {
	for name, want := range map[string][3]int{ // gpu, numa, core
		"dgx-a100": {8, 8, 128}, "dgx-h100": {8, 2, 112}, "gb200": {4, 2, 144},
		"two-sockets": {0, 2, 64}, "cgroup-cut": {2, 1, 7},
		"numa-unknown": {4, 2, 16}, "mig": {3, 2, 16}, "this-machine": {0, 1, 2},
	} {
		n := known(t, name)
		if got := [3]int{n.CountSlots(PerGPU), n.CountSlots(PerNUMA), n.CountSlots(PerCore)}; got != want {
			t.Errorf("%s has %v, not %v", name, got, want)
		}
	}
}

// TestSplitOfUnlikeParts splits NUMA nodes and packages of different size: each rank gets its own
// if there are as many as ranks, and otherwise all ranks get the same number of cores.
func TestSplitOfUnlikeParts(t *testing.T) {
	var cores []Core
	for i := range 16 {
		cores = append(cores, Core{CPUs: IDSet{i}, Package: i / 12, NUMA: i / 12})
	}
	for ranks, want := range map[int]string{1: "[0-15]", 2: "[0-11 12-15]", 3: "[0-4 5-9 10-15]",
		4: "[0-3 4-7 8-11 12-15]"} {
		var got []string
		for _, part := range splitCores(cores, ranks) {
			got = append(got, cpusOfCores(part).String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d ranks have %v, not %s", ranks, got, want)
		}
	}
}

// TestAssignOthers gives each rank a GPU of AMD or Intel near its CPUs, through the vendor's
// environment variable (N1).
func TestAssignOthers(t *testing.T) {
	for _, tc := range []struct {
		node  zoo.Node
		ranks int
		want  []string // of the first and the last rank
	}{
		{zoo.MI250, 8, []string{"ROCR_VISIBLE_DEVICES=0", "ROCR_VISIBLE_DEVICES=7"}},
		{zoo.MI300X, 4, []string{"ROCR_VISIBLE_DEVICES=0,1", "ROCR_VISIBLE_DEVICES=6,7"}},
		{zoo.Max1550, 12, []string{"ZE_AFFINITY_MASK=0", "ZE_AFFINITY_MASK=11"}},
	} {
		f := load(t, "dgx-h100")
		f.root, f.env = tc.node.Tree(t), map[string]string{}
		f.write(path.Join(cpuDir, "online"), "0-63")
		f.write(statusFile, "Cpus_allowed_list:\t0-63\nMems_allowed_list:\t0-1")
		f.facts = gpu.NonNVIDIAFacts(f.root)
		places := f.discovered().AssignRanks(tc.ranks, all)
		for i, place := range []Affinity{places[0], places[tc.ranks-1]} {
			if env := place.Environ(func(string) bool { return false }); !slices.Contains(env, tc.want[i]) {
				t.Errorf("%s: rank %d of %d has %q and %v, want %s", tc.node.Name, i*(tc.ranks-1),
					tc.ranks, env, place, tc.want[i])
			}
			if near := place.CPUs; len(near) == 0 || (near[0] >= 32) != (i == 1) {
				t.Errorf("%s: the CPUs of a rank are %v, far from its GPU", tc.node.Name, near)
			}
		}
	}
}
