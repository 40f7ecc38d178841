package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// visibleTopology returns n GPUs with UUIDs GPU-10, GPU-11, …; change is applied to each.
func visibleTopology(n int, change func(i int, g *Locality)) (t Topology) {
	t.GPUs = []Locality{}
	for i := range n {
		g := Locality{Index: i, UUID: fmt.Sprintf("GPU-1%d", i), Model: "X"}
		change(i, &g)
		t.GPUs = append(t.GPUs, g)
	}
	return t
}

func alike(int, *Locality) {}

func TestVisible(t *testing.T) {
	withheld := func(i int, g *Locality) {
		if i == 0 {
			g.Reason, g.UUID = NoPermission, ""
		}
	}
	lost := func(i int, g *Locality) {
		if i == 1 {
			g.Reason = GPUIsLost
		}
	}
	cut := func(i int, g *Locality) {
		if i == 1 {
			g.Instances = []string{"MIG-aa", "MIG-ab"}
		}
	}
	for _, tc := range []struct {
		name string
		top  Topology
		env  string
		want string // index=name of each, or the error
	}{
		{"all", visibleTopology(2, alike), "", "0=0 1=1"},
		{"none here", visibleTopology(0, alike), "", ""},
		{"nobody could look", Topology{}, "", ""},
		{"nobody could look, and some are listed", Topology{}, "CUDA_VISIBLE_DEVICES=2,3", "2=2 3=3"},
		{"some", visibleTopology(4, alike), "CUDA_VISIBLE_DEVICES=3,1", "3=3 1=1"},
		{"no GPUs", visibleTopology(4, alike), "CUDA_VISIBLE_DEVICES=", ""},
		{"no GPUs, by Slurm", visibleTopology(4, alike), "CUDA_VISIBLE_DEVICES=NoDevFiles", ""},
		{"by UUID, or its beginning", visibleTopology(4, alike),
			"CUDA_VISIBLE_DEVICES=gpu-13,GPU-11", "3=GPU-13 1=GPU-11"},
		{"CUDA counts others than NVML", visibleTopology(3, withheld), "", "1=GPU-11 2=GPU-12"},
		{"and so are they listed", visibleTopology(3, withheld), "CUDA_VISIBLE_DEVICES=1", "2=GPU-12"},
		{"one is lost", visibleTopology(3, lost), "", "0=0 2=2"},
		{"one of the list is lost", visibleTopology(3, lost), "CUDA_VISIBLE_DEVICES=1,2", "2=2"},
		{"one is cut", visibleTopology(3, cut), "", "0=0 1=MIG-aa 1=MIG-ab 2=2"},
		{"an instance", visibleTopology(3, cut), "CUDA_VISIBLE_DEVICES=MIG-AB,2", "1=MIG-ab 2=2"},
		{"a GPU that is cut", visibleTopology(3, cut), "CUDA_VISIBLE_DEVICES=1", "1=MIG-aa 1=MIG-ab"},
		{"cut into none yet", visibleTopology(1, func(_ int, g *Locality) { g.Instances = []string{} }), "", ""},
		{"several models", visibleTopology(2, func(i int, g *Locality) { g.Model = fmt.Sprint(i) }),
			"", "0=GPU-10 1=GPU-11"},
		{"several models by the bus", visibleTopology(2,
			func(i int, g *Locality) { g.Model = fmt.Sprint(i) }), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "0=0 1=1"},
		{"an index too far", visibleTopology(2, alike), "CUDA_VISIBLE_DEVICES=2",
			"cannot use CUDA_VISIBLE_DEVICES=2: there is no GPU 2, only 2 GPUs"},
		{"a strange UUID", visibleTopology(2, alike), "CUDA_VISIBLE_DEVICES=GPU-2",
			"cannot use CUDA_VISIBLE_DEVICES=GPU-2: no GPU of this node has the UUID GPU-2"},
		{"too little of a UUID", visibleTopology(2, alike), "CUDA_VISIBLE_DEVICES=GPU-1",
			"2 GPUs have a UUID that begins with GPU-1: give more"},
		{"too little of an instance's", visibleTopology(2, cut), "CUDA_VISIBLE_DEVICES=MIG-a",
			"2 GPUs have a UUID that begins with MIG-a: give more"},
		{"no list", visibleTopology(2, alike), "CUDA_VISIBLE_DEVICES=0-1", "CUDA does not accept ranges"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name, value, _ := strings.Cut(tc.env, "=")
			units, err := tc.top.VisibleUnits(func(asked string) (string, bool) { return value, asked == name })
			var got []string
			for _, unit := range units {
				got = append(got, fmt.Sprintf("%d=%s", unit.Index, unit.Name))
			}
			switch {
			case err == nil && strings.Join(got, " ") != tc.want:
				t.Errorf("they are %q, not %s", got, tc.want)
			case err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestCards(t *testing.T) {
	m, _ := dgxMachine(t)
	m.write("sys/class/infiniband/mlx5_2/ports/1/state", "4: ACTIVE")
	m.write("sys/class/infiniband/mlx5_2/ports/2/state", "4: ACTIVE")
	m.write("sys/class/infiniband/mlx5_3/ports/1/state", "2: INIT")
	var got []string
	for _, c := range FindRDMADevices(m.root) {
		got = append(got, fmt.Sprintf("%s@%d%v", c.Name, c.NUMA, c.Ports))
	}
	want := "mlx5_0@0[1] mlx5_1@0[1] mlx5_2@0[1 2] mlx5_3@0[] mlx5_4@1[1] mlx5_5@1[1] " +
		"mlx5_6@1[1] mlx5_7@1[1] mlx5_8@0[1] mlx5_9@1[1]"
	if strings.Join(got, " ") != want {
		t.Errorf("they are %q", got)
	}
	if none := FindRDMADevices(t.TempDir()); none != nil {
		t.Errorf("without any: %v", none)
	}
}

// TestTopologizeTellsWhatGPUsAre verifies that the UUIDs of instances, the model and a GPU that
// cannot be used are taken from the facts.
func TestTopologizeTellsWhatGPUsAre(t *testing.T) {
	f := factsOf("0000:01:00.0", "0000:02:00.0")
	f.GPUs[0].Name, f.GPUs[0].MIG = newReading("A100"), newReading(ModeState{Current: true})
	f.GPUs[0].MIGInstances = []MIGInstance{{UUID: "MIG-1"}, {UUID: "MIG-2"}}
	f.GPUs[1].Handle = NoPermission
	gpus := BuildTopology(t.TempDir(), f).GPUs
	if fmt.Sprint(gpus[0].Model, gpus[0].Instances, gpus[0].Reason) != "A100[MIG-1 MIG-2]" ||
		gpus[1].Reason != NoPermission || gpus[1].Instances != nil {
		t.Errorf("they are %+v", gpus)
	}
}

func TestParseVisible(t *testing.T) {
	const full = "GPU-5d1e0a02-1c5a-4b52-9d3e-7a60c41f0002"
	uuid := func(s string) Selector { return Selector{Index: -1, UUID: s} }
	for _, tc := range []struct {
		value string
		want  []Selector
		err   string // a part of it
	}{
		{value: "", want: []Selector{}},
		{value: " ", want: []Selector{}},
		{value: "-1", want: []Selector{}},
		{value: "NoDevFiles", want: []Selector{}},
		{value: "0", want: []Selector{{Index: 0}}},
		{value: "3, 1,0", want: []Selector{{Index: 3}, {Index: 1}, {Index: 0}}},
		{value: "0,-1,2", want: []Selector{{Index: 0}}},
		{value: full, want: []Selector{uuid(full)}},
		{value: "GPU-5d1e,1", want: []Selector{uuid("GPU-5d1e"), {Index: 1}}},
		{value: "0-3", err: "CUDA does not accept ranges"},
		{value: "-2", err: "CUDA does not accept ranges"},
		{value: "99999999999999999999", err: "is not an index"},
		{value: "0,,1", err: "empty entry"},
		{value: "0,", err: "empty entry"},
		{value: "1,1", err: "lists 1 twice"},
		{value: "GPU-", err: "is missing"},
		{value: "all", err: `"all" is not an index`},
		{value: strings.Repeat("x", 9999), err: "is not an index"},
	} {
		got, err := ParseVisibleDevices(tc.value)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) || len(err.Error()) > 400 ||
				!strings.HasPrefix(err.Error(), "cannot use CUDA_VISIBLE_DEVICES=") {
				t.Errorf("%.20q: error %v", tc.value, err)
			}
		case err != nil || got == nil || !slices.Equal(got, tc.want):
			t.Errorf("%q: %v, %v", tc.value, got, err)
		}
	}
}
