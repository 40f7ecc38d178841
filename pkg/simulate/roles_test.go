package simulate

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
)

// withRoles returns the configuration of a job with the roles of a file.
func withRoles(t testing.TB, nodes int, text string) Config {
	t.Helper()
	var file map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	var set config.RoleSet
	for _, block := range set.Blocks() {
		if value, given := file[block.Key]; given {
			if err := block.Read("job.yaml", &value); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := few(nodes)
	cfg.Peer = time.Minute // the nodes share the processors of this machine
	cfg.RoleLoad = RoleLoad{Roles: set, Path: "job.yaml", GPUs: 8}
	return cfg
}

// TestSimulateRoles runs jobs with all kinds of roles: probes, oneshot roles, clusters, instances
// over several nodes, worlds, roles after others, spare and idle nodes.
func TestSimulateRoles(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		nodes      int
		want       RoleCounts
	}{
		{"the head alone", "roles: [{name: a, nodes: head, command: c}]", 1, RoleCounts{1, 1, 1}},
		{"an idle node", "roles: [{name: a, nodes: 1, command: c}]", 3, RoleCounts{1, 1, 1}},
		{"all kinds", `
spares: 1
roles:
- {name: setup, nodes: all, oneshot: true, command: c}
- {name: judge, nodes: 2, per-node: 4, gpus: 2, after: [setup], command: c, ready: "http://localhost:$BRINGUPD_PORT/health", alive: tcp:1, require: {start: 5, run: 5}}
- {name: engine, nodes: 2, nodes-per-instance: 2, ranks-per-node: 2, endpoints: all, command: c}
- {name: cluster, nodes: 2, nodes-per-instance: 2, framework: ray}
- {name: router, with: judge, nodes: 1, gpus: 0, after: [judge, engine], command: c}
- {name: trainer, nodes: rest, ranks-per-node: gpu, after: [router], primary: true, command: c}
`, 9, RoleCounts{6, 8 + 8 + 1 + 1 + 1 + 1, 8 + 8 + 4 + 1 + 1 + 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run, _ := simulated(t, newRoom(t), withRoles(t, tc.nodes, tc.text))
			if run.Failure != nil {
				t.Fatalf("it failed: %+v", run.Failure)
			}
			if diff := cmp.Diff(&tc.want, run.Roles); diff != "" {
				t.Error(diff)
			}
			if run.Gate <= 0 || run.Up.Max <= 0 || run.End.Took <= 0 {
				t.Errorf("got %+v", run)
			}
		})
	}
}

// TestReadsByNumberOfRoles verifies that the records that a worker reads do not grow with the number
// of roles and of instances.
func TestReadsByNumberOfRoles(t *testing.T) {
	const first = "- {name: r%d, nodes: all, per-node: %d, gpus: 0, command: c}\n"
	const later = "- {name: s%d, nodes: all, per-node: %d, gpus: 0, after: [r0], command: c}\n"
	reads := func(roles, instances int) (counts []int64) {
		text := "roles:\n- {name: main, nodes: head, primary: true, command: c}\n"
		for i := range roles / 2 {
			text += fmt.Sprintf(first, i, instances) + fmt.Sprintf(later, i, instances)
		}
		run, _ := simulated(t, newRoom(t), withRoles(t, 64, text))
		if run.Failure != nil {
			t.Fatalf("%d roles: it failed: %+v", roles, run.Failure)
		}
		worker := run.Worker.ByKind["read"]
		return []int64{worker.Min, worker.P50, worker.Max}
	}
	// A worker reads the job, the plan, and once the endpoints for roles that start after others. If it
	// sees before the end that main is ready, it reads them again.
	for _, got := range [][]int64{reads(2, 1), reads(8, 3)} {
		if got[0] != 3 || got[1] > 4 || got[2] > 4 {
			t.Errorf("the workers read from %d to %d records, and half of them up to %d", got[0], got[2], got[1])
		}
	}
}

// TestManyEndpoints verifies that a file with 10,000 endpoints can be started: 2,000 instances of five
// processes each.
func TestManyEndpoints(t *testing.T) {
	run, _ := simulated(t, newRoom(t), withRoles(t, 40, `roles:
- {name: server, nodes: all, per-node: 50, nodes-per-instance: 1, ranks-per-node: 5, gpus: 0, endpoints: all, command: c, ports: {http: auto}}
- {name: client, nodes: head, gpus: 0, primary: true, command: c}
`))
	if run.Failure != nil || run.Roles.Endpoints != 10_001 || run.Gate <= 0 {
		t.Errorf("failure %+v, roles %+v, gate %s", run.Failure, run.Roles, run.Gate)
	}
}

func TestRefusesRoles(t *testing.T) {
	const valid = "roles: [{name: a, nodes: all, command: c}]"
	for _, tc := range []struct {
		name, text string
		change     func(*Config)
		want       string
	}{
		{"no roles", "roles: []", func(*Config) {}, "cannot use --config=job.yaml: it has no roles"},
		{"too many nodes", "roles: [{name: a, nodes: 5, command: c}]", func(*Config) {}, "cannot place the roles: a needs 5 nodes: 5 of 4"},
		{"a death", valid, func(c *Config) { c.Death = WorkerDies }, "cannot simulate a death in a job with roles: use --fail"},
		{"ranks", valid, func(c *Config) { c.Ranks, c.Fences = 1, 1 }, "cannot simulate --ranks in a job with roles"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := few(4)
			cfg.Path = "job.yaml"
			if tc.text != "roles: []" {
				cfg = withRoles(t, 4, tc.text)
			}
			tc.change(&cfg)
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// BenchmarkRoles reports the time to the gate of 1,024 nodes with 2,000 instances of one role and of
// five, on the file system of TMPDIR.
func BenchmarkRoles(b *testing.B) {
	const nodes = 1024
	for _, tc := range []struct{ name, text string }{
		{"one", "roles:\n- {name: server, nodes: 1000, per-node: 2, gpus: 0, command: c, ports: {http: auto}}\n"},
		{"five", `roles:
- {name: judge, nodes: 500, per-node: 2, gpus: 0, command: c, ports: {http: auto}, restarts: 3}
- {name: reward, nodes: 400, per-node: 2, gpus: 0, command: c, ports: {http: auto}}
- {name: router, nodes: 74, gpus: 0, command: c, ports: {http: auto}}
- {name: sandbox, with: [judge, reward], nodes: 125, gpus: 0, command: c, ports: {http: auto}}
- {name: trainer, nodes: rest, ranks-per-node: 1, gpus: 0, primary: true, command: c}
`},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var gates, instances float64
			for b.Loop() {
				room, err := MakeScratchDir(b.Context(), os.TempDir(), "here")
				if err != nil {
					b.Fatal(err)
				}
				cfg := withRoles(b, nodes, tc.text)
				run, _, err := SimulateJob(b.Context(), room, cfg)
				if err := room.Remove(b.Context()); err != nil {
					b.Error(err)
				}
				if err != nil || run.Failure != nil {
					b.Fatalf("%v, %+v", err, run.Failure)
				}
				gates += float64(run.Gate.Milliseconds())
				instances = float64(run.Roles.Instances)
			}
			b.ReportMetric(gates/float64(b.N), "gate-ms")
			b.ReportMetric(instances, "instances")
		})
	}
}
