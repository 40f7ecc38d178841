package planning_test

import (
	"fmt"
	"net"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// parseRoles returns the roles of a list.
func parseRoles(t *testing.T, text string) []roles.Definition {
	t.Helper()
	var list yaml.Node
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(list.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

// TestPlanEarly checks which roles are planned before any node has joined, and from which facts.
func TestPlanEarly(t *testing.T) {
	const (
		driver = `[{name: main, nodes: head, command: train, primary: true, ports: {}}]`
		server = `[{name: judge, nodes: all, command: serve}]`
		claim  = `[{name: judge, nodes: 1, command: serve, ports: {}}]`
		bound  = `[{name: main, nodes: all, gpus: 2, command: serve, ports: {}}]`
		world  = `[{name: main, nodes: all, ranks-per-node: 2, primary: true, command: train, ports: {}}]`
		pair   = `[{name: judge, nodes: 2, segment: 2, command: serve, ports: {}}]`
	)
	local := launcher.Identity{Launcher: launcher.LauncherLocal, Size: 2, LocalSize: 2,
		Hosts: []string{"node0", "node1"}}
	remote := launcher.Identity{Launcher: launcher.LauncherSlurm, Size: 2, LocalSize: 1, Host: "127.0.0.1",
		Hosts: []string{"127.0.0.1", "127.0.0.2"}}
	with := func(id launcher.Identity, change func(*launcher.Identity)) launcher.Identity {
		change(&id)
		return id
	}
	gpus := func(count int) func(*launcher.Identity) {
		return func(id *launcher.Identity) { id.GPUs, id.GPUsSource = count, "SLURM_GPUS_ON_NODE" }
	}
	withoutHosts := func(id *launcher.Identity) { id.Hosts = nil }
	for _, tc := range []struct {
		name, roles string
		id          launcher.Identity
		spares      roles.Spares
		selected    bool     // the user has selected an interface
		addresses   []string // of the nodes in the plan; nil: there is no plan
		hasPorts    bool
	}{
		{"no address of another node is needed", driver, remote, nil, false, []string{""}, false},
		{"one machine", server, local, nil, false, []string{"10.0.0.1", "10.0.0.1"}, true},
		{"endpoints of several machines", server, remote, nil, false, []string{"10.0.0.1", "127.0.0.2"}, true},
		{"addresses of an interface", server, remote, nil, true, nil, false},
		{"none of them is needed", driver, remote, nil, true, []string{""}, false},
		{"the first rank's address", world, remote, nil, false, []string{"10.0.0.1", ""}, true},
		{"the launcher says how many GPUs", bound, with(remote, gpus(4)), nil, false, []string{"", ""}, false},
		{"too few GPUs", bound, with(remote, gpus(1)), nil, false, nil, false},
		{"an unknown number of GPUs", bound, remote, nil, false, nil, false},
		{"unknown hosts", bound, with(remote, withoutHosts), nil, false, nil, false},
		{"unknown hosts of other nodes", driver, with(remote, withoutHosts), nil, false, []string{""}, false},
		{"a spare node", driver, remote, roles.Spares{0: 1}, false, nil, false},
		{"a segment", pair, remote, nil, false, nil, false},
		{"a node is left over", claim, remote, nil, false, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defs := parseRoles(t, tc.roles)
			choice := planning.PlanEarly(t.Context(), defs, tc.spares, planning.EarlyFacts{
				Identity: tc.id, Environ: launcher.EnvironmentOf(nil),
				Address: launcher.NodeAddress{Address: "10.0.0.1", Selected: tc.selected},
			})
			if (choice == nil) != (tc.addresses == nil) {
				t.Fatalf("the plan is %+v", choice)
			}
			for node, want := range tc.addresses {
				facts := choice.Record.Offers[node]
				hosts := append(tc.id.Hosts, tc.id.Host)
				if facts.Address != want || facts.NodeIndex != node || facts.Host != hosts[node] {
					t.Errorf("node %d is %+v", node, facts)
				}
				if (facts.FirstPort > 0) != tc.hasPorts {
					t.Errorf("the first port of node %d is %d", node, facts.FirstPort)
				}
			}
			isShared := tc.id.Launcher == launcher.LauncherLocal
			if offers := tc.addresses; tc.hasPorts && len(offers) > 1 {
				first, second := choice.Record.Offers[0].FirstPort, choice.Record.Offers[1].FirstPort
				if (first != second) != isShared {
					t.Errorf("the first ports are %d and %d", first, second)
				}
			}
		})
	}
}

// TestPlanLaunch checks which plans each node knows without reading them: those of built-in roles that
// depend on nothing but the number of nodes.
func TestPlanLaunch(t *testing.T) {
	all := roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}
	role := func(kind roles.BuiltIn, nodes int) roles.Definition {
		return roles.Definition{Name: string(kind), BuiltIn: kind, Required: all, Primary: kind == roles.BuiltInDriver,
			Placement: roles.Placement{Nodes: nodes, GPUs: roles.GPUsAll}}
	}
	driver, head := role(roles.BuiltInDriver, roles.NodesHead), role(roles.BuiltInHead, roles.NodesHead)
	worker, others := role(roles.BuiltInWorker, roles.NodesAll), role(roles.BuiltInSandbox, roles.NodesOthers)
	ranks, counted := role(roles.BuiltInRanks, roles.NodesAll), role(roles.BuiltInRanks, roles.NodesAll)
	counted.Placement.RanksPerNode = roles.PerSlot
	named := role("", roles.NodesAll)
	named.Name = "judge"
	for _, tc := range []struct {
		name      string
		defs      []roles.Definition
		size      int
		instances []int // of each role; nil: there is no such plan
	}{
		{"a driver takes part on the head alone", []roles.Definition{driver}, 3, []int{1}},
		{"services", []roles.Definition{driver, head, worker}, 3, []int{1, 1, 3}},
		{"services without a driver", []roles.Definition{head, worker}, 2, []int{1, 2}},
		{"sandboxes of the others", []roles.Definition{driver, others}, 3, []int{1, 2}},
		{"there are no others", []roles.Definition{driver, others}, 1, []int{1, 0}},
		{"ranks whose number the nodes know follow", []roles.Definition{counted, worker}, 2, []int{0, 2}},
		{"such ranks alone", []roles.Definition{counted}, 2, nil},
		{"other ranks meet at an address", []roles.Definition{ranks, worker}, 2, nil},
		{"a role of a file", []roles.Definition{named}, 2, nil},
		{"nothing", nil, 2, nil},
	} {
		rec := planning.PlanLaunch(tc.defs, tc.size)
		if rec == nil || tc.instances == nil {
			if rec != nil || tc.instances != nil {
				t.Errorf("%s: the record is %+v", tc.name, rec)
			}
			continue
		}
		plan, err := planning.MakePlan(tc.defs, rec)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for i, role := range plan.Roles {
			if len(role.Instances) != tc.instances[i] {
				t.Errorf("%s: role %s has %d instances, not %d", tc.name, role.Name, len(role.Instances),
					tc.instances[i])
			}
		}
	}
}

// TestKeepPlannedPorts checks that a node keeps its ports of an early plan, unless another program
// listens in their block, or another daemon has it.
func TestKeepPlannedPorts(t *testing.T) {
	defs := parseRoles(t, `[{name: judge, nodes: all, command: serve, ports: {a: auto, b: {count: 3}}}]`)
	id := launcher.Identity{Launcher: launcher.LauncherLocal, Size: 1, LocalSize: 1, Hosts: []string{"node0"}}
	life := lifecycle.NewLifetime(t.Context())
	defer life.Close()
	publisher := &lifecycle.Publisher{Lifetime: life}
	for range 100 { // another program may have a port of the block that is drawn
		choice := planning.PlanEarly(t.Context(), defs, nil,
			planning.EarlyFacts{Identity: id, Environ: launcher.EnvironmentOf(nil),
				Address: launcher.NodeAddress{Address: "127.0.0.1"}})
		block := planning.KeepPlannedPorts(publisher, choice.Plan, 0)
		if block == nil {
			continue
		}
		if planning.KeepPlannedPorts(publisher, choice.Plan, 0) != nil {
			t.Error("two daemons have one block")
		}
		block.Release(choice.Plan.Roles[0].Instances[0].Processes[0].Ports[0])
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", block.First))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		if _, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", block.First+3)); err == nil {
			t.Error("a planned port is not kept")
		}
		return
	}
	t.Error("no block is free")
}
