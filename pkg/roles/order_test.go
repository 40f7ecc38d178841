package roles

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// named returns a role that starts after others.
func named(name string, after ...string) Definition { return Definition{Name: name, After: after} }

// primary returns a role whose end ends the run.
func primary(name string, after ...string) Definition {
	return Definition{Name: name, After: after, Primary: true}
}

func TestLevels(t *testing.T) {
	for _, tc := range []struct {
		name       string
		defs       []Definition
		start, end [][]string
	}{
		{name: "no roles"},
		{
			name: "all at once", defs: []Definition{named("a"), primary("b")},
			start: [][]string{{"a", "b"}}, end: [][]string{{"b"}, {"a"}},
		},
		{
			name: "servers, router, clients",
			defs: []Definition{
				primary("bench", "nginx"), named("etcd"), named("nats"),
				named("prefill", "etcd", "nats"), named("decode", "etcd", "nats"),
				named("frontend", "prefill", "decode"), named("nginx", "frontend"), named("watch"),
			},
			start: [][]string{{"etcd", "nats", "watch"}, {"prefill", "decode"}, {"frontend"}, {"nginx"}, {"bench"}},
			end:   [][]string{{"bench"}, {"nginx", "watch"}, {"frontend"}, {"prefill", "decode"}, {"etcd", "nats"}},
		},
		{
			name:  "a service after a primary",
			defs:  []Definition{named("store"), primary("train", "store"), named("export", "train")},
			start: [][]string{{"store"}, {"train"}, {"export"}}, end: [][]string{{"train"}, {"export"}, {"store"}},
		},
		{
			name:  "an unknown role",
			defs:  []Definition{named("a", "none")},
			start: [][]string{{"a"}}, end: [][]string{{"a"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.start, StartLevels(tc.defs)); diff != "" {
				t.Errorf("start: %s", diff)
			}
			if diff := cmp.Diff(tc.end, EndLevels(tc.defs)); diff != "" {
				t.Errorf("end: %s", diff)
			}
		})
	}
}

// TestLevelsOfCircle shows that a circle neither hangs nor loses a role.
func TestLevelsOfCircle(t *testing.T) {
	defs := []Definition{named("a", "c"), named("b", "a"), named("c", "b"), named("d")}
	for _, levels := range [][][]string{StartLevels(defs), EndLevels(defs)} {
		all := slices.Sorted(slices.Values(slices.Concat(levels...)))
		if !slices.Equal(all, []string{"a", "b", "c", "d"}) {
			t.Errorf("got %v", levels)
		}
	}
}

func TestFindCycle(t *testing.T) {
	for _, tc := range []struct {
		name string
		defs []Definition
		want []string
	}{
		{"none", []Definition{named("a", "b"), named("b", "c", "none"), named("c")}, nil},
		{"one role", []Definition{named("a"), named("b", "b")}, []string{"b"}},
		{"beside a role without one", []Definition{named("a", "x", "b"), named("x"),
			named("b", "a")}, []string{"a", "b"}},
		{"three roles", []Definition{named("x", "a"), named("a", "b"), named("b", "c"),
			named("c", "a")}, []string{"a", "b", "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := FindCycle(tc.defs, func(d Definition) []string { return d.After }); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSparesSplit(t *testing.T) {
	nodes := []NodeFacts{{Group: 0}, {Group: 0}, {Group: 1}, {Group: 0}, {Group: 1}}
	used, spare := Spares{0: 1, 1: 3}.Split(nodes)
	if !slices.Equal(used, []int{0, 1}) || !slices.Equal(spare, []int{2, 3, 4}) {
		t.Errorf("got %v and %v", used, spare)
	}
}
