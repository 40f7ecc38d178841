package rolefile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// drawnValues are values of the keys for drawn files; most are accepted. NAME stands for a role.
var drawnValues = map[string][]string{
	"nodes":              {"1", "1", "2", "3", "4", "rest", "all", "head", "others"},
	"group":              {"0", "1", "1", "2"},
	"with":               {"NAME", "[NAME, NAME]"},
	"per-node":           {"1", "2", "3", "gpu", "gpu"},
	"nodes-per-instance": {"1", "2", "all"},
	"ranks-per-node":     {"1", "2", "gpu", "gpu", "numa"},
	"ranks":              {"7"},
	"on-rank-failure":    {"end", "continue"},
	"gpus":               {"0", "0", "1", "2", "4", "shared", "all", "divided"},
	"segment":            {"1", "2", "4"},
	"follower-command":   {"follow"},
	"shell":              {"bash"},
	"framework":          {"ray", "dask"},
	"env":                {"{A: 1}", "{RAY_ADDRESS: x}"},
	"step":               {"other"},
	"ports": {"{http: auto, rpc: {count: 3}}", "{http: 8000}", "{http: 64001}",
		"{a: {count: 100}, b: auto}"},
	"endpoints":    {"all", "leader"},
	"after":        {"NAME", "[NAME, NAME]", "[]"},
	"oneshot":      {"true", "false", "node"},
	"timeout":      {"1m"},
	"hang-timeout": {"1m"},
	"ready": {"\"tcp:$BRINGUPD_PORT\"", "{probe: \"tcp:1\", timeout: 1m}", "{timeout: 1m}",
		"{probe: \"tcp:1\", try: 5s}"},
	"alive":       {"{probe: \"tcp:1\"}", "{probe: \"tcp:1\", after: 10s, misses: 1}"},
	"restarts":    {"1", "200", "{max: 5, backoff: 1s..2s}"},
	"require":     {"all", "any", "0", "2", "{start: any, run: 0}"},
	"primary":     {"true", "false"},
	"grace":       {"1h"},
	"stop-signal": {"none"},
}

// drawFile returns a file of one to five roles with some keys each.
func drawFile(random *rand.Rand) string {
	count := 1 + random.IntN(5)
	name := func() string { return fmt.Sprint("r", random.IntN(count)) }
	keys := Keys()
	var b strings.Builder
	fmt.Fprintf(&b, "spares: %d\nroles:\n", random.IntN(2))
	for i := range count {
		fields := []string{fmt.Sprint("name: r", i), "command: c"}
		given := map[string]bool{"name": true, "command": true}
		add := func(key string) {
			if values := drawnValues[key]; len(values) > 0 && !given[key] {
				value := values[random.IntN(len(values))]
				for strings.Contains(value, "NAME") {
					value = strings.Replace(value, "NAME", name(), 1)
				}
				given[key] = true
				fields = append(fields, key+": "+value)
			}
		}
		if random.IntN(4) == 0 {
			add("with")
		} else {
			add("nodes")
		}
		for range random.IntN(4) {
			add(keys[random.IntN(len(keys))])
		}
		fmt.Fprintf(&b, "- {%s}\n", strings.Join(fields, ", "))
	}
	return b.String()
}

// TestDrawnFiles parses and places drawn files: each is refused with a line or with numbers, or its
// plan keeps all rules.
func TestDrawnFiles(t *testing.T) {
	const files = 3000
	allocations := [][]roles.NodeFacts{
		parseNodes("5x4"), parseNodes("3x8/0/d0 3x8/0/d1 2x8/0/d2 4x0/1"), parseNodes("3x4 4x2/1 1x0/2"),
	}
	random := rand.New(rand.NewPCG(1, 2))
	parsed, placed := 0, 0
	for range files {
		text := drawFile(random)
		file, err := parseFile([]byte(text))
		if err != nil {
			checkRefusal(t, err)
			continue
		}
		parsed++
		checkFormat(t, file)
		for _, nodes := range allocations {
			used, _ := file.Spares.Split(nodes)
			var team []roles.NodeFacts
			for _, place := range used {
				team = append(team, nodes[place])
			}
			plan, err := roles.MakePlan(roles.WithoutSetup(file.Roles), team)
			if err == nil {
				placed++
				checkPlan(t, plan)
				checkClaims(t, plan)
			} else if _, ours := errors.AsType[*roles.PlacementError](err); !ours {
				t.Errorf("got %v", err)
			}
		}
		if t.Failed() {
			t.Fatalf("the file is:\n%s", text)
		}
	}
	t.Logf("of %d files %d were accepted, and placed %d times", files, parsed, placed)
	if parsed < files/10 || placed < files/10 {
		t.Errorf("of %d files %d were accepted, and placed %d times", files, parsed, placed)
	}
}

// checkClaims fails the test if a plan gives a node to two roles that claim nodes, or if nodes of a
// group are left although a role claims the rest.
func checkClaims(t *testing.T, plan *roles.Plan) {
	t.Helper()
	owners := make(map[int]string)
	rests := make(map[int]bool)
	for _, role := range plan.Roles {
		place := role.Placement
		if !slices.IsSorted(role.Nodes) || len(role.Nodes) == 0 || len(role.Instances) == 0 {
			t.Errorf("%s has nodes %v and %d instances", role.Name, role.Nodes, len(role.Instances))
		}
		if !place.ClaimsNodes() {
			continue
		}
		if place.Nodes > 0 && len(role.Nodes) != place.Nodes {
			t.Errorf("%s has nodes %v, want %d", role.Name, role.Nodes, place.Nodes)
		}
		rests[place.Group] = rests[place.Group] || place.Nodes == roles.NodesRest && place.Segment <= 1
		domains := make(map[string]int)
		for _, at := range role.Nodes {
			if owners[at] != "" || plan.Nodes[at].Group != place.Group {
				t.Errorf("%s claims node %d of %q", role.Name, at, owners[at])
			}
			owners[at] = role.Name
			domains[plan.Nodes[at].Domain]++
		}
		for domain, count := range domains {
			if count%max(1, place.Segment) != 0 {
				t.Errorf("%s has %d nodes of domain %q in segments of %d", role.Name, count, domain, place.Segment)
			}
		}
	}
	for at, node := range plan.Nodes {
		if rests[node.Group] && owners[at] == "" {
			t.Errorf("node %d of group %d is left", at, node.Group)
		}
	}
}
