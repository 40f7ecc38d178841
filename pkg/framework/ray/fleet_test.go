package ray

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/framework"
)

func TestRayFleet(t *testing.T) {
	node := func(rank int, host string) expectedNode {
		return expectedNode{TeamIndex: rank, Host: host, Name: framework.NodeName("job.0", rank),
			MinResources: map[string]float64{"GPU": 8}}
	}
	alive := func(name string, gpus float64) tableEntry {
		return tableEntry{Name: name, Alive: true, Host: "h", Address: "192.0.2.9",
			Resources: map[string]float64{"GPU": gpus}}
	}
	members := []expectedNode{node(0, "n0"), node(1, "n1"), node(2, "n2")}
	full := []tableEntry{alive("job.0-0", 8), alive("job.0-1", 8), alive("job.0-2", 8)}
	many := make([]expectedNode, 20)
	for rank := range many {
		many[rank] = node(rank, "n")
	}
	tests := []struct {
		name    string
		members []expectedNode
		nodes   []tableEntry
		want    string
	}{
		{"all there", members, full, ""},
		{"more than wanted", members, []tableEntry{alive("job.0-0", 8), alive("job.0-1", 9), alive("job.0-2", 8)}, ""},
		{"nobody yet", members[:1], nil, "node 0 (n0) is not in Ray's node table"},
		{"one missing", members, full[:2], "node 2 (n2) is not in Ray's node table"},
		{
			"one dead", members, []tableEntry{full[0], {Name: "job.0-1", DeathReason: "preempted"}, full[2]},
			"node 1 (n1) is DEAD in Ray's node table: preempted",
		},
		{
			"one dead without a reason", members, []tableEntry{full[0], {Name: "job.0-1"}, full[2]},
			"node 1 (n1) is DEAD in Ray's node table: no reason given",
		},
		{"one dead and back", members, append([]tableEntry{{Name: "job.0-1"}}, full...), ""},
		{
			"one there twice", members, append([]tableEntry{alive("job.0-1", 8)}, full...),
			"node 1 (n1) is 2 times in Ray's node table: Ray has not yet detected the death of an earlier start",
		},
		{"a GPU short", members, []tableEntry{full[0], full[1], alive("job.0-2", 7)},
			"node 2 (n2) has GPU 7, expected 8"},
		{
			"no GPU at all", members[:1], []tableEntry{{Name: "job.0-0", Alive: true}},
			"node 0 (n0) has GPU 0, expected 8",
		},
		{"a stranger", members, append([]tableEntry{alive("other", 8)}, full...),
			"other (h, 192.0.2.9) is not a node of this job"},
		{"a stranger without a name", members, append([]tableEntry{alive("", 8)}, full...),
			"an unnamed node (h, 192.0.2.9) is not a node of this job"},
		{"a dead stranger", members, append([]tableEntry{{Name: "other"}}, full...), ""},
		{
			"several at once", members, []tableEntry{full[1], {Name: "job.0-2", DeathReason: "lost"}},
			"node 0 (n0) is not in Ray's node table; node 2 (n2) is DEAD in Ray's node table: lost",
		},
		{
			"too many to name", many[:10], nil,
			"node 0 (n) is not in Ray's node table; node 1 (n) is not in Ray's node table; node " +
				"2 (n) is not in Ray's node table; " +
				"node 3 (n) is not in Ray's node table; node 4 (n) is not in Ray's node table; " +
				"node 5 (n) is not in Ray's node table; " +
				"node 6 (n) is not in Ray's node table; node 7 (n) is not in Ray's node table; and 2 more",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := compareMembers(tc.members, tc.nodes); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
