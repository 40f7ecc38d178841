package roles

import (
	"slices"
	"testing"
)

func TestCommandOf(t *testing.T) {
	for _, tc := range []struct {
		name             string
		program          Program
		leader, follower string
	}{
		{"one command", Program{Command: "a"}, "a", "a"},
		{"another one for followers", Program{Command: "a", FollowerCommand: "b"}, "a", "b"},
		{"a cluster", Program{Command: "a", Framework: "ray"}, "a", ""},
		{"a cluster alone", Program{Framework: "ray"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if leader, follower := tc.program.CommandOf(0),
				tc.program.CommandOf(1); leader != tc.leader || follower != tc.follower {
				t.Errorf("got %q and %q, want %q and %q", leader, follower, tc.leader, tc.follower)
			}
		})
	}
}

func TestSimpleCommand(t *testing.T) {
	for _, tc := range []struct {
		command string
		want    []string
	}{
		{"./app -n 3", []string{"./app", "-n", "3"}},
		{"  exec python  train.py --to '$HOME'", []string{"python", "train.py", "--to", "'$HOME'"}},
		{"exec python -m mpi4py.futures pool.py", []string{"python", "-m", "mpi4py.futures", "pool.py"}},
		{"python -m train", []string{"python", "-m", "train"}},
		{"python -m", []string{"python", "-m"}},
		{"$APP -m mpi4py", nil},
		{"A=1 ./app", nil},
		{"cd x && ./app", nil},
		{"./app >out", nil},
		{"./a\n./b", nil},
		{"exec", nil},
		{"", nil},
	} {
		program := Program{Command: tc.command}
		if got := program.SimpleCommand(); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.command, got, tc.want)
		}
	}
}

func TestClusterRoles(t *testing.T) {
	cluster := func(name, framework string, after ...string) Definition {
		return Definition{Name: name, After: after, Program: Program{Framework: framework}}
	}
	defs := []Definition{
		cluster("a", "ray"), cluster("b", "ray", "a"), cluster("c", "dask"),
		cluster("d", "", "a", "c", "e"), cluster("e", ""),
		{Name: "f", Placement: Placement{With: []string{"b", "a"}}, After: []string{"a"}},
	}
	for _, tc := range []struct {
		role      int
		framework string
		want      []string
	}{
		{0, "ray", nil}, {1, "ray", nil}, {3, "ray", []string{"a"}}, {3, "dask", []string{"c"}},
		{3, "", nil}, {4, "ray", nil}, {5, "ray", []string{"a", "b"}},
	} {
		if got := ClusterRoles(defs, defs[tc.role], tc.framework); !slices.Equal(got, tc.want) {
			t.Errorf("%s of %s: got %v, want %v", tc.framework, defs[tc.role].Name, got, tc.want)
		}
	}
}
