package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/test/simulate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortJob returns the configuration of a short job.
func shortJob(nodes int) simulate.Config {
	return simulate.Config{Nodes: nodes, JoinTimeout: 30 * time.Second, Peer: 10 * time.Second}
}

// run runs one job, which must not fail.
func run(t *testing.T, cfg simulate.Config) simulate.Result {
	t.Helper()
	r, err := simulate.Run(t.Context(), t.TempDir(), cfg)
	if err != nil || r.Failure != "" {
		t.Fatalf("got %v, %s", err, r.Failure)
	}
	return r
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  int
		change func(*simulate.Config)
	}{
		{"a head alone", 1, func(*simulate.Config) {}},
		{"nine nodes", 9, func(*simulate.Config) {}},
		{"latency and a trace", 3, func(c *simulate.Config) { c.Latency, c.Trace = 20*time.Millisecond, true }},
		{"ranks", 16, func(c *simulate.Config) { c.Ranks, c.Fences = 4, 4 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := shortJob(tc.nodes)
			tc.change(&cfg)
			checkResult(t, cfg, run(t, cfg))
		})
	}
}

// checkResult checks the conditions that hold for every successful job.
func checkResult(t *testing.T, cfg simulate.Config, r simulate.Result) {
	t.Helper()
	workers, calls := int64(cfg.Nodes-1), r.Calls
	if r.Gate <= 0 || r.Up.Min <= 0 || r.Up.Max < r.Up.P50 || r.End <= 0 || r.Machine.Processor <= 0 {
		t.Errorf("times: %+v", r)
	}
	// The head alone makes a dozen consecutive calls before a worker can see anything.
	if r.Gate < 12*cfg.Latency {
		t.Errorf("the gate opened after %s, with %s added to each call", r.Gate, cfg.Latency)
	}
	if all := calls.All.Calls - calls.Head.Calls; all < workers*calls.WorkerToGate.Min ||
		all > workers*calls.WorkerToGate.Max || r.Whole.Calls <= calls.All.Calls || calls.Peak == 0 {
		t.Errorf("calls: %+v", calls)
	}
	if workers > 0 && (calls.Worker.Min < 10 || calls.WorkerReads.Min == 0) {
		t.Errorf("a worker's calls until it was up: %+v", calls)
	}
	if (r.World != nil) != (cfg.Ranks != 0) || (r.ChainToGate != nil) != cfg.Trace {
		t.Errorf("got %+v", r)
	}
	if w := r.World; w != nil && (w.Met <= 0 || w.Fence.Min <= 0) {
		t.Errorf("ranks: %+v", w)
	}
}

// TestCallsDoNotGrowWithRanks verifies that data exchanged by ranks causes no file operations; the
// number of polls depends on the time.
func TestCallsDoNotGrowWithRanks(t *testing.T) {
	calls := func(ranks int) map[string]int64 {
		cfg := shortJob(4)
		cfg.Ranks, cfg.Fences, cfg.LinkMode = ranks, 10, config.LinkOn
		kinds := run(t, cfg).Whole.ByKind
		for _, kind := range []string{"list", "open", "close"} {
			delete(kinds, kind)
		}
		return kinds
	}
	few, many := calls(1), calls(16)
	for kind, n := range many { // the batching of writes differs
		if n > few[kind]+few[kind]/2+4 {
			t.Errorf("%d times %s with 16 ranks a node, and %d times with one", n, kind, few[kind])
		}
	}
	if none := calls(0); many["read"] > none["read"]+4+2 || many["write"] > none["write"]+4+4 {
		t.Errorf("calls without ranks: %v; with them: %v", none, many)
	}
}

// withRoles returns the configuration of a job with the roles of a file.
func withRoles(t *testing.T, nodes int, text string) simulate.Config {
	t.Helper()
	set, err := simulate.ParseRoles([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg := shortJob(nodes)
	cfg.Peer = time.Minute // the nodes share the processors of this machine
	cfg.Roles, cfg.GPUs = set, 8
	return cfg
}

// TestRoles runs jobs with all kinds of roles: probes, oneshot roles, clusters, instances over
// several nodes, worlds, roles after others, spare and idle nodes, and 10,000 endpoints.
func TestRoles(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		nodes      int
		want       simulate.RoleCounts
	}{
		{"the head alone", "roles: [{name: a, nodes: head, command: c}]", 1, simulate.RoleCounts{1, 1, 1}},
		{"an idle node", "roles: [{name: a, nodes: 1, command: c}]", 3, simulate.RoleCounts{1, 1, 1}},
		{"all kinds", `
spares: 1
roles:
- {name: setup, nodes: all, oneshot: true, command: c}
- {name: judge, nodes: 2, per-node: 4, gpus: 2, after: [setup], command: c,
   ready: "http://localhost:$BRINGUPD_PORT/health", alive: tcp:1, require: {start: 5, run: 5}}
- {name: engine, nodes: 2, nodes-per-instance: 2, ranks-per-node: 2, endpoints: all, command: c}
- {name: cluster, nodes: 2, nodes-per-instance: 2, framework: ray}
- {name: router, with: judge, nodes: 1, gpus: 0, after: [judge, engine], command: c}
- {name: trainer, nodes: rest, ranks-per-node: gpu, after: [router], primary: true, command: c}
`, 9, simulate.RoleCounts{6, 8 + 8 + 1 + 1 + 1 + 1, 8 + 8 + 4 + 1 + 1 + 1}},
		{"many endpoints", `roles:
- {name: server, nodes: all, per-node: 50, nodes-per-instance: 1, ranks-per-node: 5, gpus: 0,
   endpoints: all, command: c, ports: {http: auto}}
- {name: client, nodes: head, gpus: 0, primary: true, command: c}
`, 40, simulate.RoleCounts{2, 2001, 10_001}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, withRoles(t, tc.nodes, tc.text))
			if r.Roles != tc.want || r.Gate <= 0 || r.Up.Max <= 0 || r.End <= 0 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// TestReadsByNumberOfRoles verifies that the records that a worker reads do not grow with the number
// of roles and of instances.
func TestReadsByNumberOfRoles(t *testing.T) {
	const first = "- {name: r%d, nodes: all, per-node: %d, gpus: 0, command: c}\n"
	const later = "- {name: s%d, nodes: all, per-node: %d, gpus: 0, after: [r0], command: c}\n"
	reads := func(roles, instances int) simulate.Percentiles[int64] {
		text := "roles:\n- {name: main, nodes: head, primary: true, command: c}\n"
		for i := range roles / 2 {
			text += fmt.Sprintf(first, i, instances) + fmt.Sprintf(later, i, instances)
		}
		return run(t, withRoles(t, 64, text)).Calls.WorkerReads
	}
	// A worker reads the job, the plan, and once the endpoints for roles that start after others. If it
	// sees before the end that main is ready, it reads them again.
	for _, got := range []simulate.Percentiles[int64]{reads(2, 1), reads(8, 3)} {
		if got.Min != 3 || got.Max > 4 {
			t.Errorf("the workers read %+v records", got)
		}
	}
}
