package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/internal/textutil"
)

// bySeparateNames names nodes as launcher.CompactNodeList might.
func bySeparateNames(nodes []int) string {
	var names []string
	for _, nodeIndex := range nodes {
		names = append(names, fmt.Sprint("n", nodeIndex))
	}
	return strings.Join(names, "+")
}

// told returns a group of nodes with these traits: "x.cuda=12.8".
func told(nodes []int, traits ...string) NodeGroup {
	g := NodeGroup{NodeIndices: nodes}
	for _, t := range traits {
		id, text, _ := strings.Cut(t, "=")
		g.Report.Attributes = append(g.Report.Attributes, Attribute{id, text})
	}
	return g
}

func upTo(from, to int) (nodes []int) {
	for nodeIndex := from; nodeIndex <= to; nodeIndex++ {
		nodes = append(nodes, nodeIndex)
	}
	return nodes
}

func TestCompare(t *testing.T) {
	h100, a100 := "x.gpu_model=H100", "x.gpu_model=A100"
	for _, tc := range []struct {
		name   string
		groups []NodeGroup
		want   []string // "VERDICT id odd nodes: observed; expected …"
	}{
		{"no nodes", nil, nil},
		{"nothing told", []NodeGroup{{NodeIndices: upTo(0, 3)}}, nil},
		{"one node", []NodeGroup{told([]int{0}, h100)}, nil},
		{"all the same", []NodeGroup{told(upTo(0, 3), h100, "x.cuda=12.8")}, nil},
		{"the same in two groups", []NodeGroup{told([]int{0}, h100, "x.later=a"),
			told([]int{1}, h100, "x.later=b")}, nil},
		{"one of four", []NodeGroup{told([]int{0, 1, 3}, h100), told([]int{2}, a100)},
			[]string{"FAIL x.gpu_model [2]: GPU model: A100 on n2 (node 2); expected H100, as on 3 other nodes"}},
		{"the head is the odd one", []NodeGroup{told([]int{0}, a100), told([]int{1, 2}, h100)},
			[]string{"FAIL x.gpu_model [0]: GPU model: A100 on n0 (node 0); expected H100, as on 2 other nodes"}},
		{"half and half", []NodeGroup{told([]int{2, 0}, h100), told([]int{1, 3}, a100)},
			[]string{"FAIL x.gpu_model []: GPU model: H100 on n0+n2 (nodes 0,2); A100 on n1+n3 " +
				"(nodes 1,3); expected the same on all nodes"}},
		{"most, and two others", []NodeGroup{told([]int{4}, "x.driver=1"),
			told(upTo(0, 2), "x.driver=2"), told([]int{3, 5}, "x.driver=3")},
			[]string{"WARN x.driver [3 4 5]: NVIDIA driver: 3 on n3+n5 (nodes 3,5); 1 on n4 " +
				"(node 4); expected 2, as on 3 other nodes"}},
		{"CUDA major version", []NodeGroup{told([]int{0, 1}, "x.cuda=12.8"),
			told([]int{2}, "x.cuda=12.2"), told([]int{3}, "x.cuda=13.0")},
			[]string{"FAIL x.cuda [3]: CUDA major version: 13 on n3 (node 3); expected 12, as on 3 other nodes"}},
		{"a node that can't tell", []NodeGroup{told([]int{0, 1}, h100, "x.kernel=6"),
			told([]int{2}, "x.kernel=6")}, nil},
		{"a trait of another version", []NodeGroup{told([]int{0}, "x.later=1"), told([]int{1}, "x.later=2")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, d := range CompareNodes(tc.groups, bySeparateNames) {
				if strict := d.Verdict == Warn && d.ID != AttrBringupd; d.Strict != strict {
					t.Errorf("%s is strict: %t", d.ID, d.Strict)
				}
				got = append(got, fmt.Sprintf("%s %s %v: %s; expected %s", d.Verdict, d.ID,
					d.NodeIndices, d.Observed, d.Expected))
				if d.Hint == "" || d.Class == "" {
					t.Errorf("%s has no hint, or no class", d.ID)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// TestCompareStaysShort verifies that the text stays short, however many nodes and traits differ.
func TestCompareStaysShort(t *testing.T) {
	var groups []NodeGroup
	for nodeIndex := range 4096 {
		groups = append(groups, told([]int{nodeIndex},
			fmt.Sprintf("x.kernel=%d\x1b%s", nodeIndex%64, strings.Repeat("x", 1000)),
			"x.driver="+fmt.Sprint(nodeIndex%2)))
	}
	for _, d := range CompareNodes(groups, bySeparateNames) {
		if n := len([]rune(d.Observed)); n > 1000 || strings.ContainsRune(d.Observed, '\x1b') {
			t.Errorf("%s says %d characters: %s", d.ID, n, d.Observed)
		}
	}
	for _, part := range []string{"n14+n16+n18+n20+n22+n24+n26+n28+n30 (nodes " +
		"0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30) and 2032 more; 1 on n1+"} {
		if got := CompareNodes(groups, bySeparateNames)[0].Observed; !strings.Contains(got, part) {
			t.Errorf("%q is missing in %q", part, got)
		}
	}
}

func TestFingerprint(t *testing.T) {
	const want = 174499654448944
	a, b := Attribute{"x.cuda", "12.8"}, Attribute{"x.driver", "570"}
	for name, tc := range map[string]struct {
		of   []Attribute
		same bool
	}{
		"another order": {[]Attribute{b, a}, true}, "twice": {[]Attribute{a, b, a}, true},
		"fewer": {[]Attribute{a}, false}, "another id": {[]Attribute{a, {"x.drive", "r570"}}, false},
		"one that looks like two": {[]Attribute{{"x.cuda", "12.8\"\n\"x.driver\"=\"570"}}, false},
	} {
		// The value must not change: daemons of different versions may run in one job.
		got := Report{Attributes: tc.of}.KindHash()
		if (got == want) != tc.same || got <= 0 || got >= 1<<48 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestFormatNodes verifies that the indices follow the names of the nodes, also of hosts whose names
// begin with "node".
func TestFormatNodes(t *testing.T) {
	indices := func(nodes []int) string { return textutil.FormatIndices("node", nodes) }
	for want, hosts := range map[string]func([]int) string{
		"node[3-4] (nodes 3-4)": func([]int) string { return "node[3-4]" },
		"n[3-4] (nodes 3-4)":    func([]int) string { return "n[3-4]" },
		"nodes 3-4":             indices,
	} {
		if got := formatNodes([]int{3, 4}, hosts); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
