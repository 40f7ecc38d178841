package ray

import (
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
