package rolefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// makeNodes returns nodes of a group whose hosts have a prefix.
func makeNodes(prefix string, count, group, gpus int) (nodes []roles.NodeFacts) {
	for i := range count {
		host := fmt.Sprintf("%s%d", prefix, i)
		nodes = append(nodes, roles.NodeFacts{Host: host, Address: host, Group: group, GPUs: gpus, FirstPort: 20000})
	}
	return nodes
}

// withDomains divides nodes into NVLink domains of equal size.
func withDomains(nodes []roles.NodeFacts, size int) []roles.NodeFacts {
	for at := range nodes {
		nodes[at].Domain = fmt.Sprint("d", at/size)
	}
	return nodes
}

// planFile returns the plan of a file of roles. The spare nodes are left out of the team.
func planFile(t *testing.T, path string, nodes []roles.NodeFacts) *roles.Plan {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	var spares roles.Spares
	if strings.Contains(text, "\nspares:") {
		if spares, err = ParseSpares(topLevel(t, text, SparesKey)); err != nil {
			t.Fatal(err)
		}
	}
	used, _ := spares.Split(nodes)
	var team []roles.NodeFacts
	for _, place := range used {
		team = append(team, nodes[place])
	}
	plan, err := roles.MakePlan(mustParse(t, text), team)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// summarize returns a line for each role: the number of its instances and processes, its nodes as
// first-last, and the GPUs of its first process.
func summarize(plan *roles.Plan) (lines []string) {
	for _, role := range plan.Roles {
		processes := 0
		for _, instance := range role.Instances {
			processes += len(instance.Processes)
		}
		lines = append(lines, fmt.Sprintf("%s: %d x %d on %d-%d, GPUs %v", role.Name, len(role.Instances), processes/len(role.Instances),
			role.Nodes[0], role.Nodes[len(role.Nodes)-1], role.Instances[0].Processes[0].GPUs))
	}
	return lines
}

// TestTopologies places each topology on the nodes that its source has.
func TestTopologies(t *testing.T) {
	for _, tc := range []struct {
		file  string
		nodes []roles.NodeFacts
		want  []string
		idle  int
	}{
		{
			file:  "01-nemo-rl.yaml",
			nodes: slices.Concat(withDomains(makeNodes("a", 257, 0, 4), 18), makeNodes("b", 4, 1, 4)),
			want: []string{
				"rl: 1 x 224 on 0-249, GPUs [0 1 2 3]", "sandbox: 224 x 1 on 0-249, GPUs []", "genrm: 4 x 1 on 256-259, GPUs [0 1 2 3]",
				"genrm-lb: 1 x 1 on 0-0, GPUs []", "driver: 1 x 1 on 0-0, GPUs []",
			},
			idle: 256 - 224, // two nodes of each domain of 18, and the last four
		},
		{
			file: "02-prime-rl.yaml", nodes: makeNodes("n", 6, 0, 8),
			want: []string{
				"setup: 6 x 1 on 0-5, GPUs []", "infer: 8 x 1 on 0-1, GPUs [0 1]", "router: 1 x 1 on 0-0, GPUs []",
				"envs: 1 x 1 on 2-2, GPUs []", "orchestrator: 1 x 1 on 2-2, GPUs []", "trainer: 1 x 32 on 2-5, GPUs [0]",
			},
		},
		{
			file: "03-prefill-decode.yaml", nodes: makeNodes("n", 6, 0, 8),
			want: []string{
				"store: 1 x 1 on 0-0, GPUs []", "cache: 6 x 1 on 0-5, GPUs []", "prefill: 1 x 8 on 0-1, GPUs [0 1]",
				"decode: 2 x 8 on 2-5, GPUs [0 1]", "sidecar: 4 x 1 on 2-5, GPUs []", "router: 1 x 1 on 0-0, GPUs []",
			},
		},
		{
			file: "04-dynamo.yaml", nodes: makeNodes("n", 2, 0, 8),
			want: []string{
				"etcd: 1 x 1 on 0-0, GPUs []", "nats: 1 x 1 on 0-0, GPUs []", "prefill: 6 x 1 on 0-1, GPUs [0 1]", "decode: 2 x 1 on 0-1, GPUs [6 7]",
				"frontend: 2 x 1 on 0-1, GPUs []", "nginx: 1 x 1 on 0-0, GPUs []", "bench: 1 x 1 on 0-0, GPUs []",
			},
		},
		{
			file: "05-trtllm.yaml", nodes: makeNodes("n", 9, 0, 4),
			want: []string{"gen: 2 x 16 on 0-7, GPUs [0]", "router: 1 x 1 on 0-0, GPUs []"},
			idle: 1,
		},
		{
			file: "06-ray-pool.yaml", nodes: makeNodes("n", 2, 0, 8),
			want: []string{"train: 1 x 2 on 0-1, GPUs [0 1 2 3 4 5 6 7]", "watcher: 2 x 1 on 0-1, GPUs []", "launch: 1 x 1 on 0-0, GPUs []"},
		},
		{
			file: "07-shadow-engines.yaml", nodes: makeNodes("n", 4, 0, 8),
			want: []string{"gms: 8 x 1 on 0-3, GPUs [0 1 2 3]", "engine: 8 x 1 on 0-3, GPUs [0 1 2 3]", "standby: 8 x 1 on 0-3, GPUs [0 1 2 3]", "client: 1 x 1 on 0-0, GPUs []"},
		},
		{
			file: "08-evaluation.yaml", nodes: makeNodes("n", 3, 0, 8),
			want: []string{"model: 1 x 2 on 0-1, GPUs [0 1 2 3 4 5 6 7]", "judge: 1 x 1 on 2-2, GPUs [0 1 2 3 4 5 6 7]", "eval: 1 x 1 on 0-0, GPUs []"},
		},
		{
			file: "09-rl-with-cpu-nodes.yaml", nodes: slices.Concat(makeNodes("g", 5, 0, 8), makeNodes("c", 2, 1, 0)),
			want: []string{
				"trainer: 1 x 16 on 0-1, GPUs [0]", "rollout: 6 x 1 on 2-4, GPUs [0 1 2 3]", "reward: 1 x 1 on 5-5, GPUs []",
				"replay: 1 x 1 on 6-6, GPUs []", "data: 1 x 1 on 6-6, GPUs []",
			},
		},
		{
			file: "10-monarch.yaml", nodes: makeNodes("n", 8, 0, 8),
			want: []string{
				"trainer: 4 x 1 on 0-3, GPUs [0 1 2 3 4 5 6 7]", "generator: 2 x 2 on 4-7, GPUs [0 1 2 3 4 5 6 7]", "client: 1 x 1 on 0-0, GPUs []",
			},
		},
		{
			file: "11-torchft.yaml", nodes: makeNodes("n", 6, 0, 8),
			want: []string{"lighthouse: 1 x 1 on 0-0, GPUs []", "replica: 3 x 16 on 0-5, GPUs [0]"},
		},
		{
			file: "12-areal.yaml", nodes: makeNodes("n", 8, 0, 8),
			want: []string{"server: 8 x 1 on 0-3, GPUs [0 1 2 3]", "trainer: 1 x 32 on 4-7, GPUs [0]"},
		},
	} {
		t.Run(tc.file, func(t *testing.T) {
			plan := planFile(t, filepath.Join("testdata", "topologies", tc.file), tc.nodes)
			if got := summarize(plan); !slices.Equal(got, tc.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			if idle := plan.IdleNodes(); len(idle) != tc.idle {
				t.Errorf("got idle nodes %v, want %d", idle, tc.idle)
			}
			checkPlan(t, plan)
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "topologies", "*.yaml"))
	if err != nil || len(files) != 12 {
		t.Errorf("got %d files, %v; want 12", len(files), err)
	}
}

// checkPlan fails the test if a plan breaks a rule that all plans keep.
func checkPlan(t *testing.T, plan *roles.Plan) {
	t.Helper()
	type resource struct{ place, number int }
	gpus, shared, ports := make(map[resource]string), make(map[resource]string), make(map[resource]string)
	number := 0
	for _, role := range plan.Roles {
		for index, instance := range role.Instances {
			if instance.Number != number || instance.Index != index {
				t.Errorf("%s: instance %d has number %d and index %d, want %d", role.Name, index, instance.Number, instance.Index, number)
			}
			number++
			for rank, process := range instance.Processes {
				if process.Rank != rank || !slices.Contains(role.Nodes, process.Place) {
					t.Errorf("%s.%d: process %d is %+v", role.Name, index, rank, process)
				}
				for _, gpu := range process.GPUs {
					at := resource{process.Place, gpu}
					if place := role.Placement; place.GPUs == roles.GPUsShared {
						if len(place.With) == 0 {
							shared[at] = role.Name
						}
						continue
					}
					if other := gpus[at]; other != "" || gpu >= plan.Nodes[process.Place].GPUs {
						t.Errorf("%s: GPU %d of place %d is also that of %q", role.Name, gpu, process.Place, other)
					}
					gpus[at] = role.Name
				}
				if role.Placement.GPUs == roles.GPUsShared && process.GPUs == nil {
					t.Errorf("%s.%d: process %d sees all GPUs", role.Name, index, rank)
				}
				for i, request := range role.Program.Ports {
					for port := process.Ports[i]; port < process.Ports[i]+request.Count; port++ {
						at := resource{process.Place, port}
						if other := ports[at]; other != "" || request.Number == 0 && port >= plan.Nodes[process.Place].FirstPort+roles.BlockSize {
							t.Errorf("%s: port %d of place %d is also that of %q", role.Name, port, process.Place, other)
						}
						ports[at] = role.Name
					}
				}
				if vars := plan.Variables(role.Name, index, rank); vars["BRINGUPD_PORT"] == "" || vars["BRINGUPD_INSTANCE_ADDRESS"] == "" {
					t.Errorf("%s.%d.%d: got variables %v", role.Name, index, rank, vars)
				}
			}
		}
	}
	for at, name := range shared {
		if other := gpus[at]; other != "" || at.number >= plan.Nodes[at.place].GPUs {
			t.Errorf("%s: GPU %d of place %d, which others leave, is also that of %q", name, at.number, at.place, other)
		}
	}
}

// TestTopologyProbes replaces the variables of a probe. The last server of a node has the fifth port:
// the setup has the first.
func TestTopologyProbes(t *testing.T) {
	plan := planFile(t, "testdata/topologies/02-prime-rl.yaml", makeNodes("n", 6, 0, 8))
	probe := plan.FindRole("infer").Ready.Probe
	got, err := roles.ExpandProbe(probe, plan.Variables("infer", 7, 0))
	if want := "http://localhost:20004/health"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
