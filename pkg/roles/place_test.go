package roles

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeNodes returns nodes n0, n1, … with GPUs and a block of ports.
func makeNodes(count, gpus int) (nodes []NodeFacts) {
	for i := range count {
		nodes = append(nodes, NodeFacts{Host: fmt.Sprint("n", i), Address: fmt.Sprint("10.0.0.", i), GPUs: gpus, FirstPort: 20000})
	}
	return nodes
}

// placed returns a role with a placement.
func placed(name string, place Placement) Definition {
	return Definition{Name: name, Placement: place, Required: Requirement{Start: QuorumAll, Run: QuorumAll}}
}

// withPorts returns the role with other ports.
func withPorts(def Definition, ports ...PortRequest) Definition {
	def.Program.Ports = ports
	return def
}

func TestPlanNodes(t *testing.T) {
	domains := makeNodes(12, 0)
	for at := range domains {
		domains[at].Domain = []string{"x", "y"}[at%2]
	}
	groups := makeNodes(6, 0)
	for at := range groups {
		groups[at].Group = at / 3
	}
	for _, tc := range []struct {
		name  string
		nodes []NodeFacts
		defs  []Definition
		want  [][]int
		idle  []int
	}{
		{
			name: "in the order of the list", nodes: makeNodes(6, 0),
			defs: []Definition{placed("a", Placement{Nodes: 2}), placed("b", Placement{Nodes: 3})},
			want: [][]int{{0, 1}, {2, 3, 4}}, idle: []int{5},
		},
		{
			name: "the rest before others", nodes: makeNodes(7, 0),
			defs: []Definition{
				placed("a", Placement{Nodes: 1}), placed("b", Placement{Nodes: NodesRest}), placed("c", Placement{Nodes: 2}),
				placed("d", Placement{With: []string{"b"}, Nodes: 1}), // claims none
				placed("e", Placement{Nodes: 1}),
			},
			want: [][]int{{0}, {1, 2, 3}, {4, 5}, {1}, {6}},
		},
		{
			name: "all, head, and with a role that follows", nodes: makeNodes(4, 0),
			defs: []Definition{
				placed("a", Placement{Nodes: NodesAll}), placed("b", Placement{Nodes: NodesHead}), placed("c", Placement{With: []string{"e", "d"}, Nodes: NodesAll}),
				placed("d", Placement{Nodes: 1}), placed("e", Placement{Nodes: 2}), placed("f", Placement{With: []string{"c", "d"}, Nodes: 2}),
			},
			want: [][]int{{0, 1, 2, 3}, {0}, {0, 1, 2}, {0}, {1, 2}, {0, 1}},
		},
		{
			name: "with a role on all nodes that follows", nodes: makeNodes(2, 0),
			defs: []Definition{placed("a", Placement{With: []string{"b"}, Nodes: NodesAll}), placed("b", Placement{Nodes: NodesAll})},
			want: [][]int{{0, 1}, {0, 1}},
		},
		{
			name: "groups", nodes: groups,
			defs: []Definition{
				placed("a", Placement{Nodes: 1, Group: 1}), placed("b", Placement{Nodes: NodesRest, Group: 1}), placed("c", Placement{Nodes: NodesAll, Group: 1}),
				placed("d", Placement{Nodes: NodesRest}), placed("e", Placement{Nodes: NodesHead}), placed("f", Placement{Nodes: 1}),
			},
			want: [][]int{{3}, {4, 5}, {3, 4, 5}, {0, 1}, {0}, {2}},
		},
		{
			name: "segments of interleaved domains", nodes: domains,
			defs: []Definition{placed("a", Placement{Nodes: 8, Segment: 4})},
			want: [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, idle: []int{8, 9, 10, 11},
		},
		{
			name: "segments of one domain, and then of the next", nodes: domains,
			defs: []Definition{placed("a", Placement{Nodes: 8, Segment: 2})},
			want: [][]int{{0, 1, 2, 3, 4, 6, 8, 10}}, idle: []int{5, 7, 9, 11},
		},
		{
			name: "in the order of the list without segments", nodes: domains,
			defs: []Definition{placed("a", Placement{Nodes: 3}), placed("b", Placement{Nodes: NodesRest})},
			want: [][]int{{0, 1, 2}, {3, 4, 5, 6, 7, 8, 9, 10, 11}},
		},
		{
			name: "the rest in whole segments", nodes: domains,
			defs: []Definition{placed("a", Placement{Nodes: NodesRest, Segment: 5}), placed("b", Placement{Nodes: 1})},
			want: [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10}}, idle: []int{11},
		},
		{
			name: "segments without domains", nodes: makeNodes(5, 0),
			defs: []Definition{placed("a", Placement{Nodes: NodesRest, Segment: 2})},
			want: [][]int{{0, 1, 2, 3}}, idle: []int{4},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := MakePlan(tc.defs, tc.nodes)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]int
			for _, role := range plan.Roles {
				got = append(got, role.Nodes)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if idle := plan.IdleNodes(); !slices.Equal(idle, tc.idle) {
				t.Errorf("got idle nodes %v, want %v", idle, tc.idle)
			}
		})
	}
}

// describeInstances returns the processes of each instance as host/local:GPUs.
func describeInstances(plan *Plan, role RolePlan) (texts []string) {
	for _, instance := range role.Instances {
		var parts []string
		for _, process := range instance.Processes {
			part := fmt.Sprintf("%s/%d", plan.Nodes[process.Place].Host, process.Local)
			if process.GPUs != nil {
				part += ":" + strings.Trim(fmt.Sprint(process.GPUs), "[]")
			}
			parts = append(parts, part)
		}
		texts = append(texts, strings.Join(parts, ", "))
	}
	return texts
}

func TestPlanInstances(t *testing.T) {
	mixed := makeNodes(2, 2)
	mixed[1].GPUs = 3
	for _, tc := range []struct {
		name  string
		nodes []NodeFacts
		defs  []Definition
		want  []string // of the first role
	}{
		{"one for each node", makeNodes(2, 2), []Definition{placed("a", Placement{Nodes: 2, GPUs: GPUsDivided})}, []string{"n0/0:0 1", "n1/0:0 1"}},
		{"several on each node", makeNodes(2, 4), []Definition{placed("a", Placement{Nodes: 2, InstancesPerNode: 2, GPUs: 1})}, []string{"n0/0:0", "n0/0:1", "n1/0:0", "n1/0:1"}},
		{"one per GPU", mixed, []Definition{placed("a", Placement{Nodes: 2, InstancesPerNode: PerGPU, GPUs: GPUsDivided})}, []string{"n0/0:0", "n0/0:1", "n1/0:0", "n1/0:1", "n1/0:2"}},
		{"a world of ranks", mixed, []Definition{placed("a", Placement{Nodes: 2, NodesPerInstance: NodesAll, RanksPerNode: PerGPU, GPUs: GPUsDivided})}, []string{"n0/0:0, n0/1:1, n1/0:0, n1/1:1, n1/2:2"}},
		{"instances of two nodes", makeNodes(4, 0), []Definition{placed("a", Placement{Nodes: 4, NodesPerInstance: 2, RanksPerNode: 2})}, []string{"n0/0:, n0/1:, n1/0:, n1/1:", "n2/0:, n2/1:, n3/0:, n3/1:"}},
		{"not bound", makeNodes(1, 4), []Definition{placed("a", Placement{Nodes: 1, GPUs: GPUsAll}), placed("b", Placement{Nodes: NodesAll, GPUs: GPUsAll})}, []string{"n0/0"}},
		{
			"what others have left", makeNodes(1, 8),
			[]Definition{
				placed("a", Placement{Nodes: 1, RanksPerNode: 2, GPUs: GPUsDivided}), placed("b", Placement{Nodes: NodesHead, InstancesPerNode: 3, GPUs: 1}),
				placed("c", Placement{Nodes: NodesHead, GPUs: 1}), placed("d", Placement{Nodes: NodesHead}),
			},
			[]string{"n0/0:4 5, n0/1:6 7"},
		},
		{
			"shared with another role", makeNodes(2, 4),
			[]Definition{
				placed("a", Placement{With: []string{"b"}, Nodes: NodesAll, InstancesPerNode: 4, GPUs: GPUsShared}), placed("b", Placement{Nodes: 2, InstancesPerNode: 2, GPUs: GPUsDivided}),
			},
			[]string{"n0/0:0 1", "n0/0:2 3", "n0/0:0 1", "n0/0:2 3", "n1/0:0 1", "n1/0:2 3", "n1/0:0 1", "n1/0:2 3"},
		},
		{
			"shared with the ranks of roles on different nodes", mixed,
			[]Definition{
				placed("a", Placement{With: []string{"b", "c"}, Nodes: NodesAll, RanksPerNode: PerGPU, GPUs: GPUsShared}), placed("b", Placement{Nodes: 1, RanksPerNode: PerGPU, GPUs: GPUsDivided}),
				placed("c", Placement{Nodes: 1, InstancesPerNode: PerGPU, GPUs: 1}),
			},
			[]string{"n0/0:0, n0/1:1", "n1/0:0, n1/1:1, n1/2:2"},
		},
		{
			"shared by the instances of a node", makeNodes(1, 4),
			[]Definition{placed("a", Placement{Nodes: 1, InstancesPerNode: 3, GPUs: GPUsShared}), placed("b", Placement{Nodes: NodesHead, GPUs: 1})},
			[]string{"n0/0:1 2 3", "n0/0:1 2 3", "n0/0:1 2 3"},
		},
		{"nothing left", makeNodes(1, 1), []Definition{placed("a", Placement{Nodes: 1, GPUs: GPUsDivided}), placed("b", Placement{Nodes: NodesHead, GPUs: 1})}, []string{"n0/0:"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := MakePlan(tc.defs, tc.nodes)
			if err != nil {
				t.Fatal(err)
			}
			if got := describeInstances(plan, plan.Roles[0]); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			again, err := MakePlan(tc.defs, tc.nodes)
			if diff := cmp.Diff(plan, again); err != nil || diff != "" {
				t.Errorf("another plan: %v %s", err, diff)
			}
		})
	}
}

func TestPlanRefusals(t *testing.T) {
	grouped := makeNodes(4, 0)
	grouped[3].Group = 1
	domains := makeNodes(10, 0)
	for at := range domains {
		domains[at].Domain = fmt.Sprint("d", at/5)
	}
	auto := func(count int) PortRequest { return PortRequest{Name: "http", Count: count} }
	fixed := PortRequest{Name: "http", Number: 8000, Count: 1}
	for _, tc := range []struct {
		name  string
		nodes []NodeFacts
		defs  []Definition
		want  string
	}{
		{
			"too many nodes", makeNodes(8, 0), []Definition{placed("trainer", Placement{Nodes: 6}), placed("judge", Placement{Nodes: 4})},
			"cannot place the roles: trainer needs 6 nodes, judge 4: 10 of 8",
		},
		{
			"nothing left for the rest", makeNodes(4, 0), []Definition{placed("trainer", Placement{Nodes: NodesRest}), placed("judge", Placement{Nodes: 4})},
			"cannot place the roles: trainer needs the rest, at least 1 node, judge 4: 5 of 4",
		},
		{
			"nothing left for the rest after others", makeNodes(4, 0), []Definition{placed("a", Placement{Nodes: 3}), placed("b", Placement{Nodes: 1}), placed("c", Placement{Nodes: NodesRest})},
			"cannot place the roles: a needs 3 nodes, b 1, c the rest, at least 1: 5 of 4",
		},
		{
			"too many nodes of a group", grouped, []Definition{placed("a", Placement{Nodes: 3}), placed("b", Placement{Nodes: 2, Group: 1})},
			"cannot place the roles: b needs 2 nodes: 2 of 1 in group 1",
		},
		{
			"too many nodes of the first group", grouped, []Definition{placed("a", Placement{Nodes: 4})},
			"cannot place the roles: a needs 4 nodes: 4 of 3 in group 0",
		},
		{
			"nothing left to share", makeNodes(1, 1), []Definition{placed("a", Placement{Nodes: 1, GPUs: 1}), placed("b", Placement{Nodes: NodesHead, GPUs: GPUsShared})},
			"cannot place role b: node n0 has 1 GPU, and other roles leave none to share: place it with a role whose GPUs it shares",
		},
		{
			"processes that cannot share", makeNodes(1, 2),
			[]Definition{placed("a", Placement{Nodes: 1, InstancesPerNode: 2, GPUs: 1}), placed("b", Placement{With: []string{"a"}, Nodes: NodesAll, InstancesPerNode: 3, GPUs: GPUsShared})},
			"cannot place role b: its 3 processes on node n0 cannot share the GPUs of 2 of a: give as many, or a multiple",
		},
		{"no such group", grouped, []Definition{placed("a", Placement{Nodes: NodesAll, Group: 7})}, "cannot place role a: there are no nodes in group 7"},
		{"no nodes", nil, []Definition{placed("a", Placement{Nodes: NodesHead})}, "cannot place role a: there are no nodes"},
		{
			"more than the other role", makeNodes(2, 0), []Definition{placed("a", Placement{Nodes: 1}), placed("b", Placement{With: []string{"a"}, Nodes: 2})},
			"cannot place role b: it needs 2 nodes of a, which has 1",
		},
		{
			"too few segments", domains, []Definition{placed("a", Placement{Nodes: 8, Segment: 4}), placed("b", Placement{Nodes: 2}), placed("c", Placement{Nodes: NodesAll})},
			"",
		},
		{
			"no whole segments", domains, []Definition{placed("b", Placement{Nodes: 2}), placed("a", Placement{Nodes: 8, Segment: 4})},
			`cannot place role a: it needs 8 nodes in segments of 4 within NVLink domains, and domain "d0" has 3 free, domain "d1" has 5 free: 4`,
		},
		{
			"no segment left", domains, []Definition{placed("a", Placement{Nodes: NodesRest, Segment: 6})},
			`cannot place role a: it needs at least 6 nodes in segments of 6 within NVLink domains, and domain "d0" has 5 free, domain "d1" has 5 free: 0`,
		},
		{
			"a rest that cannot be divided", makeNodes(7, 0), []Definition{placed("a", Placement{Nodes: NodesRest, NodesPerInstance: 2})},
			"cannot place role a: its 7 nodes cannot be divided into instances of 2 nodes",
		},
		{"no GPUs", makeNodes(1, 0), []Definition{placed("a", Placement{Nodes: 1, InstancesPerNode: PerGPU})}, "cannot place role a: per-node is gpu, and node n0 has no GPUs"},
		{
			"too many GPUs", makeNodes(2, 4),
			[]Definition{
				placed("proxy", Placement{Nodes: NodesHead}), placed("prefill", Placement{Nodes: 2, InstancesPerNode: 3, GPUs: 2}),
				placed("decode", Placement{With: []string{"prefill"}, Nodes: NodesAll, GPUs: 2}),
			},
			"cannot place the roles: node n0 has 4 GPUs: prefill needs 3 x 2, decode 1 x 2: 8 of 4",
		},
		{
			"an uneven division", makeNodes(1, 8), []Definition{placed("a", Placement{Nodes: 1, InstancesPerNode: 3, GPUs: GPUsDivided})},
			"cannot place the roles: node n0 has 8 GPUs: these cannot be divided among 3 processes (a 3): give gpus to each of these roles, 0 for none",
		},
		{
			"a process per GPU that another role has", makeNodes(1, 2), []Definition{placed("a", Placement{Nodes: 1, RanksPerNode: PerGPU, GPUs: GPUsDivided}), placed("b", Placement{Nodes: NodesHead, GPUs: 2})},
			"cannot place the roles: node n0 has 2 GPUs: b needs 1 x 2: the 0 that are left cannot be divided among 2 processes (a 2): give gpus to each of these roles, 0 for none",
		},
		{
			"a quorum above the number", makeNodes(2, 0), []Definition{{Name: "a", Placement: Placement{Nodes: 2}, Required: Requirement{Start: QuorumAll, Run: 3}}},
			"cannot place role a: it requires 3 instances, and has 2 on 2 nodes",
		},
		{
			"a port of two roles", makeNodes(1, 0), []Definition{withPorts(placed("a", Placement{Nodes: 1}), auto(1), fixed), withPorts(placed("b", Placement{Nodes: NodesHead}), fixed)},
			"cannot place the roles: port 8000 is that of a and of b on node n0: give auto to one of them",
		},
		{
			"a port of two processes", makeNodes(1, 2), []Definition{withPorts(placed("a", Placement{Nodes: 1, InstancesPerNode: PerGPU}), fixed)},
			"cannot place role a: port http is 8000 for more than one process on node n0: give auto",
		},
		{
			"too many ports", makeNodes(1, 0), []Definition{withPorts(placed("a", Placement{Nodes: 1, InstancesPerNode: 100}), auto(5)), withPorts(placed("b", Placement{Nodes: NodesHead}), auto(20))},
			"cannot place the roles: node n0 has 512 free ports for its processes: a needs 100 x 5, b 1 x 20: 520 of 512",
		},
		{"no ports", []NodeFacts{{Host: "n0"}}, []Definition{withPorts(placed("a", Placement{Nodes: 1}), auto(1))}, "cannot place the roles: node n0 has offered no ports"},
		{
			"too many processes", makeNodes(1, 0), []Definition{placed("a", Placement{Nodes: 1, InstancesPerNode: 4096, RanksPerNode: 4096})},
			"cannot place role a: node n0 would have more than 4096 processes",
		},
		{"a name twice", makeNodes(2, 0), []Definition{placed("a", Placement{Nodes: 1}), placed("a", Placement{Nodes: 1})}, "cannot place role a: another role has the same name"},
		{"an unknown role", makeNodes(2, 0), []Definition{placed("a", Placement{With: []string{"b"}, Nodes: NodesAll})}, "cannot place role a: it is with b, and there is no such role"},
		{"a circle", makeNodes(2, 0), []Definition{placed("a", Placement{With: []string{"a"}, Nodes: NodesAll})}, "cannot place role a: there are no nodes"},
		{"with a line", makeNodes(2, 0), []Definition{{Name: "a", Line: 3, Placement: Placement{With: []string{"b"}, Nodes: NodesAll}}}, "cannot place role a (line 3): it is with b, and there is no such role"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := MakePlan(tc.defs, tc.nodes)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestPlanPorts(t *testing.T) {
	fixed := func(number int) PortRequest { return PortRequest{Name: "http", Number: number, Count: 1} }
	auto := func(count int) PortRequest { return PortRequest{Name: "http", Count: count} }
	plan, err := MakePlan([]Definition{
		withPorts(placed("a", Placement{Nodes: 2, InstancesPerNode: 2}), auto(1), auto(3)),
		withPorts(placed("b", Placement{Nodes: NodesHead}), fixed(20006)), // within the block
		withPorts(placed("c", Placement{Nodes: NodesAll}), auto(2), fixed(9000)),
		withPorts(placed("d", Placement{Nodes: NodesAll})),
	}, makeNodes(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, role := range plan.Roles {
		for _, instance := range role.Instances {
			got = append(got, fmt.Sprintf("%s%d%v", role.Name, instance.Processes[0].Place, instance.Processes[0].Ports))
		}
	}
	want := []string{"a0[20000 20001]", "a0[20004 20007]", "a1[20000 20001]", "a1[20004 20005]", "b0[20006]", "c0[20010 9000]", "c1[20008 9000]", "d0[]", "d1[]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestPlanBusyPorts checks that no process gets a port of its node's block that another program has.
func TestPlanBusyPorts(t *testing.T) {
	nodes := makeNodes(1, 0)
	nodes[0].BusyPorts = []int{20000, 20002}
	def := withPorts(placed("a", Placement{Nodes: 1, InstancesPerNode: 2}), PortRequest{Name: "one", Count: 1}, PortRequest{Name: "two", Count: 2})
	plan, err := MakePlan([]Definition{def}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := plan.Roles[0].Instances[0].Processes[0].Ports, plan.Roles[0].Instances[1].Processes[0].Ports; !slices.Equal(first, []int{20001, 20003}) || !slices.Equal(second, []int{20005, 20006}) {
		t.Errorf("got %v and %v", first, second)
	}
	for port := 20008; port < 20000+BlockSize; port++ {
		nodes[0].BusyPorts = append(nodes[0].BusyPorts, port)
	}
	if _, err := MakePlan([]Definition{def}, nodes); err != nil {
		t.Errorf("the free ports are exactly enough: %v", err)
	}
	nodes[0].BusyPorts = append(nodes[0].BusyPorts, 20001)
	if _, err := MakePlan([]Definition{def}, nodes); err == nil || !strings.Contains(err.Error(), "node n0 has 5 free ports for its processes: a needs 2 x 3: 6 of 5") {
		t.Errorf("got %v", err)
	}
}

func TestFindInstance(t *testing.T) {
	plan, err := MakePlan([]Definition{placed("a", Placement{Nodes: 2}), placed("b", Placement{Nodes: 1, InstancesPerNode: 3})}, makeNodes(3, 0))
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range []string{"a.0", "a.1", "b.0", "b.1", "b.2"} {
		if role, instance := plan.FindInstance(number); role == nil || fmt.Sprintf("%s.%d", role.Name, instance.Index) != want {
			t.Errorf("got %v %v for %d, want %s", role, instance, number, want)
		}
	}
	for _, number := range []int{-1, 5} {
		if role, instance := plan.FindInstance(number); role != nil || instance != nil {
			t.Errorf("got %v %v for %d", role, instance, number)
		}
	}
	if role := plan.FindRole("b"); role != &plan.Roles[1] || plan.FindRole("c") != nil {
		t.Errorf("got %v", role)
	}
}
