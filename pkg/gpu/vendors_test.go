package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/zoo"
)

// TestOthers verifies that GPUs of AMD and Intel are found and have the names that their libraries
// use (N1).
func TestOthers(t *testing.T) {
	eight := "0,1,2,3,4,5,6,7"
	twelve := "0,1,2,3,4,5,6,7,8,9,10,11"
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		node   zoo.Node
		change func(t *testing.T, root string)
		env    []string
		want   string // the names of the units
		whys   int    // number of GPUs that cannot be used
		wrong  string
	}{
		"MI250": {node: zoo.MI250, want: eight},
		"MI250, by ROCR": {node: zoo.MI250,
			env: []string{"ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=0,1,2,3"}, want: "4,5,6,7"},
		"MI250, by UUID": {node: zoo.MI250,
			env: []string{"ROCR_VISIBLE_DEVICES=GPU-9a9764b63da28003"}, want: "1"},
		"MI250, a strange UUID": {node: zoo.MI250,
			env: []string{"ROCR_VISIBLE_DEVICES=GPU-9a97"}, wrong: "GPU GPU-9a97 is not one of the 8"},
		"MI250, by HIP": {node: zoo.MI250, env: []string{"HIP_VISIBLE_DEVICES=1"}, want: "1"},
		"MI250, none":   {node: zoo.MI250, env: []string{"ROCR_VISIBLE_DEVICES="}, want: ""},
		"MI250, one too far": {node: zoo.MI250, env: []string{"ROCR_VISIBLE_DEVICES=8"},
			wrong: "ROCR_VISIBLE_DEVICES=8: GPU 8 is not one of"},
		"MI300X":             {node: zoo.MI300X, want: eight},
		"MI300X without KFD": {node: zoo.MI300X, change: remove("dev/kfd"), want: "", whys: 8},
		"MI300X without its driver": {node: zoo.MI300X,
			change: remove("sys/class/kfd", "sys/class/drm", "dev/dri"), want: ""},
		"MI300X, four in a container": {
			node: zoo.MI300X, change: remove("dev/dri/renderD128", "dev/dri/renderD129",
				"dev/dri/renderD130", "dev/dri/renderD131"), want: "0,1,2,3", whys: 4,
		},
		"Max 1550, each tile": {node: zoo.Max1550, want: twelve},
		"Max 1550, not flat": {node: zoo.Max1550,
			env: []string{"ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"}, want: "0,1,2,3,4,5"},
		"Max 1550, some tiles": {node: zoo.Max1550,
			env: []string{"ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", "ZE_AFFINITY_MASK=1.0,2"}, want: "1.0,2"},
		"Max 1550, an empty mask": {node: zoo.Max1550, env: []string{"ZE_AFFINITY_MASK="}, want: twelve},
		"Max 1550, two devices":   {node: zoo.Max1550, env: []string{"ZE_AFFINITY_MASK=2,3"}, want: "2,3"},
	} {
		t.Run(name, func(t *testing.T) {
			root := tc.node.Tree(t)
			if tc.change != nil {
				tc.change(t, root)
			}
			if signs := gpu.FindNVIDIASigns(root); len(signs) > 0 {
				t.Errorf("there are signs of NVIDIA: %q", signs)
			}
			top := gpu.BuildTopology(root, gpu.NonNVIDIAFacts(root))
			units, err := top.VisibleUnits(func(name string) (value string, set bool) {
				for _, entry := range tc.env {
					if value, is := strings.CutPrefix(entry, name+"="); is {
						return value, true
					}
				}
				return "", false
			})
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("the error is %v, want one with %q", err, tc.wrong)
				}
				return
			}
			var names []string
			for _, unit := range units {
				names = append(names, unit.Name)
				if unit.NUMA < 0 || unit.CPUs == "" {
					t.Errorf("nobody knows where %+v sits", unit)
				}
			}
			whys := 0
			for _, g := range top.GPUs {
				if g.Reason != "" {
					whys++
				}
			}
			if got := strings.Join(names, ","); err != nil || got != tc.want || whys != tc.whys {
				t.Errorf("the units are %s, and %d GPUs cannot be used, want %s and %d: %v", got,
					whys, tc.want, tc.whys, err)
			}
		})
	}
}

func TestIsAnyUsable(t *testing.T) {
	for _, tc := range []struct {
		device string
		want   bool
	}{{"nvidia0", true}, {"nvidiactl", false}, {"nvidia-uvm", false}} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "dev", tc.device), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := gpu.IsAnyUsable(root); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.device, got, tc.want)
		}
	}
}
