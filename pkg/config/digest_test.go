package config

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
)

// TestDigest has values that are more than one field; all fields are in TestDigestHasEveryField.
func TestDigest(t *testing.T) {
	base := Config{
		Identity: testIdentity(0, 2), Framework: framework.None{HeadCommand: "x"}, Times: DefaultTimeouts(),
		Sandbox: Sandbox{Ready: probe(t, "tcp:2")}, CheckPolicy: check.DefaultConfig(),
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		same   bool
	}{
		{"nothing", func(*Config) {}, true},
		{"a team of all, given", func(c *Config) { c.Team = membership.NodeRange{Min: 2, Max: 2} }, true},
		{"a team", func(c *Config) { c.Team = membership.NodeRange{Min: 1, Max: 2} }, false},
		{"the framework's settings", func(c *Config) { c.Framework = framework.None{WorkerCommand: "x"} }, false},
		{"the framework's probes", func(c *Config) {
			c.Framework = framework.None{HeadCommand: "x", HeadReady: probe(t, "tcp:1")}
		}, false},
		{"the framework", func(c *Config) { c.Framework = ray.Cluster{Logs: "end", HeadArgs: []string{"x"}} }, false},
		{"when the sandbox is ready", func(c *Config) { c.Sandbox.Ready = probe(t, "tcp:1") }, false},
		{"what is checked", func(c *Config) { c.CheckPolicy = check.Config{ActiveCommands: []string{"x"}} }, false},
	} {
		other := base
		tc.change(&other)
		if same := base.Digest() == other.Digest(); same != tc.same || len(other.Digest()) != 16 {
			t.Errorf("%s: the digests are the same: %v (%s)", tc.name, same, other.Digest())
		}
	}
}

// TestDigestHasEveryField changes each unmarked field of the configuration, one after the other,
// and verifies that the digest changes with it. Only fields that may differ from node to node are
// marked.
func TestDigestHasEveryField(t *testing.T) {
	may := []string{"Identity", "LogDir", "Program", "Workload.Roles.Definitions",
		"Workload.Roles.Spares", "Workload.Roles.Step", "Workload.Roles.sparesPlace", "Workload.Roles.Frameworks",
		"After.Requeue.By", "Process", "Output"}
	// Other values for fields that are not of a basic type.
	others := map[string]any{
		"Workload.Driver": []string{"x"}, "Workload.World.Env": []string{"X=1"},
		"Framework": framework.None{HeadCommand: "x"}, "CheckPolicy": "x",
		"After.Rules.NoCodes": []int{7}, "Sandbox.Ready": new(health.Probe),
	}
	other := func(name string, kind reflect.Kind) any {
		if told, is := others[name]; is {
			delete(others, name)
			return told
		}
		return map[reflect.Kind]any{reflect.String: "x", reflect.Bool: true, reflect.Int: 7,
			reflect.Int64: int64(7)}[kind]
	}
	c := Config{Identity: testIdentity(0, 9), Framework: framework.None{}, Team: membership.NodeRange{Min: 2, Max: 4}}
	before := c.Digest()
	var marked []string
	var visit func(v reflect.Value, path string)
	visit = func(v reflect.Value, path string) {
		for field, value := range v.Fields() {
			name := strings.TrimPrefix(path+"."+field.Name, ".")
			switch {
			case field.Tag.Get("digest") == "-":
				marked = append(marked, name)
				continue
			case value.Kind() == reflect.Struct:
				visit(value, name)
				continue
			}
			// This makes the value settable even if it is not exported.
			value = reflect.NewAt(value.Type(), value.Addr().UnsafePointer()).Elem()
			changed := other(name, value.Kind())
			if changed == nil {
				t.Fatalf("say what another %s is", name)
			}
			old := reflect.New(value.Type()).Elem()
			old.Set(value)
			value.Set(reflect.ValueOf(changed).Convert(value.Type()))
			if c.Digest() == before {
				t.Errorf("%s is not in the digest", name)
			}
			value.Set(old)
		}
	}
	visit(reflect.ValueOf(&c).Elem(), "")
	if diff := cmp.Diff(may, marked); diff != "" {
		t.Errorf("fields that may differ (-want +got):\n%s", diff)
	}
	if len(others) > 0 {
		t.Errorf("there are no such fields: %v", slices.Sorted(maps.Keys(others)))
	}
}

// TestSpelled verifies that two values are encoded alike exactly if they are equal, and that values
// that cannot be compared are refused.
func TestSpelled(t *testing.T) {
	type inner struct{ a, b string }
	type outer struct {
		Text  string
		own   int
		Some  []string
		Any   any
		To    *inner
		Apart func() `digest:"-"`
	}
	spell := func(v any) string { return digestForm(reflect.ValueOf(v)) }
	different := []any{
		outer{}, outer{Text: "x"}, outer{own: 1}, outer{Some: []string{"x"}},
		outer{Some: []string{"x", ""}}, outer{Some: []string{"", "x"}},
		outer{Any: "x"}, outer{Any: 1}, outer{Any: int64(1)}, outer{To: new(inner)},
		outer{To: &inner{a: "x"}}, outer{To: &inner{b: "x"}},
		outer{Any: inner{a: `x";b:"`}}, outer{Any: inner{a: "x"}},
		outer{Any: []inner{{}, {a: "x"}}}, outer{Any: []inner{{a: "x"}, {}}},
		outer{Any: [2]bool{true}}, outer{Any: [2]bool{1: true}},
	}
	seen := make(map[string]any)
	for _, one := range different {
		if other, twice := seen[spell(one)]; twice {
			t.Errorf("%+v and %+v are both %s", one, other, spell(one))
		}
		seen[spell(one)] = one
	}
	if spell(outer{To: &inner{a: "x"}, Apart: func() {}}) != spell(outer{To: &inner{a: "x"}}) {
		t.Error("what is the same, or marked, is written otherwise")
	}
	for _, one := range []any{
		struct{ F func() }{}, struct{ C <-chan os.Signal }{}, struct{ M map[string]int }{}, []any{1, func() {}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a %T is accepted", one)
				}
			}()
			spell(one)
		}()
	}
}
