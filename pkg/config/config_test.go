package config

import (
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

func TestValidate(t *testing.T) {
	torchrun := []string{"torchrun", "train.py"}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		says   string // part of the error; empty: none
	}{
		{"the defaults", func(*Config) {}, ""},
		{"a relative log directory", func(c *Config) { c.LogDir = "logs" }, "absolute"},
		{"no log directory", func(c *Config) { c.LogDir = "" }, "absolute"},
		{"two sandboxes", func(c *Config) { c.Sandbox.Command, c.Sandbox.Step = "true", true }, "--sandbox-step"},
		{"more sandboxes than nodes", func(c *Config) { c.Sandbox.Require = require(t, "5") }, "4 nodes"},
		{"as many sandboxes as nodes", func(c *Config) { c.Sandbox.Require = require(t, "4") }, ""},
		{"no time to join", func(c *Config) { c.Times.Join = 0 }, "--join-timeout"},
		{"no time for a setup", func(c *Config) { c.Times.Setup = -time.Second }, "--setup-timeout"},
		{"too little time for a sandbox", func(c *Config) { c.Times.Sandbox = time.Millisecond }, "--sandbox-timeout"},
		{"no time for a service", func(c *Config) { c.Times.Service = 0 }, "--service-timeout"},
		{"a peer timeout under a second", func(c *Config) { c.Times.Peer = 999 * time.Millisecond }, "--peer-timeout"},
		{"a peer timeout of a second", func(c *Config) { c.Times.Peer = time.Second }, ""},
		{"no settling", func(c *Config) { c.Times.Settle = 0 }, ""},
		{"negative settling", func(c *Config) { c.Times.Settle = -1 }, "--settle"},
		{"no graces", func(c *Config) { c.Times.DriverGrace, c.Times.StopGrace = 0, 0 }, ""},
		{"a negative grace", func(c *Config) { c.Times.StopGrace = -1 }, "--stop-grace"},
		{"the longest graces", func(c *Config) { c.Times.DriverGrace, c.Times.StopGrace = time.Hour, 10*time.Second }, ""},
		{"a driver that would not end", func(c *Config) { c.Times.DriverGrace = time.Hour + 1 }, "--driver-grace"},
		{"torchrun as the driver", func(c *Config) { c.Driver = torchrun }, "--allow-launcher"},
		{"torchrun as the driver of one node", func(c *Config) { c.Driver, c.Identity.Size = torchrun, 1 }, ""},
		{"torchrun as the driver of one node of four", func(c *Config) { c.Driver, c.Team = torchrun, membership.NodeRange{Min: 1, Max: 1} }, ""},
		{"torchrun, which is allowed", func(c *Config) { c.Driver, c.World.AllowLauncher = torchrun, true }, ""},
		{"torchrun beside workers", func(c *Config) { c.Driver, c.Framework = torchrun, framework.None{WorkerCommand: "x"} }, ""},
		{"torchrun beside sandboxes", func(c *Config) { c.Driver, c.Sandbox.Command = torchrun, "x" }, ""},
		{"torchrun that knows the other nodes", func(c *Config) { c.Driver = append([]string{"torchrun", "--nnodes=4"}, torchrun[1:]...) }, ""},
		{"torchrun in each rank", func(c *Config) { c.Driver, c.World.PerNode = torchrun, "1" }, "as each of the ranks"},
		{"torchrun in each rank of a node", func(c *Config) { c.Driver, c.World.PerNode, c.Identity.Size = torchrun, "2", 1 }, "as each of the ranks"},
		{"torchrun in the one rank of a node", func(c *Config) { c.Driver, c.World.PerNode, c.Identity.Size = torchrun, "1", 1 }, ""},
		{"services beyond Slurm's patience", func(c *Config) { c.Times.StopGrace = 10*time.Second + 1 }, "Slurm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Identity: testIdentity(0, 4), LogDir: "/logs", Times: DefaultTimeouts(), Framework: framework.None{}}
			tc.change(&cfg)
			err := cfg.Validate()
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (err == nil || !strings.HasPrefix(err.Error(), "cannot ") || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("the error is %v, and should speak of %s", err, tc.says)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int
		change func(*testing.T, *Config)
		steps  []string // in this order, what the lines say
	}{
		{
			"a driver alone", 4, func(_ *testing.T, c *Config) { c.Driver = []string{"python", "train.py"} },
			[]string{"rank 0 of 4 on n0", "meet 4 nodes in /logs/17.0 ", "gate", "rank 0 runs python train.py"},
		},
		{
			"with spares", 6, func(_ *testing.T, c *Config) { c.Driver, c.Team = []string{"go"}, membership.NodeRange{Min: 4, Max: 5} },
			[]string{"rank 0 of 6 on n0", "meet 6 nodes", "team: 4:5 of them are the driver's", "gate", "runs go"},
		},
		{
			"a world", 4, func(_ *testing.T, c *Config) {
				c.Driver, c.World.PerNode, c.World.Bind = []string{"go"}, "gpu", affinity.ResourceKinds{CPU: true, GPU: true}
				c.World.Hang = time.Minute
			},
			[]string{"rank 0 of 4", "meet 4 nodes", "gate", "every node runs a rank for each gpu of go, bound to cpu,gpu; the code of the first", "no rank does anything for 1m0s"},
		},
		{
			"a world of so many", 4, func(_ *testing.T, c *Config) { c.Driver, c.World.Total, c.World.GoOn = []string{"go"}, 9, true },
			[]string{"rank 0 of 4", "meet 4 nodes", "gate", "every node runs 9 ranks in all, node by node of go, bound to none; where one fails the others go on"},
		},
		{
			"nothing to run", 1, func(*testing.T, *Config) {},
			[]string{"rank 0 of 1", "meet 1 nodes", "gate", "stays up until it is stopped"},
		},
		{
			"everything", 2,
			func(t *testing.T, c *Config) {
				c.Setup = "modprobe"
				c.Sandbox = Sandbox{Command: "box", Ready: probe(t, "tcp:99"), Require: require(t, "any")}
				c.Framework = framework.None{HeadCommand: "serve", WorkerCommand: "work"}
				c.Driver = []string{"go"}
			},
			[]string{"rank 0 of 2", "meet", `check: run "modprobe"`, `sandbox: run "box", ready by tcp:99 within 5m0s; the gate needs any`, "head: rank 0 runs /bin/sh -c serve", "workers: rank 1, and likewise the others, runs /bin/sh -c work", "gate", "runs go"},
		},
		{
			"a sandbox without a probe", 2,
			func(t *testing.T, c *Config) {
				c.Sandbox = Sandbox{Command: "box", Require: require(t, "2")}
			},
			[]string{"rank 0", "meet", "ready once it runs; the gate needs 2", "gate", "driver: none"},
		},
		{
			"a life of its own", 1,
			func(_ *testing.T, c *Config) {
				c.Driver, c.Times.Deadline = []string{"go"}, time.Hour
				c.After = PostRun{Restarts: 2, Backoff: time.Second, Requeue: RequeueConfig{OnFailure: true, Most: 3}, Clean: CleanNone, Look: time.Minute, Keep: prune.KeepPolicy{MaxRuns: 5}}
			},
			[]string{"rank 0", "meet", "gate", "runs go", "ends with 124, 1h0m0s after", "stay for 1m0s", "restarts: at most 2", "requeue: at most 3", "earlier runs in /logs: yours are removed as --keep=5 says"},
		},
		{
			"directories that stay", 1, func(_ *testing.T, c *Config) { c.Driver, c.After.Clean = []string{"go"}, CleanRunning },
			[]string{"rank 0", "meet", "gate", "runs go", "clean: the temporary directories stay"},
		},
		{
			"a sandbox of another step", 2,
			func(t *testing.T, c *Config) {
				c.Sandbox = Sandbox{Step: true, Require: require(t, "head")}
			},
			[]string{"rank 0", "meet", "wait for head of another step", "gate", "driver: none"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Identity: testIdentity(0, tc.size), LogDir: "/logs", Framework: framework.None{}, Times: DefaultTimeouts()}
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

func TestGraces(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		grace, driver, other time.Duration
		gentle, failed       bool
	}{
		{"told to end", time.Hour, time.Hour, 5 * time.Second, true, false},
		{"stopped", time.Hour, time.Hour, 5 * time.Second, true, false},
		{"the driver has ended", time.Hour, 15 * time.Second, 5 * time.Second, false, false},
		{"failed", time.Hour, 15 * time.Second, AbortGracePeriod, false, true},
		{"failed, with a short grace", time.Second, time.Second, AbortGracePeriod, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			times := Timeouts{DriverGrace: tc.grace, StopGrace: 5 * time.Second}
			if got := times.DriverGracePeriod(tc.gentle); got != tc.driver {
				t.Errorf("the driver has %s, not %s", got, tc.driver)
			}
			if got := times.ChildGracePeriod(tc.failed); got != tc.other {
				t.Errorf("all others have %s, not %s", got, tc.other)
			}
		})
	}
}

// A name that the log directory has for itself is no run's.
func TestReservedNames(t *testing.T) {
	for _, name := range []string{signal.LatestLink, signal.HistoryDir, signal.BadNodesDir} {
		if roles.CheckRunName(name) == nil {
			t.Errorf("a run may have the name %s, which is the log directory's own", name)
		}
	}
}
