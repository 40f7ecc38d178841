package roles

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	nodes := makeNodes(4, 0)
	nodes[3].Address = "fd00::3"
	engine := withPorts(placed("my-engine", Placement{Nodes: 4, NodesPerInstance: 2,
		RanksPerNode: 2}), PortRequest{Name: "http", Count: 1}, PortRequest{Name: "kv-events", Count: 2})
	all := withPorts(placed("all", Placement{Nodes: NodesAll, NodesPerInstance: NodesAll}),
		PortRequest{Name: "rpc", Number: 9000, Count: 1})
	all.Program.AllEndpoints = true
	plan, err := MakePlan([]Definition{engine, all, placed("none", Placement{Nodes: NodesHead})}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]string{
		"BRINGUPD_ROLE_MY_ENGINE_HOSTS":     "n0,n2",
		"BRINGUPD_ROLE_MY_ENGINE_ENDPOINTS": "10.0.0.0:20000,10.0.0.2:20000",
		"BRINGUPD_ROLE_ALL_HOSTS":           "n0,n1,n2,n3",
		"BRINGUPD_ROLE_ALL_ENDPOINTS":       "10.0.0.0:9000,10.0.0.1:9000,10.0.0.2:9000,[fd00::3]:9000",
		"BRINGUPD_ROLE_NONE_HOSTS":          "n0",
		"BRINGUPD_ROLE_NONE_ENDPOINTS":      "10.0.0.0",
	}
	if diff := cmp.Diff(lists, plan.ListVariables()); diff != "" {
		t.Error(diff)
	}
	want := map[string]string{
		"BRINGUPD_ROLE": "my-engine", "BRINGUPD_ROLE_INDEX": "1", "BRINGUPD_ROLE_COUNT": "2",
		"BRINGUPD_INSTANCE_RANK": "3", "BRINGUPD_INSTANCE_SIZE": "4", "BRINGUPD_INSTANCE_ADDRESS": "10.0.0.2",
		"BRINGUPD_INSTANCE_PORT": "20000", "BRINGUPD_INSTANCE_PORT_HTTP": "20000",
		"BRINGUPD_INSTANCE_PORT_KV_EVENTS": "20001",
		"BRINGUPD_PORT":                    "20003", "BRINGUPD_PORT_HTTP": "20003", "BRINGUPD_PORT_KV_EVENTS": "20004",
	}
	maps.Copy(want, lists)
	if diff := cmp.Diff(want, plan.Variables("my-engine", 1, 3)); diff != "" {
		t.Error(diff)
	}
	if first := plan.Variables("none", 0, 0); first["BRINGUPD_ROLE"] != "none" {
		t.Errorf("got %v", first)
	}
	for _, wrong := range []map[string]string{plan.Variables("x", 0, 0),
		plan.Variables("all", 1, 0), plan.Variables("all", 0, 4), plan.Variables("all", -1, -1)} {
		if wrong != nil {
			t.Errorf("got %v", wrong)
		}
	}
}

// TestLongListsAreLeftOut plans 10,000 endpoints, whose list no process could get.
func TestLongListsAreLeftOut(t *testing.T) {
	nodes := makeNodes(2500, 0)
	for at := range nodes {
		nodes[at].Address = fmt.Sprintf("10.1.%d.%d", at/250, at%250)
	}
	plan, err := MakePlan([]Definition{withPorts(placed("many",
		Placement{Nodes: NodesRest, InstancesPerNode: 4}), PortRequest{Name: "http", Count: 1}),
		placed("few", Placement{Nodes: NodesHead})}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	vars := plan.Variables("many", 9999, 0)
	for name := range vars {
		if strings.HasPrefix(name, "BRINGUPD_ROLE_MANY_E") || len(vars[name]) > 64<<10 {
			t.Errorf("got %s of %d bytes", name, len(vars[name]))
		}
	}
	for length, isListed := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		plan.Nodes[0].Host = strings.Repeat("n", length)
		if _, exists := plan.ListVariables()["BRINGUPD_ROLE_FEW_HOSTS"]; exists != isListed {
			t.Errorf("a list of %d bytes exists: %t", length, exists)
		}
	}
	if vars["BRINGUPD_ROLE_FEW_HOSTS"] != "n0" || vars["BRINGUPD_ROLE_COUNT"] != "10000" {
		t.Errorf("got %v", vars)
	}
}

func TestExpandProbe(t *testing.T) {
	vars := map[string]string{"BRINGUPD_PORT": "80", "BRINGUPD_PORT_KV": "$BRINGUPD_PORT",
		"BRINGUPD_PORT_KEY": "81", "BRINGUPD_ROLE_A_KEY": "secret", "HOME": "/root", "APP": "a"}
	for _, tc := range []struct{ text, want, message string }{
		{text: "", want: ""},
		{text: "http://localhost:$BRINGUPD_PORT/health", want: "http://localhost:80/health"},
		{text: "a${BRINGUPD_PORT}0$BRINGUPD_PORT", want: "a80080"},
		{text: "$HOME ${HOME} $(id) $$ $bringupd_port", want: "$HOME ${HOME} $(id) $$ $bringupd_port"},
		{text: "$BRINGUPD_PORT_KV", want: "$BRINGUPD_PORT"}, // once
		{text: "tcp:$BRINGUPD_PORTS", message: `cannot replace $BRINGUPD_PORTS in "tcp:$BRINGUPD_PORTS": ` +
			"the variables are BRINGUPD_PORT, BRINGUPD_PORT_KEY, BRINGUPD_PORT_KV"},
		{text: "exec:sh -c '$BRINGUPD_ROLE_A_KEY $BRINGUPD_PORT_KEY'", want: "exec:sh -c '${BRINGUPD_ROLE_A_KEY} 81'"},
		{text: "http://a:$BRINGUPD_PORT/?key=$BRINGUPD_ROLE_A_KEY",
			message: "cannot put a key into " +
				`"http://a:$BRINGUPD_PORT/?key=$BRINGUPD_ROLE_A_KEY", which is shown: use exec:`},
		{text: "exec:sh -c '$BRINGUPD_ROLE_B_KEY'", message: "cannot replace $BRINGUPD_ROLE_B_KEY in"},
		{text: "$BRINGUPD_ ${BRINGUPD_X}", message: "cannot replace $BRINGUPD_ and ${BRINGUPD_X} in"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := ExpandProbe(tc.text, vars)
			if value, _ := ExpandValue(tc.text, vars); tc.message == "" &&
				value != strings.ReplaceAll(got, "${BRINGUPD_ROLE_A_KEY}", "secret") {
				t.Errorf("as a value it is %q, and as a probe %q", value, got)
			}
			if tc.message != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
					t.Errorf("got %q, %v; want %s", got, err, tc.message)
				}
			} else if err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
