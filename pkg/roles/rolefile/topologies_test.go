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
func summarize(plan *roles.Plan) string {
	var lines []string
	for _, role := range plan.Roles {
		processes := 0
		for _, instance := range role.Instances {
			processes += len(instance.Processes)
		}
		count, nodes := len(role.Instances), role.Nodes
		lines = append(lines, fmt.Sprintf("%s: %d x %d on %d-%d, GPUs %v", role.Name, count, processes/count,
			nodes[0], nodes[len(nodes)-1], role.Instances[0].Processes[0].GPUs))
	}
	return strings.Join(append(lines, fmt.Sprintf("%d idle", len(plan.IdleNodes()))), "\n")
}

// TestTopologies compares the plan of each topology on the nodes that its source has, in
// testdata/topologies.txt.
func TestTopologies(t *testing.T) {
	checkAnswers(t, "testdata/topologies.txt", func(question string) string {
		file, nodes, _ := strings.Cut(question, "\n")
		path := filepath.Join("testdata", "topologies", file)
		plan := planFile(t, path, parseNodes(nodes))
		text, _ := os.ReadFile(path) // planFile has read it
		parsed, err := parseFile(text)
		if err != nil {
			t.Error(err)
		}
		checkFormat(t, parsed)
		checkPlan(t, plan)
		return summarize(plan)
	})
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
				t.Errorf("%s: instance %d has number %d and index %d, want %d", role.Name, index,
					instance.Number, instance.Index, number)
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
						if other := ports[at]; other != "" || request.Number == 0 &&
							port >= plan.Nodes[process.Place].FirstPort+roles.BlockSize {
							t.Errorf("%s: port %d of place %d is also that of %q", role.Name, port,
								process.Place, other)
						}
						ports[at] = role.Name
					}
				}
				if vars := plan.Variables(role.Name, index, rank); vars["BRINGUPD_PORT"] == "" ||
					vars["BRINGUPD_INSTANCE_ADDRESS"] == "" {
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
	plan := planFile(t, "testdata/topologies/02-prime-rl.yaml", parseNodes("6x8"))
	probe := plan.FindRole("infer").Ready.Probe
	got, err := roles.ExpandProbe(probe, plan.Variables("infer", 7, 0))
	if want := "http://localhost:20004/health"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
