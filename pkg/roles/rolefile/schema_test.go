package rolefile

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the generated file")

// TestSchemaFile verifies that the published schema is the one that the program prints.
func TestSchemaFile(t *testing.T) {
	const path = "../../../docs/roles.schema.json"
	if *update {
		if err := os.WriteFile(path, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || string(old) != string(Schema()) {
		t.Errorf("%s is stale: run go generate ./pkg/roles/rolefile (%v)", path, err)
	}
}

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

// validate returns the error of a document by the schema.
func validate(t *testing.T, text string) error {
	t.Helper()
	var document map[string]any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	// YAML has numbers as keys, which JSON has as texts.
	if spares, isMapping := document[SparesKey].(map[any]any); isMapping {
		named := make(map[string]any)
		for group, count := range spares {
			named[fmt.Sprint(group)] = count
		}
		document[SparesKey] = named
	}
	source, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("roles.json", source); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("roles.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(document)
}

// TestSchemaAccepts verifies that the schema accepts the files that Parse accepts, with every key.
func TestSchemaAccepts(t *testing.T) {
	files, err := filepath.Glob("testdata/topologies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	texts := map[string]string{"every key": everyKey, "all forms": `
log-dir: /scratch
spares: 3
roles:
- {name: a, nodes: head, per-node: gpu, command: c, require: any, restarts: {max: 2, window: 90s, backoff: 1s}, with: , env: {A: 1.5, B: true, C: }}
- {name: b, with: a, ranks-per-node: 3, command: c, require: {run: 2}, alive: "tcp:1", endpoints: leader, nodes-per-instance: 4}
`}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	for name, text := range texts {
		if err := validate(t, strings.ReplaceAll(text, ", with: ,", ",")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaRefuses verifies that Parse and the schema refuse the same values.
func TestSchemaRefuses(t *testing.T) {
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
		text := "roles:\n- {" + strings.Join(fields, ", ") + "}\n"
		_, err := parseText(t, text)
		if invalid := validate(t, text); err == nil || invalid == nil {
			t.Errorf("%s: Parse has %v, the schema %v", value, err, invalid)
		}
	}
	for _, text := range []string{"roles: {}\n", "roles: []\n", "roles: [a]\n", "roles: [{nodes: 1, command: c}]\n"} {
		_, err := parseText(t, text)
		if invalid := validate(t, text); err == nil || invalid == nil {
			t.Errorf("%s: Parse has %v, the schema %v", text, err, invalid)
		}
	}
}
