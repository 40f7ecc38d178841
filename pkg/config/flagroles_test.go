package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestRoleFileIsReadAgain verifies that the file of roles that flags stand for has exactly these
// roles and spares. The commands of package main compare the files themselves.
func TestRoleFileIsReadAgain(t *testing.T) {
	probe, err := health.ParseProbe("tcp:7000")
	if err != nil {
		t.Fatal(err)
	}
	services := framework.None{HeadCommand: "head", HeadReady: &probe, WorkerCommand: "a\n\tb", WorkerReady: &probe}
	world := func(request ranks.LayoutRequest) config.RankOptions {
		return config.RankOptions{LayoutRequest: request, Env: []string{"A=1", "A=2", "B="}, Hang: time.Minute}
	}
	for name, change := range map[string]func(*config.Config){
		"nothing": func(*config.Config) {},
		"a setup command, services and a driver": func(c *config.Config) {
			c.Setup, c.Framework = "setup", services
			c.Driver = []string{"drive", "it's", "", "a\nb", "--x=$Y", "é\x1b"}
		},
		"other times": func(c *config.Config) {
			c.Setup, c.Framework, c.Driver = "setup", services, []string{"drive"}
			c.Times.Start, c.Times.DriverGrace = time.Hour, 0
		},
		"a dedicated head": func(c *config.Config) { services.DedicatedHead = true; c.Framework = services },
		"a cluster":        func(c *config.Config) { c.Framework = ray.New().BuildFramework(framework.Options{}) },
		"sandboxes":        func(c *config.Config) { c.Sandbox = config.Sandbox{Command: "box", Ready: &probe} },
		"the sandbox of the head": func(c *config.Config) {
			c.Sandbox.Command, c.Driver = "box", []string{"drive"}
			c.Sandbox.Require, _ = membership.ParseSandboxQuorum("head")
		},
		"ranks per node": func(c *config.Config) {
			c.Driver, c.World, c.Framework = []string{"rank"}, world(ranks.LayoutRequest{PerNode: "3"}), services
		},
		"ranks per GPU that are bound": func(c *config.Config) {
			c.Driver, c.World = []string{"rank"}, world(ranks.LayoutRequest{PerNode: "gpu", Total: 5})
			c.World.Bind = affinity.AllKinds()
		},
		"ranks per core": func(c *config.Config) {
			c.Driver, c.World = []string{"rank"}, world(ranks.LayoutRequest{PerNode: "core"})
			c.World.GoOn, c.Team = true, membership.NodeRange{Min: 3, Max: 3}
		},
		"a number of ranks": func(c *config.Config) {
			c.Driver, c.World = []string{"rank"}, world(ranks.LayoutRequest{Total: 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Config{LogDir: "/logs", Times: config.DefaultTimeouts(), Framework: framework.None{}}
			cfg.Identity = launcher.Identity{Size: 4, Launcher: launcher.LauncherSlurm}
			cfg.Sandbox.Require, _ = membership.ParseSandboxQuorum("all")
			change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			want, err := cfg.RoleFile()
			if err != nil {
				t.Fatal(err)
			}
			text, err := want.Format()
			if err != nil {
				t.Fatal(err)
			}
			var got config.RoleSet
			readRoles(t, text, &got)
			same := []cmp.Option{cmpopts.IgnoreFields(roles.Definition{}, "Line"), cmpopts.EquateEmpty()}
			diff := cmp.Diff(want.Roles, got.Definitions, same...)
			if diff += cmp.Diff(want.Spares, got.Spares, same...); diff != "" {
				t.Errorf("%s\nfrom:\n%s", diff, text)
			}
			cfg.Roles = got
			if again, err := cfg.RoleFile(); err != nil || !cmp.Equal(again.Roles, got.Definitions) {
				t.Errorf("the roles of the file are not those of the job: %v", err)
			}
		})
	}
}

// readRoles reads the roles and the spares in the text of a file.
func readRoles(t *testing.T, text string, to *config.RoleSet) {
	t.Helper()
	var top map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(text), &top); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	for _, block := range to.Blocks() {
		if value, isGiven := top[block.Key]; isGiven {
			if err := block.Read("job.yaml", &value); err != nil {
				t.Fatalf("%v in:\n%s", err, text)
			}
		}
	}
}

// TestRunRoles verifies which roles the daemons run for flags: the primary one is the first, and no role
// is bound to GPUs, because each node binds the ranks by itself.
func TestRunRoles(t *testing.T) {
	server := framework.None{HeadCommand: "serve"}
	sandbox := func(require string) config.Sandbox {
		quorum, err := membership.ParseSandboxQuorum(require)
		if err != nil {
			t.Fatal(err)
		}
		return config.Sandbox{Command: "contain", Require: quorum}
	}
	for name, tc := range map[string]struct {
		driver    []string
		world     config.RankOptions
		team      membership.NodeRange
		framework framework.None
		sandbox   config.Sandbox
		want      string
	}{
		"services": {driver: []string{"drive"}, framework: server,
			want: "driver 1 after head worker, head 1, worker all after head"},
		"services alone":   {framework: framework.None{WorkerCommand: "work"}, want: "head 1, worker all after head"},
		"sandboxes":        {sandbox: sandbox("2"), want: "sandbox all requires 2"},
		"some sandbox":     {sandbox: sandbox("any"), want: "sandbox all requires 1"},
		"that of the head": {sandbox: sandbox("head"), want: "sandbox 1, sandbox-others others requires 0"},
		"a driver and both": {driver: []string{"drive"}, framework: server, sandbox: sandbox("all"),
			want: "driver 1 after head worker sandbox, head 1, worker all after head, sandbox all"},
		"no driver": {},
		"a driver":  {driver: []string{"drive"}, want: "driver 1"},
		"a driver that needs one of two nodes": {driver: []string{"drive"},
			team: membership.NodeRange{Min: 1, Max: 1}, want: "driver 1"},
		"ranks": {driver: []string{"rank"}, want: "ranks all",
			world: config.RankOptions{LayoutRequest: ranks.LayoutRequest{PerNode: "3"}, Bind: affinity.AllKinds()}},
		"ranks that go on": {driver: []string{"rank"}, want: "ranks all",
			world: config.RankOptions{LayoutRequest: ranks.LayoutRequest{PerNode: "3"}, GoOn: true}},
		"a total of ranks": {driver: []string{"rank"}, want: "ranks all",
			world: config.RankOptions{LayoutRequest: ranks.LayoutRequest{PerNode: "core", Total: 5}}},
	} {
		c := config.Config{Identity: launcher.Identity{Size: 2}, Workload: config.Workload{
			Driver: tc.driver, World: tc.world}, Team: tc.team, Framework: framework.None{}}
		c.Framework, c.Sandbox = tc.framework, tc.sandbox
		var all []string
		for _, role := range c.RunRoles() {
			all = append(all, describeBuiltIn(role))
			if role.BuiltIn == "" || role.Placement.GPUs != roles.GPUsAll {
				t.Errorf("%s: the role is %+v", name, role)
			}
		}
		if got := strings.Join(all, ", "); got != tc.want {
			t.Errorf("%s: the roles are %q, not %q", name, got, tc.want)
		}
	}
}

// describeBuiltIn describes a role: its nodes, how many instances it requires unless all, and after which
// ones it starts.
func describeBuiltIn(role roles.Definition) string {
	words := map[int]string{roles.NodesHead: "1", roles.NodesAll: "all", roles.NodesOthers: "others"}
	text := role.Name + " " + words[role.Placement.Nodes]
	if role.Required.Start != roles.QuorumAll {
		text += fmt.Sprintf(" requires %d", role.Required.Start)
	}
	if len(role.After) > 0 {
		text += " after " + strings.Join(role.After, " ")
	}
	return text
}
