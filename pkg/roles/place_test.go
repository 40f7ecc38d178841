package roles

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// makeNodes returns nodes n0, n1, … with GPUs and a block of ports.
func makeNodes(count, gpus int) (nodes []NodeFacts) {
	for i := range count {
		nodes = append(nodes, NodeFacts{Host: fmt.Sprint("n", i), Address: fmt.Sprint("10.0.0.", i),
			GPUs: gpus, FirstPort: 20000})
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

// TestPlanUnbound verifies that the processes of the short forms see all GPUs of their nodes.
func TestPlanUnbound(t *testing.T) {
	place := Placement{Nodes: NodesAll, GPUs: GPUsAll}
	plan, err := MakePlan([]Definition{placed("a", place), placed("b", place)}, makeNodes(1, 4))
	if err != nil || plan.Roles[0].Instances[0].Processes[0].GPUs != nil {
		t.Errorf("got %+v, %v", plan, err)
	}
}

// TestPlanRefusals has definitions that no role file has. TestPlans of package rolefile has the others.
func TestPlanRefusals(t *testing.T) {
	one, withOther := Placement{Nodes: 1}, Placement{With: []string{"b"}, Nodes: NodesAll}
	unknown := placed("a", withOther)
	unknown.Line = 3
	port := PortRequest{Name: "http", Count: 1}
	for want, defs := range map[string][]Definition{
		"role a: another role has the same name":                   {placed("a", one), placed("a", one)},
		"role a: it is with b, and there is no such role":          {placed("a", withOther)},
		"role a (line 3): it is with b, and there is no such role": {unknown},
		"role b: there are no nodes":                               {placed("b", withOther)},
		"the roles: node n0 has offered no ports":                  {withPorts(placed("a", one), port)},
	} {
		if _, err := MakePlan(defs, []NodeFacts{{Host: "n0"}}); err == nil || err.Error() != "cannot place "+want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestPlanTotals verifies that a total of ranks fills the nodes in their order.
func TestPlanTotals(t *testing.T) {
	world := func(perNode, total int, oversubscribe bool) Definition {
		def := placed("a", Placement{Nodes: NodesAll, NodesPerInstance: NodesAll, RanksPerNode: perNode,
			Ranks: total, Oversubscribe: oversubscribe, HasRanks: true, GPUs: GPUsAll})
		def.BuiltIn = BuiltInRanks
		return def
	}
	ofRole := func(perNode, total, gpus int) Definition {
		def := world(perNode, total, false)
		def.BuiltIn, def.Placement.GPUs = "", gpus
		return def
	}
	for _, tc := range []struct {
		name  string
		def   Definition
		slots []int // which are NUMA nodes, GPUs, and twice as many cores, too
		want  []int // number of ranks of each node
		err   string
	}{
		{"a number per node", world(2, 0, false), []int{0, 0}, []int{2, 2}, ""},
		{"as many as there is room for", world(PerSlot, 0, false), []int{1, 3}, []int{1, 3}, ""},
		{"a total", world(PerSlot, 3, false), []int{2, 2, 2}, []int{2, 1, 0}, ""},
		{"more than there is room for", world(PerSlot, 5, false), []int{2, 2}, nil,
			"cannot place role a: it has 5 ranks, and its 2 nodes can have 4"},
		{"more, shared", world(PerSlot, 5, true), []int{2, 2}, []int{3, 2}, ""},
		{"both, and they agree", world(2, 4, false), []int{0, 0}, []int{2, 2}, ""},
		{"both, and the last node has fewer", world(2, 3, false), []int{0, 0}, []int{2, 1}, ""},
		{"per NUMA node", ofRole(PerNUMA, 0, 0), []int{2, 1}, []int{2, 1}, ""},
		{"per core", ofRole(PerCore, 0, 0), []int{2, 1}, []int{4, 2}, ""},
		{"per core, unknown", ofRole(PerCore, 0, 0), []int{0}, []int{1}, ""},
		{"a total of a role", ofRole(PerSlot, 3, GPUsDivided), []int{2, 1}, []int{2, 1}, ""},
		{"a total of a role without GPUs", ofRole(PerSlot, 3, 0), []int{1, 1}, []int{2, 1}, ""},
		{"a total of a role that is too high", ofRole(2, 5, 0), []int{0, 0}, nil,
			"cannot place role a: it has 5 ranks, and its 2 nodes can have 4"},
	} {
		nodes := makeNodes(len(tc.slots), 0)
		for i, slots := range tc.slots {
			nodes[i].Slots, nodes[i].NUMAs, nodes[i].GPUs, nodes[i].Cores = slots, slots, slots, 2*slots
		}
		plan, err := MakePlan([]Definition{tc.def}, nodes)
		if tc.err != "" || err != nil {
			if fmt.Sprint(err) != tc.err {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		got := make([]int, len(nodes))
		for i, p := range plan.Roles[0].Instances[0].Processes {
			if p.Rank != i || p.Local != got[p.Place] {
				t.Errorf("%s: rank %d is %+v", tc.name, i, p)
			}
			got[p.Place]++
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: the nodes have %d ranks, not %d", tc.name, got, tc.want)
		}
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
			got = append(got, fmt.Sprintf("%s%d%v", role.Name, instance.Processes[0].Place,
				instance.Processes[0].Ports))
		}
	}
	want := []string{"a0[20000 20001]", "a0[20004 20007]", "a1[20000 20001]", "a1[20004 20005]",
		"b0[20006]", "c0[20010 9000]", "c1[20008 9000]", "d0[]", "d1[]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestPlanBusyPorts checks that no process gets a port of its node's block that another program has.
func TestPlanBusyPorts(t *testing.T) {
	nodes := makeNodes(1, 0)
	nodes[0].BusyPorts = []int{20000, 20002}
	def := withPorts(placed("a", Placement{Nodes: 1, InstancesPerNode: 2}),
		PortRequest{Name: "one", Count: 1}, PortRequest{Name: "two", Count: 2})
	plan, err := MakePlan([]Definition{def}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := plan.Roles[0].Instances[0].Processes[0].Ports,
		plan.Roles[0].Instances[1].Processes[0].Ports; !slices.Equal(first, []int{20001, 20003}) ||
		!slices.Equal(second, []int{20005, 20006}) {
		t.Errorf("got %v and %v", first, second)
	}
	for port := 20008; port < 20000+BlockSize; port++ {
		nodes[0].BusyPorts = append(nodes[0].BusyPorts, port)
	}
	if _, err := MakePlan([]Definition{def}, nodes); err != nil {
		t.Errorf("the free ports are exactly enough: %v", err)
	}
	nodes[0].BusyPorts = append(nodes[0].BusyPorts, 20001)
	if _, err := MakePlan([]Definition{def}, nodes); err == nil ||
		!strings.Contains(err.Error(), "node n0 has 5 free ports for its processes: a needs 2 x 3: 6 of 5") {
		t.Errorf("got %v", err)
	}
}

func TestFindInstance(t *testing.T) {
	plan, err := MakePlan([]Definition{placed("a", Placement{Nodes: 2}),
		placed("b", Placement{Nodes: 1, InstancesPerNode: 3})}, makeNodes(3, 0))
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range []string{"a.0", "a.1", "b.0", "b.1", "b.2"} {
		if role, instance := plan.FindInstance(number); role == nil ||
			fmt.Sprintf("%s.%d", role.Name, instance.Index) != want {
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
