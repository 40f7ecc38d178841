package ranks

import (
	"fmt"
	"strings"
	"testing"
)

func TestHere(t *testing.T) {
	gpus4 := NodeSlots{GPUs: 4, Cores: 64, OwnGPUs: true}
	slurm1 := NodeSlots{Cores: 1, NodeCPUs: 2, MoreCPUs: func(n int) string {
		return fmt.Sprintf("srun --cpus-per-task=%d", n)
	}}
	for _, tc := range []struct {
		name    string
		perNode string // empty: 100 ranks in all
		slots   NodeSlots
		want    int
		err     string
	}{
		{"a number", "4", NodeSlots{Cores: 8}, 4, ""},
		{"as many as cores", "8", NodeSlots{Cores: 8}, 8, ""},
		{"more than cores", "9", NodeSlots{Cores: 8}, 0, "it has 8 cores for the job, and --ranks-per-node=9"},
		{"more than GPUs", "5", gpus4, 0, "it has 4 GPUs"},
		{"more than GPUs that are not bound", "5", NodeSlots{GPUs: 4, Cores: 8}, 5, ""},
		{"one a GPU", PerGPU, gpus4, 4, ""},
		{"one a GPU, and there is none", PerGPU, NodeSlots{Cores: 64, OwnGPUs: true}, 0, "it has no GPU"},
		{"one a NUMA node", PerNUMA, NodeSlots{NUMAs: 2, Cores: 64}, 2, ""},
		{"one a NUMA node, and none is known", PerNUMA, NodeSlots{Cores: 2}, 1, ""},
		{"one a core", PerCore, NodeSlots{NUMAs: 2, Cores: 64}, 64, ""},
		{"one a core beside fewer GPUs", PerCore, gpus4, 0, "--bind without gpu"},
		{"more than cores, and the launcher grants more", "2", slurm1, 0,
			"start it with srun --cpus-per-task=2, or give --oversubscribe"},
		{"more than cores, and than the node has", "3", slurm1, 0, "means 3 ranks: give --oversubscribe"},
		{"cores that nobody knows", "9", NodeSlots{}, 9, ""},
		{"so many in all", "", gpus4, 4, ""},
		{"so many in all, without GPUs", "", NodeSlots{Cores: 64}, 64, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wish := LayoutRequest{PerNode: tc.perNode}
			if tc.perNode == "" {
				wish.Total = 100
			}
			got, err := wish.NodeRanks(tc.slots)
			if got != tc.want || !says(err, tc.err) {
				t.Errorf("%d, %v; want %d, %q", got, err, tc.want, tc.err)
			}
			wish.Oversubscribe = true
			if _, err := wish.NodeRanks(tc.slots); (err == nil) != !strings.Contains(tc.err, "no GPU") {
				t.Errorf("oversubscribed: %v", err)
			}
		})
	}
}

func TestCounted(t *testing.T) {
	for _, tc := range []struct {
		wish            LayoutRequest
		wanted, counted bool
	}{
		{LayoutRequest{}, false, false},
		{LayoutRequest{PerNode: "3"}, true, false},
		{LayoutRequest{PerNode: PerGPU}, true, true},
		{LayoutRequest{Total: 3}, true, true},
	} {
		if tc.wish.IsRequested() != tc.wanted || tc.wish.NeedsSlotCounts() != tc.counted {
			t.Errorf("%+v: wanted %v, counted %v", tc.wish, tc.wish.IsRequested(), tc.wish.NeedsSlotCounts())
		}
	}
}

func TestParsePerNode(t *testing.T) {
	for text, want := range map[string]string{"1": "", "128": "", "gpu": "", "numa": "", "core": "",
		"0": "give", "-1": "give", "gpus": "give", "": "give", "1.5": "give", "4294967296": "give"} {
		if got, err := ValidatePerNode(text); !says(err, want) || err == nil && got != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestCheckTotal(t *testing.T) {
	for _, tc := range []struct {
		name  string
		wish  LayoutRequest
		slots []int
		err   string
	}{
		{"none", LayoutRequest{PerNode: PerGPU}, []int{1, 3}, ""},
		{"as many as there is room for", LayoutRequest{Total: 4}, []int{2, 2}, ""},
		{"more than there is room for", LayoutRequest{Total: 5}, []int{2, 2}, "have 4 cores or GPUs"},
		{"more, shared", LayoutRequest{Total: 5, Oversubscribe: true}, []int{2, 2}, ""},
		{"more than so many per node", LayoutRequest{PerNode: "2", Total: 5, Oversubscribe: true},
			[]int{2, 2}, "allows only 4 on 2 nodes"},
	} {
		if err := tc.wish.CheckTotal(tc.slots); !says(err, tc.err) {
			t.Errorf("%s: %v, not %q", tc.name, err, tc.err)
		}
	}
}

func TestNewPlan(t *testing.T) {
	p := NewPlan([]int{1, 0, 3})
	var got []string
	for node := range p.NodeCount() {
		for local, r := range p.RanksOn(node) {
			got = append(got, fmt.Sprintf("%d.%d", r.Node, r.Local))
			if r.Rank != len(got)-1 || r.Local != local || p.NodesByRank()[r.Rank] != node {
				t.Errorf("rank %d is %+v", len(got)-1, r)
			}
		}
	}
	if want := "0.0 2.0 2.1 2.2"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestUneven(t *testing.T) {
	hosts := func(nodes []int) string { return fmt.Sprint(nodes) }
	for want, slots := range map[string][]int{
		"": {2, 2, 2},
		"nodes have different numbers of ranks: [0 2]: 4 ranks; [1]: 3 ranks": {4, 3, 4},
	} {
		if got := NewPlan(slots).DescribeUneven(hosts); got != want {
			t.Errorf("%v: %q", slots, got)
		}
	}
}

// says reports whether an error contains a text; if the text is empty, the error must be nil.
func says(err error, text string) bool {
	if text == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), text)
}
