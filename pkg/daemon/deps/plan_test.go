package deps

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int
		change func(*testing.T, *Config)
		steps  []string // parts of the lines, in this order
	}{
		{
			"a driver alone", 4, func(_ *testing.T, c *Config) { c.Driver = []string{"python", "train.py"} },
			[]string{"node 0 of 4 on n0", "meet 4 nodes in /logs/17.0 ", "gate", "node 0 runs python train.py"},
		},
		{
			"with spares", 6, func(_ *testing.T, c *Config) { c.Driver, c.Team = []string{"go"}, membership.NodeRange{Min: 4, Max: 5} },
			[]string{"node 0 of 6 on n0", "meet 6 nodes", "team: 4:5 of them are the driver's", "gate", "runs go"},
		},
		{
			"a world", 4, func(_ *testing.T, c *Config) {
				c.Driver, c.World.PerNode, c.World.Bind = []string{"go"}, "gpu", affinity.ResourceKinds{CPU: true, GPU: true}
				c.World.Hang = time.Minute
			},
			[]string{"node 0 of 4", "meet 4 nodes", "gate", "every node runs a rank for each gpu of go, bound to cpu,gpu; the code of the first", "no rank shows a sign of activity for 1m0s"},
		},
		{
			"a world of so many", 4, func(_ *testing.T, c *Config) { c.Driver, c.World.Total, c.World.GoOn = []string{"go"}, 9, true },
			[]string{"node 0 of 4", "meet 4 nodes", "gate", "every node runs 9 ranks in all, node by node of go, bound to none; where one fails the others go on"},
		},
		{
			"roles", 4, func(_ *testing.T, c *Config) {
				c.Roles.Definitions = []roles.Definition{
					{Name: "trainer", Primary: true, HangTimeout: time.Minute, After: []string{"judge"}, Placement: roles.Placement{Nodes: roles.NodesRest}, Program: roles.Program{Command: "train"}},
					{
						Name: "judge", Placement: roles.Placement{Nodes: 2}, Program: roles.Program{Command: "serve\n"}, Ready: roles.ReadyProbe{Probe: "tcp:$BRINGUPD_PORT", Timeout: time.Minute},
						Restarts: roles.RestartPolicy{Max: 2, Window: time.Hour},
					},
				}
			},
			[]string{
				"node 0 of 4", "meet 4 nodes", "roles: start judge", "roles: start trainer", "gate",
				"end: when all primary roles have ended with 0, or one fails: trainer",
			},
		},
		{
			"nothing to run", 1, func(*testing.T, *Config) {},
			[]string{"node 0 of 1", "meet 1 nodes", "gate", "stays up until it is stopped"},
		},
		{
			"everything", 2,
			func(t *testing.T, c *Config) {
				c.Setup = "modprobe"
				c.Sandbox = config.Sandbox{Command: "box", Ready: probe(t, "tcp:99"), Require: require(t, "any")}
				c.Framework = framework.None{HeadCommand: "serve", WorkerCommand: "work"}
				c.Driver = []string{"go"}
			},
			[]string{"node 0 of 2", "meet", `check: run "modprobe"`, `sandbox: run "box", ready by tcp:99 within 10m0s; the gate needs any`, "head: node 0 runs /bin/sh -c serve", "workers: node 1, and likewise the others, runs /bin/sh -c work", "gate", "runs go"},
		},
		{
			"a sandbox without a probe", 2,
			func(t *testing.T, c *Config) {
				c.Sandbox = config.Sandbox{Command: "box", Require: require(t, "2")}
			},
			[]string{"node 0", "meet", "ready once it runs; the gate needs 2", "gate", "driver: none"},
		},
		{
			"a life of its own", 1,
			func(_ *testing.T, c *Config) {
				c.Driver, c.Times.Deadline = []string{"go"}, time.Hour
				c.After = config.PostRun{Restarts: 2, Requeue: config.RequeueConfig{OnFailure: true, Most: 3}, Clean: config.CleanNone, Look: time.Minute}
			},
			[]string{"node 0", "meet", "gate", "runs go", "ends with 124, 1h0m0s after", "stay for 1m0s", "restarts: at most 2", "requeue: at most 3"},
		},
		{
			"directories that stay", 1, func(_ *testing.T, c *Config) { c.Driver, c.After.Clean = []string{"go"}, config.CleanRunning },
			[]string{"node 0", "meet", "gate", "runs go", "clean: the temporary directories stay"},
		},
		{
			"a sandbox of another step", 2,
			func(t *testing.T, c *Config) {
				c.Sandbox = config.Sandbox{Step: true, Require: require(t, "head")}
			},
			[]string{"node 0", "meet", "wait for head of another step", "gate", "driver: none"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Config: config.Config{Identity: testIdentity(tc.size), LogDir: "/logs", Framework: framework.None{}, Times: config.DefaultTimeouts()}}
			tc.change(t, &cfg)
			lines := cfg.DescribePlan(roles.RoleHead)
			if len(lines) != len(tc.steps) {
				t.Fatalf("the plan has %d lines, not %d: %q", len(lines), len(tc.steps), lines)
			}
			for i, line := range lines {
				if !strings.Contains(line, tc.steps[i]) {
					t.Errorf("line %d is %q, without %q", i, line, tc.steps[i])
				}
			}
		})
	}
}

// testIdentity returns the identity of the head of a job of size nodes.
func testIdentity(size int) launcher.Identity {
	id := launcher.Identity{Launcher: launcher.LauncherLocal, Size: size, Host: "n0", Job: "17", Step: "0"}
	for node := range size {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%d", node))
	}
	return id
}

func probe(t *testing.T, text string) *health.Probe {
	t.Helper()
	p, err := health.ParseProbe(text)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func require(t *testing.T, text string) membership.SandboxQuorum {
	t.Helper()
	r, err := membership.ParseSandboxQuorum(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
