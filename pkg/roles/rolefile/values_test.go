package rolefile

import (
	"os"
	"strings"
	"testing"
)

// TestPage verifies that the page for users lists every key.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Keys(), SparesKey) {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("docs/roles.md does not list the key %s", name)
		}
	}
}

// TestParseRefusesValues verifies that each key refuses values that it cannot have.
func TestParseRefusesValues(t *testing.T) {
	for _, value := range []string{
		"gpu: 2", "name: A", "nodes: 0", "nodes: many", "group: -1", "with: [A]", "with: []", "per-node: cpu", "nodes-per-instance: rest", "ranks-per-node: 0",
		"gpus: all", "gpus: -1", "segment: 0", "command: ''", "command: [c]", "follower-command: {a: b}", "framework: spark", "env: [A]", "env: {A: [1]}", "step: A",
		"ports: {}", "ports: 80", "ports: {http: 70000}", "ports: {http: {count: 513}}", "ports: {http: {}}", "ports: {HTTP: 1}", "ports: {http: {count: 2, number: 1}}",
		"endpoints: one", "after: {a: b}", "oneshot: 1", "timeout: 10", "hang-timeout: 10", "ready: ''", "ready: {timeout: 1h}", "ready: {probe: 'tcp:1', timeout: 30}", "ready: {probe: 'tcp:1', after: 30s}",
		"alive: {probe: 'tcp:1', timeout: 30s}", "restarts: -1", "restarts: {window: 1m}", "restarts: {max: 1, windows: 1m}", "restarts: {max: 1, window: 1}",
		"require: some", "require: {gate: 1}", "require: {run: most}", "primary: maybe", "grace: 10", "grace: -1s", "stop-signal: SIGTERM",
	} {
		key, _, _ := strings.Cut(value, ":")
		fields := []string{value}
		for _, field := range []string{"name: a", "nodes: 1", "command: c"} {
			if !strings.HasPrefix(field, key+":") {
				fields = append(fields, field)
			}
		}
		if _, err := parseText(t, "roles:\n- {"+strings.Join(fields, ", ")+"}\n"); err == nil {
			t.Errorf("%s is accepted", value)
		}
	}
	for _, text := range []string{
		"roles: {}\n", "roles: []\n", "roles: [a]\n", "roles: [{nodes: 1, command: c}]\n",
	} {
		if _, err := parseText(t, text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
