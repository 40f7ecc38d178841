package rolefile

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// schemaErrors returns the places at which a value does not match a schema. It knows the keywords
// that Schema uses.
func schemaErrors(at string, s map[string]any, value any) (errs []string) {
	wrong := func(format string, args ...any) {
		errs = append(errs, at+": "+fmt.Sprintf(format, args...))
	}
	for keyword, rule := range s {
		switch keyword {
		case "$schema", "title", "description", "properties":
		case "type":
			types, isList := rule.([]any)
			if !isList {
				types = []any{rule}
			}
			if !slices.ContainsFunc(types, func(name any) bool { return hasType(value, name.(string)) }) {
				wrong("%v is not of type %v", value, rule)
			}
		case "enum":
			if !slices.Contains(rule.([]any), value) {
				wrong("%v is none of %v", value, rule)
			}
		case "anyOf":
			if !slices.ContainsFunc(rule.([]any), func(each any) bool { return schemaErrors(at, each.(map[string]any), value) == nil }) {
				wrong("%v is not accepted", value)
			}
		case "minimum", "maximum":
			if n, isNumber := value.(int); isNumber && (keyword == "minimum" && n < int(rule.(float64)) || keyword == "maximum" && n > int(rule.(float64))) {
				wrong("%d is out of range", n)
			}
		case "minLength", "maxLength":
			if text, isText := value.(string); isText && (keyword == "minLength" && len(text) < int(rule.(float64)) || keyword == "maxLength" && len(text) > int(rule.(float64))) {
				wrong("%q has the wrong length", text)
			}
		case "pattern":
			if text, isText := value.(string); isText && !regexp.MustCompile(rule.(string)).MatchString(text) {
				wrong("%q does not match", text)
			}
		case "minItems", "maxItems":
			if list, isList := value.([]any); isList && (keyword == "minItems" && len(list) < int(rule.(float64)) || keyword == "maxItems" && len(list) > int(rule.(float64))) {
				wrong("a list of %d items", len(list))
			}
		case "items":
			list, _ := value.([]any)
			for i, item := range list {
				errs = append(errs, schemaErrors(fmt.Sprintf("%s[%d]", at, i), rule.(map[string]any), item)...)
			}
		case "required":
			for _, name := range rule.([]any) {
				if mapping, isMapping := value.(map[string]any); isMapping && mapping[name.(string)] == nil {
					wrong("%s is missing", name)
				}
			}
		case "minProperties":
			if mapping, isMapping := value.(map[string]any); isMapping && len(mapping) < int(rule.(float64)) {
				wrong("an empty mapping")
			}
		case "propertyNames":
			mapping, _ := value.(map[string]any)
			for name := range mapping {
				errs = append(errs, schemaErrors(at+"."+name, rule.(map[string]any), name)...)
			}
		case "additionalProperties":
		default:
			wrong("the test does not know %s", keyword)
		}
	}
	mapping, _ := value.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	for name, item := range mapping {
		rule, known := properties[name]
		if !known {
			rule = s["additionalProperties"]
		}
		switch rule := rule.(type) {
		case bool:
			wrong("there is no key %s", name)
		case map[string]any:
			errs = append(errs, schemaErrors(at+"."+name, rule, item)...)
		}
	}
	return errs
}

// hasType reports whether a value of YAML has a type of JSON.
func hasType(value any, name string) bool {
	switch value.(type) {
	case nil:
		return name == "null"
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case int:
		return name == "integer" || name == "number"
	case float64:
		return name == "number"
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

// validate returns the errors of a document by the schema.
func validate(t *testing.T, text string) []string {
	t.Helper()
	var document, s map[string]any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(Schema(), &s); err != nil {
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
	return schemaErrors("", s, document)
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
		if errs := validate(t, strings.ReplaceAll(text, ", with: ,", ",")); errs != nil {
			t.Errorf("%s: %v", name, errs)
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
		if errs := validate(t, text); err == nil || errs == nil {
			t.Errorf("%s: Parse has %v, the schema %v", value, err, errs)
		}
	}
	for _, text := range []string{"roles: {}\n", "roles: []\n", "roles: [a]\n", "roles: [{nodes: 1, command: c}]\n"} {
		_, err := parseText(t, text)
		if errs := validate(t, text); err == nil || errs == nil {
			t.Errorf("%s: Parse has %v, the schema %v", text, err, errs)
		}
	}
}
