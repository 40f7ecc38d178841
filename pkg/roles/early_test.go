package roles_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestStartRuleOf checks what starts each role of a run, and whether the nodes must agree to a plan
// that was made before they have joined.
func TestStartRuleOf(t *testing.T) {
	const withPlan, byOrder, atGate = roles.StartWithPlan, roles.StartByOrder, roles.StartAtGate
	role := func(name string, change func(*roles.Definition), after ...string) roles.Definition {
		def := roles.Definition{Name: name, After: after,
			Placement: roles.Placement{Nodes: roles.NodesAll, InstancesPerNode: 1, NodesPerInstance: 1,
				RanksPerNode: 1}}
		change(&def)
		return def
	}
	plain := func(*roles.Definition) {}
	primary := func(d *roles.Definition) { d.Primary = true }
	world := func(d *roles.Definition) {
		d.Primary, d.Placement.HasRanks, d.Placement.NodesPerInstance = true, true, roles.NodesAll
	}
	builtInWorld := func(d *roles.Definition) {
		world(d)
		d.BuiltIn, d.Placement.GPUs = roles.BuiltInRanks, roles.GPUsAll
	}
	builtIn := func(kind roles.BuiltIn) func(*roles.Definition) {
		return func(d *roles.Definition) { d.BuiltIn, d.Placement.GPUs = kind, roles.GPUsAll }
	}
	serving := func(d *roles.Definition) { d.Program.Ports = []roles.PortRequest{{Name: "http", Count: 1}} }
	bound := func(d *roles.Definition) { d.Placement.GPUs = 2 }
	for _, tc := range []struct {
		name           string
		defs           []roles.Definition
		agree          bool
		want, wantLate []roles.StartRule
	}{
		{name: "a driver", defs: []roles.Definition{role("main", primary)},
			want: []roles.StartRule{atGate}, wantLate: []roles.StartRule{atGate}},
		{name: "ranks", defs: []roles.Definition{role("main", world)}, agree: true,
			want: []roles.StartRule{atGate}, wantLate: []roles.StartRule{atGate}},
		{name: "ranks of flags, which meet on the head's node", defs: []roles.Definition{role("ranks", builtInWorld)},
			want: []roles.StartRule{atGate}, wantLate: []roles.StartRule{atGate}},
		{name: "head, workers and driver",
			defs: []roles.Definition{role("head", plain), role("worker", plain, "head"),
				role("main", primary, "head", "worker")},
			want:     []roles.StartRule{withPlan, byOrder, atGate},
			wantLate: []roles.StartRule{withPlan, byOrder, atGate}},
		{name: "a server with a port", agree: true,
			defs:     []roles.Definition{role("judge", serving), role("main", primary, "judge")},
			want:     []roles.StartRule{byOrder, atGate},
			wantLate: []roles.StartRule{withPlan, atGate}},
		{name: "a role with GPUs", defs: []roles.Definition{role("judge", bound)}, agree: true,
			want: []roles.StartRule{byOrder}, wantLate: []roles.StartRule{withPlan}},
		{name: "a primary role before another one",
			defs: []roles.Definition{role("first", primary), role("second", primary, "first"),
				role("other", plain)},
			want:     []roles.StartRule{withPlan, byOrder, withPlan},
			wantLate: []roles.StartRule{withPlan, byOrder, withPlan}},
		{name: "built-in services",
			defs: []roles.Definition{role("main", primary, "head", "worker"), role("head", builtIn(roles.BuiltInHead)),
				role("worker", builtIn(roles.BuiltInWorker), "head")},
			want:     []roles.StartRule{atGate, withPlan, withPlan},
			wantLate: []roles.StartRule{atGate, withPlan, withPlan}},
	} {
		if got := roles.NeedsAgreement(tc.defs); got != tc.agree {
			t.Errorf("%s: the nodes must agree: %t", tc.name, got)
		}
		for i := range tc.defs {
			if got := roles.StartRuleOf(tc.defs, &tc.defs[i], true); got != tc.want[i] {
				t.Errorf("%s: role %s starts by %d with an early plan", tc.name, tc.defs[i].Name, got)
			}
			if got := roles.StartRuleOf(tc.defs, &tc.defs[i], false); got != tc.wantLate[i] {
				t.Errorf("%s: role %s starts by %d", tc.name, tc.defs[i].Name, got)
			}
		}
	}
}

// TestNeedsPorts checks that roles whose ports are fixed need no block of ports, and that ranks, which
// meet at a port, do.
func TestNeedsPorts(t *testing.T) {
	withPort := func(number int) roles.Definition {
		port := roles.PortRequest{Name: "http", Number: number, Count: 1}
		return roles.Definition{Program: roles.Program{Ports: []roles.PortRequest{port}}}
	}
	ranks := roles.Definition{Placement: roles.Placement{HasRanks: true}}
	for _, tc := range []struct {
		defs []roles.Definition
		want bool
	}{
		{[]roles.Definition{withPort(7000)}, false},
		{[]roles.Definition{withPort(7000), ranks}, true},
		{[]roles.Definition{withPort(0), withPort(7000)}, true},
	} {
		if got := roles.NeedsPorts(tc.defs); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.defs, got, tc.want)
		}
	}
}
