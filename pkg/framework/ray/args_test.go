package ray

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

// placeOf returns the flags that differ between a head and a worker.
func placeOf(head bool) framework.Arguments {
	if head {
		return framework.Arguments{"--head", "--port=6379", "--ray-client-server-port=40001",
			"--include-dashboard=false"}
	}
	return framework.Arguments{"--address=192.0.2.1:6379"}
}

func TestRayArgv(t *testing.T) {
	head := framework.Node{RunName: "job.0", Address: "192.0.2.1", TempDir: "/tmp/bu-1", CPUs: 16, GPUs: 8}
	worker := framework.Node{RunName: "job.0", TeamIndex: 1, LaunchIndex: 1, Address: "192.0.2.2",
		TempDir: "/tmp/bu-2", GPUs: -1}
	common := []string{"--block", "--disable-usage-stats", "--log-style=record", "--log-color=false"}
	headIs := []string{"--node-ip-address=192.0.2.1", "--node-name=job.0-0", "--temp-dir=/tmp/bu-1",
		"--head", "--port=6379", "--ray-client-server-port=40001"}
	workerIs := []string{"--node-ip-address=192.0.2.2", "--node-name=job.0-1",
		"--temp-dir=/tmp/bu-2", "--address=192.0.2.1:6379"}
	join := func(parts ...[]string) []string {
		var all []string
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	const ours, plain = `--resources={"topo_rank":1,"worker_units":8}`, `--resources={"topo_rank":2}`
	kernelPicks := []string{"--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"}
	tests := []struct {
		name  string
		node  framework.Node
		extra []string
		want  []string
	}{
		{"head", head, nil, join([]string{"ray", "start"}, common, headIs,
			[]string{"--include-dashboard=false"}, kernelPicks,
			[]string{"--num-cpus=16", "--num-gpus=8", ours})},
		{"worker that counts for itself", worker, nil,
			join([]string{"ray", "start"}, common, workerIs, kernelPicks, []string{plain})},
		{"the user's value wins", worker, []string{"--num-gpus", "4", "--dashboard-agent-listen-port=1311"},
			join([]string{"ray", "start"}, common, workerIs, kernelPicks[:2],
				[]string{plain, "--num-gpus=4", "--dashboard-agent-listen-port=1311"})},
		{"one end of a range is the user's", worker, []string{"--min-worker-port=2000", "--max-worker-port=2999"},
			join([]string{"ray", "start"}, common, workerIs, kernelPicks[2:],
				[]string{plain, "--min-worker-port=2000", "--max-worker-port=2999"})},
		{"a list is the user's", worker, []string{"--worker-port-list=2000,2001"},
			join([]string{"ray", "start"}, common, workerIs, kernelPicks[2:],
				[]string{plain, "--worker-port-list=2000,2001"})},
		{"resources are merged", head, []string{`--resources={"disk": 2, "worker_units": 4}`},
			join([]string{"ray", "start"}, common, headIs, []string{"--include-dashboard=false"}, kernelPicks,
				[]string{"--num-cpus=16", "--num-gpus=8", `--resources={"disk":2,"topo_rank":1,"worker_units":4}`})},
		{"switches and the dashboard", head, []string{"--include-dashboard=true", "--no-monitor", "-v"},
			join([]string{"ray", "start"}, common, headIs, kernelPicks,
				[]string{"--num-cpus=16", "--num-gpus=8", ours, "--include-dashboard=true", "--no-monitor", "-v"})},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Cluster{}.startArgv(tc.node, placeOf(tc.node.TeamIndex == 0), tc.extra)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMemoryFlags verifies that Ray offers no more memory than the job may use on its node (R3).
func TestMemoryFlags(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		memory int64
		args   []string
		want   framework.Arguments
	}{
		"all of the node": {0, nil, nil},
		"--mem=500": {500 * mib, nil,
			framework.Arguments{"--object-store-memory=157286400", "--memory=367001600"}},
		"a store of the user": {500 * mib, []string{"--object-store-memory=100000000"},
			framework.Arguments{"--memory=424288000"}},
		"both of the user": {500 * mib, []string{"--object-store-memory", "100000000", "--memory", "1"}, nil},
		"memory of the user": {500 * mib, []string{"--memory=1"},
			framework.Arguments{"--object-store-memory=157286400"}},
		"less than a store": {50 * mib, nil, framework.Arguments{"--object-store-memory=78643200"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := framework.Node{RunName: "17.0", Address: "10.0.0.1", TempDir: "/tmp/x",
				GPUs: -1, MaxMemory: tc.memory}
			argv, err := Cluster{}.startArgv(node, framework.Arguments{"--head"}, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			var got framework.Arguments
			extra, err := parseFlags(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range argv[2:] {
				name := framework.FlagName(flag)
				if (name == "--memory" || name == objectStoreFlag) && !slices.Contains(extra, flag) {
					got = append(got, flag)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the flags are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStoreSize(t *testing.T) {
	const gb = 1_000_000_000
	for name, tc := range map[string]struct {
		memory, shm int64
		want        int64
	}{
		"a part":              {100 * gb, 50 * gb, 30 * gb},
		"no more than Ray's":  {2000 * gb, 1000 * gb, 200 * gb},
		"no more than in shm": {1000 * gb, 100 * gb, 95 * gb},
		"a small shm":         {1000 * gb, 0, 10 * gb},
		"no less than Ray's":  {gb / 10, 50 * gb, 75 << 20},
	} {
		if got := storeSize(tc.memory, tc.shm); got != tc.want {
			t.Errorf("%s: it is %d, want %d", name, got, tc.want)
		}
	}
}

func flagsOf(t *testing.T, args []string) framework.Arguments {
	t.Helper()
	flags, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

func TestRayPorts(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []framework.Port // nil: refused
	}{
		{
			"a head with the kernel's choice",
			[]string{"--head", "--port=6379", "--ray-client-server-port=40001",
				"--min-worker-port=0", "--max-worker-port=0"},
			[]framework.Port{{Name: "Ray's GCS", Number: 6379}, {Name: "the Ray Client server", Number: 40001}},
		},
		{
			"a head that opens the defaults", []string{"--head", "--port=6379", "--include-dashboard=true"},
			[]framework.Port{{Name: "Ray's GCS", Number: 6379},
				{Name: "the Ray Client server", Number: 10001}, {Name: "Ray's dashboard", Number: 8265}},
		},
		{"a worker", []string{"--address=h:6379"}, []framework.Port{}},
		{
			"a worker with fixed ports", []string{"--node-manager-port=1301",
				"--metrics-export-port", "1309", "--min-worker-port=2000", "--max-worker-port=2999"},
			[]framework.Port{{Name: "Ray's node manager", Number: 1301}, {Name: "Ray's metrics", Number: 1309}},
		},
		{"no number", []string{"--node-manager-port=x"}, nil},
		{"no port", []string{"--node-manager-port=65536"}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := fixedPorts(flagsOf(t, tc.args))
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("got %v, %v", got, err)
			}
			if len(got)+len(tc.want) > 0 && !cmp.Equal(tc.want, got) {
				t.Error(cmp.Diff(tc.want, got))
			}
		})
	}
}

func TestDashboard(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"none by itself", nil, ""},
		{"none is wanted", []string{"--include-dashboard=false", "--dashboard-port=8299"}, ""},
		{"where Ray has it", []string{"--include-dashboard=true"}, "http://127.0.0.1:8265"},
		{"at a port", []string{"--include-dashboard", "true", "--dashboard-port=8299"}, "http://127.0.0.1:8299"},
		{"at every address of the node", []string{"--include-dashboard=1",
			"--dashboard-host=0.0.0.0"}, "http://10.0.0.7:8265"},
		{"at another address", []string{"--include-dashboard=1", "--dashboard-host=fe80::1"}, "http://[fe80::1]:8265"},
		{"at a port of the kernel's choice", []string{"--include-dashboard=1", "--dashboard-port=0"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testNode(t, 0)
			node.Address = "10.0.0.7"
			_, endpoint, err := Cluster{HeadArgs: tc.args}.HeadService(node)
			if err != nil || endpoint.Dashboard != tc.want {
				t.Errorf("the dashboard is at %q (%v), want %q", endpoint.Dashboard, err, tc.want)
			}
		})
	}
}
