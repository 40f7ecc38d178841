package config

import (
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestValidate(t *testing.T) {
	torchrun := []string{"torchrun", "train.py"}
	role := func(command string, nodesPerInstance int) func(*Config) {
		placement := roles.Placement{Nodes: 2, HasRanks: true, RanksPerNode: 1, InstancesPerNode: 1,
			NodesPerInstance: nodesPerInstance}
		return func(c *Config) {
			c.Roles.Definitions = []roles.Definition{{Name: "train", Line: 3, Placement: placement,
				Program: roles.Program{Command: command}}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		says   string // part of the error; empty: none
	}{
		{"the defaults", func(*Config) {}, ""},
		{"a relative log directory", func(c *Config) { c.LogDir = "logs" }, "absolute"},
		{"no log directory", func(c *Config) { c.LogDir = "" }, "absolute"},
		{"more sandboxes than nodes", func(c *Config) { c.Sandbox.Require = require(t, "5") }, "4 nodes"},
		{"as many sandboxes as nodes", func(c *Config) { c.Sandbox.Require = require(t, "4") }, ""},
		{"no time to join", func(c *Config) { c.Times.Join = 0 }, "--join-timeout"},
		{"too little time for the start", func(c *Config) { c.Times.Start = time.Millisecond }, "--start-timeout"},
		{"a peer timeout under a second", func(c *Config) { c.Times.Peer = 999 * time.Millisecond }, "--peer-timeout"},
		{"a peer timeout of a second", func(c *Config) { c.Times.Peer = time.Second }, ""},
		{"no grace", func(c *Config) { c.Times.DriverGrace = 0 }, ""},
		{"a negative grace", func(c *Config) { c.Times.DriverGrace = -1 }, "--driver-grace"},
		{"the longest grace", func(c *Config) { c.Times.DriverGrace = time.Hour }, ""},
		{"a driver that would not end", func(c *Config) { c.Times.DriverGrace = time.Hour + 1 }, "--driver-grace"},
		{"torchrun as the driver", func(c *Config) { c.Driver = torchrun }, "as the driver of 4 nodes"},
		{"torchrun as the driver of one node", func(c *Config) { c.Driver, c.Identity.Size = torchrun, 1 }, ""},
		{"torchrun as the driver of one node of four",
			func(c *Config) { c.Driver, c.Team = torchrun, membership.NodeRange{Min: 1, Max: 1} }, ""},
		{"torchrun beside workers", func(c *Config) {
			c.Driver, c.Framework = torchrun,
				framework.None{WorkerCommand: "x"}
		}, ""},
		{"torchrun beside sandboxes", func(c *Config) { c.Driver, c.Sandbox.Command = torchrun, "x" }, ""},
		{"torchrun as the driver, which waits for the other nodes",
			func(c *Config) { c.Driver = []string{"torchrun", "--nnodes=4", "train.py"} }, "--nnodes=4"},
		{"torchrun on each node, by a variable", func(c *Config) {
			c.Driver, c.World.PerNode, c.World.Env = torchrun, "1", []string{"PET_NNODES=4", "PET_NODE_RANK=1"}
		}, ""},
		{"torchrun on each node, for fewer nodes", func(c *Config) {
			c.Driver, c.World.PerNode, c.Environ = torchrun, "1", []string{"PET_NNODES=2"}
		}, "PET_NNODES=2 means that 2 of it form one world, and 4 ranks run it"},
		{"a launcher whose own file may name the other nodes",
			func(c *Config) { c.Driver = []string{"deepspeed", "train.py"} }, ""},
		{"mpirun in each rank", func(c *Config) { c.Driver, c.World.PerNode = []string{"mpirun", "x"}, "1" },
			"in each rank"},
		{"torchrun in each rank", func(c *Config) { c.Driver, c.World.PerNode = torchrun, "1" }, "in each rank"},
		{"torchrun in each rank of a node", func(c *Config) {
			c.Driver, c.World.PerNode,
				c.Identity.Size = torchrun, "2", 1
		}, "in each rank"},
		{"torchrun in the one rank of a node",
			func(c *Config) { c.Driver, c.World.PerNode, c.Identity.Size = torchrun, "1", 1 }, ""},
		{"mpirun in the ranks of a role", role("exec mpirun -n 4 ./app", 2),
			"run role train (line 3): mpirun in each rank"},
		{"a time limit for hanging ranks beside roles", func(c *Config) {
			role("./app", 2)(c)
			c.World.Hang = time.Minute
		}, "--hang-timeout: give hang-timeout to a role"},
		{"torchrun in the ranks of a role", role("torchrun train.py", 2),
			"run role train (line 3): torchrun in each rank"},
		{"torchrun in the one rank of an instance", role("torchrun train.py", 1), ""},
		{"torchrun in the ranks of a role, one for each node",
			role("torchrun --nnodes=2 --node-rank=$GROUP_RANK t.py", 2), ""},
		{"torchrun in the ranks of a role, without its number", role("torchrun --nnodes=2 train.py", 2),
			"without --node-rank each of them is node 0 of 2"},
		{"torchrun in the ranks of a role, for more nodes", role("torchrun --nnodes=4 train.py", 2),
			"run role train (line 3): torchrun in each rank: --nnodes=4"},
		{"torchrun in the ranks of a role, by its variable", func(c *Config) {
			role("torchrun train.py", 2)(c)
			c.Roles.Definitions[0].Program.Env = map[string]string{"PET_NNODES": "2", "PET_NODE_RANK": "$GROUP_RANK"}
		}, ""},
		{"torchrun in the processes of an instance without ranks", func(c *Config) {
			role("torchrun train.py", 2)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, "in each process"},
		{"torchrun in the processes of an instance, for more nodes", func(c *Config) {
			role("torchrun --nnodes=4 --rdzv-backend=c10d t.py", 2)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, "and 2 processes run it"},
		{"torchrun in instances of one node", func(c *Config) {
			role("torchrun --nnodes=2 train.py", 1)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, "without --node-rank each instance is node 0"},
		{"torchrun in instances of one node, with their numbers", func(c *Config) {
			role("torchrun --nnodes=$BRINGUPD_ROLE_COUNT --node_rank=$BRINGUPD_ROLE_INDEX t.py", 1)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, ""},
		{"torchrun on one node, for two", func(c *Config) {
			c.Driver, c.Identity.Size = []string{"torchrun", "--nnodes=2", "t.py"}, 1
		}, "with --nnodes=2 it waits"},
		{"torchrun in the one rank, for two nodes", func(c *Config) {
			c.Driver, c.World.PerNode, c.Identity.Size = []string{"torchrun", "--nnodes=2", "t.py"}, "1", 1
		}, "with --nnodes=2 it waits"},
		{"torchrun on one node, for two by a variable", func(c *Config) {
			c.Driver, c.Identity.Size, c.Environ = torchrun, 1, []string{"PET_NNODES=2"}
		}, "with PET_NNODES=2 it waits"},
		{"mpirun in instances of one node", func(c *Config) {
			role("mpirun -n 4 ./app", 1)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, ""},
		{"mpirun in the processes of an instance without ranks", func(c *Config) {
			role("mpirun -n 4 ./app", 2)(c)
			c.Roles.Definitions[0].Placement.HasRanks = false
		}, "mpirun in each process"},
		{"torchrun in ranks on all nodes", func(c *Config) {
			role("torchrun --nnodes=2 train.py", roles.NodesAll)(c)
			c.Roles.Definitions[0].Placement.Nodes = roles.NodesAll
		}, "4 ranks run it"},
		{"torchrun in ranks on all nodes but a spare", func(c *Config) {
			role("torchrun --nnodes=3 --rdzv-backend=c10d t.py", roles.NodesAll)(c)
			c.Roles.Definitions[0].Placement.Nodes, c.Roles.Spares = roles.NodesAll, roles.Spares{0: 1}
			c.Team = membership.NodeRange{Min: 3, Max: 4}
		}, ""},
		{"torchrun in ranks on all nodes of a component", func(c *Config) {
			role("torchrun --nnodes=2 --rdzv-backend=c10d t.py", roles.NodesAll)(c)
			c.Roles.Definitions[0].Placement.Nodes, c.Roles.Definitions[0].Placement.Group = roles.NodesAll, 1
		}, ""},
		{"torchrun in ranks on the nodes that are left", func(c *Config) {
			role("torchrun --nnodes=2 train.py", roles.NodesAll)(c)
			c.Roles.Definitions[0].Placement.Nodes = roles.NodesRest
		}, ""},
		{"torchrun as the only role, on the head's node", func(c *Config) {
			role("torchrun train.py", 1)(c)
			c.Roles.Definitions[0].Placement = roles.Placement{
				Nodes: roles.NodesHead, NodesPerInstance: 1, RanksPerNode: 1,
			}
		}, "torchrun on the head's node: it starts processes only there, and the job has 4 nodes"},
		{"torchrun somewhere in the command of a role", role("cd x && torchrun train.py", 2), ""},
		{"spares of roles", func(c *Config) {
			c.Roles, c.Team = someRoles(1),
				membership.NodeRange{Min: 3, Max: 4}
		}, ""},
		{"spares of roles and others", func(c *Config) {
			c.Roles, c.Team = someRoles(1),
				membership.NodeRange{Min: 2, Max: 4}
		}, "--nnodes"},
		{"spares beside roles without any", func(c *Config) {
			c.Roles, c.Team = someRoles(0),
				membership.NodeRange{Min: 3, Max: 4}
		}, "--nnodes"},
		{"a step without roles", func(c *Config) { c.Roles.Step = "judge" }, "--step=judge: no role has the key step"},
		{"a step of roles", func(c *Config) {
			role("./app", 1)(c)
			c.Roles.Definitions[0].Program.Step, c.Roles.Step = "judge", "judge"
		}, ""},
		{"another step than those of roles", func(c *Config) {
			role("./app", 1)(c)
			c.Roles.Definitions[0].Program.Step, c.Roles.Step = "judge", "sandbox"
		}, "--step=sandbox: no role has this step; the steps of the roles are: judge"},
		{"steps without a launcher that has them", func(c *Config) {
			role("./app", 1)(c)
			c.Roles.Definitions[0].Program.Step, c.Identity.Launcher = "judge", launcher.LauncherPBS
		}, "step judge without Slurm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Identity: testIdentity(0, 4), LogDir: "/logs", Times: DefaultTimeouts(),
				Framework: framework.None{}}
			tc.change(&cfg)
			err := cfg.Validate()
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (err == nil || !strings.HasPrefix(err.Error(), "cannot ") ||
				!strings.Contains(err.Error(), tc.says)):
				t.Errorf("the error is %v, and should speak of %s", err, tc.says)
			}
		})
	}
}

// someRoles returns a role, and a number of spare nodes.
func someRoles(spares int) RoleSet {
	return RoleSet{Definitions: []roles.Definition{{Name: "server"}}, Spares: roles.Spares{0: spares}}
}

// TestNodeRangeOfRoles checks how many nodes a launch needs: all but the spare ones of all groups.
func TestNodeRangeOfRoles(t *testing.T) {
	for _, tc := range []struct {
		spares      roles.Spares
		given, want membership.NodeRange
	}{
		{nil, membership.NodeRange{}, membership.NodeRange{}},
		{roles.Spares{0: 0}, membership.NodeRange{Min: 4, Max: 4}, membership.NodeRange{Min: 4, Max: 4}},
		{roles.Spares{0: 1, 1: 2}, membership.NodeRange{}, membership.NodeRange{Min: 1, Max: 4}},
		{roles.Spares{0: 1}, membership.NodeRange{Min: 4, Max: 4}, membership.NodeRange{Min: 3, Max: 4}},
		{roles.Spares{0: 1}, membership.NodeRange{Min: 2, Max: 4}, membership.NodeRange{Min: 2, Max: 4}},
		{roles.Spares{0: 9}, membership.NodeRange{}, membership.NodeRange{Min: 1, Max: 4}},
	} {
		if got := (RoleSet{Spares: tc.spares}).NodeRange(tc.given, 4); got != tc.want {
			t.Errorf("spares %v, given %v: got %v, want %v", tc.spares, tc.given, got, tc.want)
		}
	}
}

func TestGraces(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		grace, driver, other time.Duration
		isolated, failed     bool
	}{
		{"told to end", time.Hour, time.Hour, 5 * time.Second, false, false},
		{"failed", time.Hour, time.Hour, AbortGracePeriod, false, true},
		{"cut off", time.Hour, 15 * time.Second, AbortGracePeriod, true, true},
		{"cut off, with a short grace", time.Second, time.Second, AbortGracePeriod, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			times := Timeouts{DriverGrace: tc.grace, StopGrace: 5 * time.Second}
			if got := times.DriverGracePeriod(tc.isolated); got != tc.driver {
				t.Errorf("the driver has %s, not %s", got, tc.driver)
			}
			if got := times.ChildGracePeriod(tc.failed); got != tc.other {
				t.Errorf("all others have %s, not %s", got, tc.other)
			}
		})
	}
}

// TestReservedNames verifies that a name that the log directory uses itself is refused as a run's
// name.
func TestReservedNames(t *testing.T) {
	for _, name := range []string{signal.LatestLink, signal.BadNodesDir} {
		if launcher.CheckRunName(name) == nil {
			t.Errorf("a run may have the name %s, which is the log directory's own", name)
		}
	}
}

// TestLaunchWarnings checks that the sentences are those of launchers that may fit.
func TestLaunchWarnings(t *testing.T) {
	for _, tc := range []struct {
		driver string
		want   int
	}{{"deepspeed train.py", 1}, {"deepspeed --hostfile=hosts train.py", 0}, {"python train.py", 0}} {
		cfg := Config{Identity: testIdentity(0, 4), Framework: framework.None{}}
		cfg.Driver = strings.Fields(tc.driver)
		cfg.Roles.Definitions = []roles.Definition{{Name: "train", Program: roles.Program{Command: "torchrun t.py"},
			Placement: roles.Placement{Nodes: roles.NodesRest, HasRanks: true, NodesPerInstance: roles.NodesAll}}}
		if sentences, err := cfg.Roles.JudgeCommands(0, nil); len(sentences) > 0 || err != nil {
			t.Errorf("of an unknown number of nodes: %q, %v", sentences, err)
		}
		got := cfg.LaunchWarnings()
		if len(got) != tc.want+1 || !strings.HasPrefix(got[tc.want], "role train (line 0): ") {
			t.Errorf("%s: got %q", tc.driver, got)
		}
	}
}
