package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks"
)

// TestTopologyHere verifies that the output for this machine matches pkg/ranks/affinity.
func TestTopologyHere(t *testing.T) {
	got := call(t, nil, "topology", "--json", "--ranks-per-node=core", "--bind=cpu")
	var l ranks.Layout
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || got.code != 0 || got.err != "" {
		t.Fatalf("%+v: %v", got, err)
	}
	var cpus []int
	for _, place := range l.Ranks {
		cpus = append(cpus, place.CPUs...)
	}
	slices.Sort(cpus)
	if l.Version != 2 || l.Host == "" || len(l.Cores) == 0 || !slices.Equal(cpus, l.CPUs) ||
		l.PerNode != "core" || l.Bind != "cpu" {
		t.Errorf("it is %s", got.out)
	}
	if got := call(t, nil, "topology"); got.code != 0 ||
		!strings.Contains(got.out, "allowed here: CPUs "+l.CPUs.String()) {
		t.Errorf("it is %+v", got)
	}
	got = call(t, nil, "topology", "--ranks-per-node=1")
	if got.code != 0 || !strings.Contains(got.out, "\n1 rank (--ranks-per-node=1 --bind=auto):\n") {
		t.Errorf("it is %+v", got)
	}
}
