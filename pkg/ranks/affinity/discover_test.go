package affinity

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func unset(string) (string, bool) { return "", false }

// TestDiscoverHere inspects this machine: a rank may use the resources that the kernel reports for
// this process.
func TestDiscoverHere(t *testing.T) {
	n, err := DiscoverNode("/", gpu.Topology{}, unset)
	if err != nil {
		t.Fatal(err)
	}
	var own IDSet
	locked(func() { own, err = threadAffinity(os.Getpid()) })
	if err != nil || !slices.Equal(n.CPUs, own) || len(n.allowedCores()) == 0 ||
		n.CountSlots(PerNUMA) == 0 || len(n.GPUs) > 0 {
		t.Errorf("it is %+v; our CPUs are %v, %v", n, own, err)
	}
}

func TestDiscover(t *testing.T) {
	const cpu0 = cpuDir + "/cpu0/topology"
	for _, tc := range []struct {
		name, node string
		change     func(f *fixture)
		says       string // the error; empty: no error
	}{
		{"no NUMA nodes", "this-machine", func(f *fixture) { f.remove(nodeDir) }, ""},
		{"no topology of the cores", "this-machine",
			func(f *fixture) { f.remove(cpu0); f.remove(cpuDir + "/cpu1/topology") }, ""},
		{"an older kernel", "this-machine", func(f *fixture) { f.remove(cpu0 + "/core_cpus_list") }, ""},
		{"no package", "this-machine", func(f *fixture) { f.write(cpu0+"/physical_package_id", "-1") }, ""},
		{"an offline CPU is allowed", "this-machine", func(f *fixture) { f.take("allowed", []string{"0-7", "0"}) }, ""},
		{"no CPUs", "this-machine", func(f *fixture) { f.remove(cpuDir) },
			"cannot read the CPU topology of this node: "},
		{"a strange list of CPUs", "this-machine",
			func(f *fixture) { f.write(cpuDir+"/online", "0-") },
			`cannot read the CPU topology of this node: cannot read the list "0-"`},
		{"no status", "this-machine", func(f *fixture) { f.remove(statusFile) },
			"cannot read the CPUs and memory that this process may use: "},
		{"no CPU is allowed", "this-machine", func(f *fixture) { f.take("allowed", []string{"8", "0"}) },
			"none of the CPUs listed in /proc/thread-self/status is online"},
		{"a GPU that does not exist", "cgroup-cut",
			func(f *fixture) { f.env["CUDA_VISIBLE_DEVICES"] = "1,4" },
			"cannot use CUDA_VISIBLE_DEVICES=1,4: there is no GPU 4, only 4 GPUs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := load(t, tc.node)
			tc.change(f)
			n, err := f.discover()
			if tc.says == "" {
				if err != nil || n.CountSlots(PerCore) != 2 || n.CountSlots(PerNUMA) != 1 || n.CPUs.String() != "0-1" {
					t.Errorf("%+v, %v", n, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func (f *fixture) remove(name string) {
	if err := os.RemoveAll(filepath.Join(f.root, name)); err != nil {
		f.t.Fatal(err)
	}
}

// TestCardThatIsDown verifies that network cards without a link are assigned to no rank.
func TestCardThatIsDown(t *testing.T) {
	f := load(t, "dgx-h100")
	f.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
	f.write("sys/class/infiniband/mlx5_3/ports/2/state", "4: ACTIVE")
	places := f.discovered().AssignRanks(8, all)
	if len(places[0].NICs) > 0 || !slices.Equal(places[1].NICs, []string{"mlx5_3:1", "mlx5_3:2"}) {
		t.Errorf("the first have %v and %v", places[0].NICs, places[1].NICs)
	}
}
