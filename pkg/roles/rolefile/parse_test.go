package rolefile

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
)

// topLevel returns the value of a key of a document.
func topLevel(t *testing.T, text, key string) *yaml.Node {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	top := document.Content[0]
	for i := 0; i < len(top.Content); i += 2 {
		if top.Content[i].Value == key {
			return top.Content[i+1]
		}
	}
	t.Fatalf("no key %s in:\n%s", key, text)
	return nil
}

// parseText parses the roles in a document.
func parseText(t *testing.T, text string) ([]roles.Definition, error) {
	t.Helper()
	return Parse(topLevel(t, text, RolesKey))
}

// mustParse parses the roles in a document without a mistake.
func mustParse(t *testing.T, text string) []roles.Definition {
	t.Helper()
	defs, err := parseText(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

func TestParseDefaults(t *testing.T) {
	defs := mustParse(t, "roles:\n- {name: a, nodes: 2, command: serve}\n")
	want := []roles.Definition{{
		Name:      "a",
		Placement: roles.Placement{Nodes: 2, InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1, GPUs: roles.GPUsDivided},
		Program:   roles.Program{Command: "serve", Ports: []roles.PortRequest{{Name: "http", Count: 1}}},
		Ready:     roles.ReadyProbe{Timeout: 30 * time.Minute},
		Alive:     roles.AliveProbe{After: time.Minute},
		Restarts:  roles.RestartPolicy{Window: 10 * time.Minute, MinBackoff: time.Second, MaxBackoff: 30 * time.Second},
		Required:  roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll},
		Stop:      roles.StopPolicy{Grace: 10 * time.Second, Signal: "TERM"},
		Line:      2,
	}}
	if diff := cmp.Diff(want, defs); diff != "" {
		t.Error(diff)
	}
}

// everyKey is a file with every key of a role.
const everyKey = `
roles:
- name: judge
  nodes: 4
  group: 1
  per-node: 4
  gpus: 2
  segment: 2
  command: vllm serve
  env: {HF_HOME: /scratch, NCCL_DEBUG: , PORT: 8}
  step: judge
  ports: {http: 8000, rpc: auto, kv: {count: 4}}
  endpoints: all
  after: [setup]
  ready: {probe: "http://localhost:$BRINGUPD_PORT/health", timeout: 1h}
  alive: {probe: "tcp:$BRINGUPD_PORT", after: 90s}
  restarts: {max: 3, window: 20m, backoff: 2s..1m}
  require: {start: all, run: 6}
  grace: 1h
  stop-signal: none
- {name: setup, nodes: all, oneshot: true, timeout: 1h, command: uv sync}
- {name: pool, nodes: rest, nodes-per-instance: all, framework: ray}
- {name: side, with: [pool, judge], command: watch}
- name: trainer
  with: pool
  ranks-per-node: gpu
  command: lead
  follower-command: follow
  primary: true
  hang-timeout: 20m
`

func TestParseEveryKey(t *testing.T) {
	text := strings.Replace(everyKey, "http: 8000", "http: auto", 1)
	defs := mustParse(t, text)
	judge := defs[0]
	want := roles.Definition{
		Name:      "judge",
		Placement: roles.Placement{Nodes: 4, Group: 1, InstancesPerNode: 4, NodesPerInstance: 1, RanksPerNode: 1, GPUs: 2, Segment: 2},
		Program: roles.Program{
			Command: "vllm serve", Env: map[string]string{"HF_HOME": "/scratch", "NCCL_DEBUG": "", "PORT": "8"}, Step: "judge", AllEndpoints: true,
			Ports: []roles.PortRequest{{Name: "http", Count: 1}, {Name: "rpc", Count: 1}, {Name: "kv", Count: 4}},
		},
		After:    []string{"setup"},
		Ready:    roles.ReadyProbe{Probe: "http://localhost:$BRINGUPD_PORT/health", Timeout: time.Hour},
		Alive:    roles.AliveProbe{Probe: "tcp:$BRINGUPD_PORT", After: 90 * time.Second},
		Restarts: roles.RestartPolicy{Max: 3, Window: 20 * time.Minute, MinBackoff: 2 * time.Second, MaxBackoff: time.Minute},
		Required: roles.Requirement{Start: roles.QuorumAll, Run: 6},
		Stop:     roles.StopPolicy{Grace: time.Hour, Signal: roles.StopSignalNone},
		Line:     3,
	}
	if diff := cmp.Diff(want, judge); diff != "" {
		t.Error(diff)
	}
	if setup := defs[1]; !setup.Oneshot || setup.Timeout != time.Hour {
		t.Errorf("got %+v", setup)
	}
	if pool := defs[2]; pool.Program.Framework != "ray" || pool.Placement.NodesPerInstance != roles.NodesAll || pool.Placement.Nodes != roles.NodesRest {
		t.Errorf("got %+v", pool)
	}
	if side := defs[3].Placement; side.GPUs != 0 || side.Nodes != roles.NodesAll || !cmp.Equal(side.With, []string{"pool", "judge"}) {
		t.Errorf("got %+v", side)
	}
	trainer := defs[4]
	if trainer.HangTimeout != 20*time.Minute || judge.HangTimeout != 0 {
		t.Errorf("the times of hangs are %s and %s", trainer.HangTimeout, judge.HangTimeout)
	}
	if p := trainer.Placement; p.GPUs != roles.GPUsDivided || p.RanksPerNode != roles.PerGPU || !p.HasRanks || p.NodesPerInstance != roles.NodesAll {
		t.Errorf("got %+v", p)
	}
	if after := []string{"judge", "setup", "pool", "side"}; !cmp.Equal(trainer.After, after) {
		t.Errorf("got after %v, want %v", trainer.After, after)
	}
	for _, name := range Keys() {
		if !strings.Contains(everyKey, name+": ") {
			t.Errorf("the test has no key %s", name)
		}
	}
}

func TestParseMerges(t *testing.T) {
	defs := mustParse(t, `
base: &base {nodes: 1, command: serve, ready: "tcp:1", env: &env {A: 1, B: 2, D: , E: 5}}
roles:
- &engine
  <<: *base
  name: prefill
  nodes: 2
  ports: {http: auto, rpc: auto}
- {<<: [*engine, *base], name: decode, ready: , env: {<<: *env, B: 3, C: 4, E: }}
`)
	decode := defs[1]
	if decode.Placement.Nodes != 2 || decode.Program.Command != "serve" || len(decode.Program.Ports) != 2 || decode.Ready.Probe != "" {
		t.Errorf("got %+v", decode)
	}
	if want := map[string]string{"A": "1", "B": "3", "C": "4", "D": "", "E": ""}; !cmp.Equal(decode.Program.Env, want) {
		t.Errorf("got %v, want %v", decode.Program.Env, want)
	}
}

// TestParseShortForms parses the files for which today's flags are short forms.
func TestParseShortForms(t *testing.T) {
	defs := mustParse(t, `
roles:
- {name: setup, nodes: all, oneshot: true, command: "true"}
- {name: head, nodes: head, after: [setup], command: serve}
- {name: worker, nodes: all, after: [head], command: serve}
- {name: sandbox, nodes: all, require: 3, command: serve}
- {name: ranks, nodes: all, ranks-per-node: 8, gpus: 1, primary: true, command: train}
- {name: driver, nodes: head, primary: true, command: drive}
`)
	if defs[0].Timeout != roles.DefaultTimeout || defs[1].Timeout != 0 {
		t.Errorf("setup has %s, head %s", defs[0].Timeout, defs[1].Timeout)
	}
	for at, gpus := range []int{0, 0, 0, 0, 1, 0} {
		if defs[at].Placement.GPUs != gpus {
			t.Errorf("%s: got %d GPUs, want %d", defs[at].Name, defs[at].Placement.GPUs, gpus)
		}
	}
	if want := (roles.Requirement{Start: 3, Run: 3}); defs[3].Required != want {
		t.Errorf("got %v, want %v", defs[3].Required, want)
	}
}

func TestParseRestartWindow(t *testing.T) {
	for _, tc := range []struct {
		restarts string
		window   time.Duration
	}{
		{"3", 10 * time.Minute},
		{"20", 10 * time.Minute},                         // 1+2+4+8+16+15*30 s are 8 minutes
		{"100", 2 * (31 + 95*30) * time.Second},          // more than 10 minutes
		{"{max: 2, window: 3s}", 3 * time.Second},        // 1+2 s
		{"{max: 2, backoff: 5m}", 10 * time.Minute},      // 5+5 m
		{"{max: 3, backoff: 5m}", 30 * time.Minute},      // 5+5+5 m, twice
		{"{max: 0, window: 1s}", time.Second},            // none
		{"{max: 1, backoff: 1s..1h}", 600 * time.Second}, // the first pause only
	} {
		t.Run(tc.restarts, func(t *testing.T) {
			defs := mustParse(t, "roles:\n- {name: a, nodes: 1, command: c, restarts: "+tc.restarts+"}\n")
			if got := defs[0].Restarts.Window; got != tc.window {
				t.Errorf("got %v, want %v", got, tc.window)
			}
		})
	}
}

func TestParseRefusals(t *testing.T) {
	for _, tc := range []struct{ role, message string }{
		{"{name: a, nodes: 1, command: c, gpu: 2}", `role a: there is no key "gpu"; did you mean gpus?`},
		{"{name: a, nodes: 1, command: c, zzzzzz: 2}", `role a: there is no key "zzzzzz"; the keys are name, nodes, group, with`},
		{"{nodes: 1, command: c}", "role 1 of the list has no name: give 1 to 31 lower-case letters"},
		{"{}", "role 1 of the list has no name"},
		{"{name: , nodes: 1, command: c}", "role 1 of the list has no name"},
		{"{name: A, nodes: 1, command: c}", `name is "A": give 1 to 31`},
		{"{name: a_b, nodes: 1, command: c}", `name is "a_b": give 1 to 31`},
		{"{name: a2345678901234567890123456789012, nodes: 1, command: c}", `give 1 to 31`},
		{"{name: a, name: b, nodes: 1, command: c}", "name is already set in line 2"},
		{"{name: a, command: c}", "role a: nodes is missing: give a number, rest, all or head, or place it with: another role"},
		{"{name: a, nodes: 0, command: c}", `nodes is "0": give a whole number from 1 to 1000000, rest, all or head`},
		{"{name: a, nodes: many, command: c}", `nodes is "many"`},
		{"{name: a, nodes: [1], command: c}", `nodes is a list`},
		{"{name: a, nodes: 1}", "role a: command is missing: give the shell text that each process runs, or framework: ray or dask"},
		{"{name: a, nodes: 1, command: ' '}", "command is empty"},
		{"{name: a, nodes: 1, command: \"a\\0b\"}", "contains a NUL character"},
		{"{name: a, nodes: 1, command: c, gpus: all}", `gpus is "all": give a whole number from 0 to 1024 or shared`},
		{"{name: a, nodes: 1, command: c, gpus: -1}", `gpus is "-1": give a whole number from 0 to 1024 or shared`},
		{"{name: a, nodes: 1, command: c, per-node: gpu, gpus: 2}", "gpus: 2 for each process, and per-node: gpu is a process for each GPU"},
		{"{name: a, nodes: 4, command: c, per-node: 2, nodes-per-instance: 2}", "per-node is more than 1, and an instance spans more than one node"},
		{"{name: a, nodes: 4, command: c, per-node: 2, ranks-per-node: 2}", "give nodes-per-instance: 1 for an instance on each node"},
		{"{name: a, nodes: 7, command: c, nodes-per-instance: 2}", "nodes: 7 cannot be divided into instances of 2 nodes"},
		{"{name: a, nodes: head, command: c, nodes-per-instance: 2}", "an instance spans 2 nodes, and nodes: head is one"},
		{"{name: a, nodes: head, command: c, group: 1}", "nodes: head and group: 1 are both given"},
		{"{name: a, nodes: 20, command: c, segment: 16}", "nodes: 20 are not whole segments of 16"},
		{"{name: a, nodes: all, command: c, segment: 16}", "segment is for roles that claim nodes"},
		{"{name: a, with: b, nodes: rest, command: c}", "with and nodes: rest or head are both given"},
		{"{name: a, with: b, group: 1, command: c}", "with and group are both given"},
		{"{name: a, with: [], command: c}", "with is empty"},
		{"{name: a, with: b, command: c}", "with: there is no role b: the roles are a"},
		{"{name: a, with: a, command: c}", "with is a circle: a → a"},
		{"{name: a, nodes: 1, command: c, after: [setpu]}", "after: there is no role setpu"},
		{"{name: a, nodes: 1, command: c, after: a}", "after is a circle: a → a"},
		{"{name: a, nodes: 1, command: c, oneshot: true, primary: true}", "oneshot and primary are both given"},
		{"{name: a, nodes: 1, command: c, oneshot: yes}", `oneshot is "yes": give true or false`},
		{"{name: a, nodes: 1, command: c, timeout: 1m}", "timeout is given without oneshot"},
		{"{name: a, nodes: 1, command: c, oneshot: true, timeout: 10ms}", "of at least 1s"},
		{"{name: a, nodes: 1, command: c, oneshot: true, ready: 'tcp:1'}", "ready and oneshot are both given"},
		{"{name: a, nodes: 1, command: c, hang-timeout: 10m}", "hang-timeout is for roles that are primary or oneshot or have ranks: a server is idle while it has no requests; give an alive probe"},
		{"{name: a, nodes: 1, framework: ray, hang-timeout: 10m}", "hang-timeout and framework are both given"},
		{"{name: a, nodes: 1, command: c, primary: true, hang-timeout: 10ms}", "of at least 1s"},
		{"{name: a, nodes: 1, framework: ray, primary: true}", "a cluster without a command never ends by itself"},
		{"{name: a, nodes: 1, framework: spark}", `framework is "spark": give ray or dask`},
		{"{name: a, nodes: 1, framework: ray, ranks-per-node: 2}", "ranks-per-node and framework are both given"},
		{"{name: a, nodes: 1, command: c, follower-command: d}", "an instance has one process"},
		{"{name: a, nodes: 2, ranks-per-node: 2, follower-command: d}", "command is missing"},
		{"{name: a, nodes: 1, command: c, env: [A]}", "env: a mapping is expected"},
		{"{name: a, nodes: 1, command: c, env: {A=B: 1}}", `"A=B" cannot be the name of a variable`},
		{"{name: a, nodes: 1, command: c, env: {A: [1]}}", "env: A is a list: give a text"},
		{"{name: a, nodes: 1, command: c, step: A}", `step is "A"`},
		{"{name: a, nodes: 1, command: c, ports: {}}", "ports is empty"},
		{"{name: a, nodes: 1, command: c, ports: 80}", "ports: a mapping is expected, such as {http: auto}"},
		{"{name: a, nodes: 1, command: c, ports: {http: 70000}}", `ports: http is "70000": give a whole number from 1 to 65535, auto or {count: N}`},
		{"{name: a, nodes: 1, command: c, ports: {http: {count: 513}}}", "count is \"513\": give a whole number from 1 to 512"},
		{"{name: a, nodes: 1, command: c, ports: {http: {}}}", "http has no count"},
		{"{name: a, nodes: 1, command: c, ports: {HTTP: 1}}", `ports is "HTTP": give 1 to 31`},
		{"{name: a, nodes: 1, command: c, per-node: 2, ports: {http: 80}}", "port http is 80 for each of 2 processes on a node: give auto"},
		{"{name: a, nodes: 1, command: c, endpoints: one}", `endpoints is "one": give leader or all`},
		{"{name: a, nodes: 1, command: c, ready: {timeout: 1h}}", "ready has no probe"},
		{"{name: a, nodes: 1, command: c, ready: {probe: 'tcp:1', timeout: 30}}", `timeout is "30": give a number with a unit, such as 90s, 5m or 1h, of at least 1s`},
		{"{name: a, nodes: 1, command: c, ready: {probe: 'tcp:1', after: 30s}}", `ready: there is no key "after": give probe and timeout`},
		{"{name: a, nodes: 1, ranks-per-node: 2, command: exec python -m mpi4py run.py, restarts: 1}", "a world of MPI ranks cannot be started again: omit restarts"},
		{"{name: a, nodes: 1, command: c, restarts: -1}", `restarts is "-1": give a whole number from 0 to 100000`},
		{"{name: a, nodes: 1, command: c, restarts: {window: 1m}}", "restarts has no max"},
		{"{name: a, nodes: 1, command: c, restarts: {max: 9, window: 1m}}", "window is 1m, shorter than the pauses before 9 restarts together, 2m31s"},
		{"{name: a, nodes: 1, command: c, restarts: {max: 9, backoff: 30s..1s}}", "give the first and the longest pause, such as 1s..30s"},
		{"{name: a, nodes: 1, command: c, restarts: {max: 100000, backoff: 365d}}", `backoff is "365d"`},
		{"{name: a, nodes: 1, command: c, require: some}", `require is "some": give a whole number from 0 to 64000000, all or any`},
		{"{name: a, nodes: 1, command: c, require: {gate: 1}}", `require: there is no key "gate": give start and run`},
		{"{name: a, nodes: 1, command: c, grace: 10}", `grace is "10": give a number with a unit`},
		{"{name: a, nodes: 1, command: c, stop-signal: SIGTERM}", `stop-signal is "SIGTERM": give TERM, INT`},
		{"{name: a, nodes: 1, command: c, <<: 3}", "<< merges a mapping or a list of mappings"},
		{"{name: a, nodes: 1, command: c, [1]: 3}", "a key must be a word"},
		{"judge", "role 1 of the list: a mapping is expected"},
	} {
		t.Run(tc.role, func(t *testing.T) {
			_, err := parseText(t, "roles:\n- "+tc.role+"\n")
			wantRefusal(t, err, 2, tc.message)
		})
	}
}

// wantRefusal fails the test if err is not a mistake in a line with a message.
func wantRefusal(t *testing.T, err error, line int, message string) {
	t.Helper()
	var found Errors
	if !errors.As(err, &found) {
		t.Fatalf("got %v, want Errors with %q", err, message)
	}
	for _, wrong := range found {
		if wrong.Line == line && strings.Contains(wrong.Problem, message) {
			return
		}
	}
	t.Errorf("got %v; want line %d: %s", err, line, message)
}

func TestParseRefusalsTogether(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		line       int
		message    string
	}{
		{"no list", "roles: {a: 1}\n", 1, "roles is a mapping: give a list of roles"},
		{"an empty list", "roles: []\n", 1, "roles is empty: give a list of roles"},
		{"a name twice", "roles:\n- {name: a, nodes: 1, command: c}\n- {name: a, nodes: 1, command: c}\n", 3, "the name a is already that of the role in line 2"},
		{"two rests", "roles:\n- {name: a, nodes: rest, command: c}\n- {name: b, nodes: rest, command: c}\n", 3, "nodes: rest is already that of role a in group 0"},
		{"a circle", "roles:\n- {name: a, nodes: 1, command: c, after: [b]}\n- {name: b, nodes: 1, command: c, after: [a]}\n", 2, "after is a circle: a → b → a"},
		{
			"a circle by a default", "roles:\n- {name: a, nodes: 1, command: c, after: [b]}\n- {name: b, nodes: 1, command: c, primary: true}\n", 2,
			"after is a circle: a → b → a; a primary without after starts after all roles that are not primary",
		},
		{
			"GPUs shared in turn", "roles:\n- {name: a, nodes: 1, gpus: shared, command: c}\n- {name: b, with: a, gpus: shared, command: c}\n", 3,
			"gpus: shared, and a, with which it is, has gpus: shared, too",
		},
		{"a circle of with", "roles:\n- {name: a, with: b, command: c}\n- {name: b, with: a, command: c}\n", 2, "with is a circle: a → b → a"},
		{
			"two clusters", "roles:\n- {name: a, nodes: 1, framework: ray}\n- {name: b, nodes: 1, framework: ray}\n- {name: c, nodes: head, primary: true, command: c}\n", 4,
			"RAY_ADDRESS could be that of a or b",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseText(t, tc.text)
			wantRefusal(t, err, tc.line, tc.message)
		})
	}
}

func TestErrorsAreListed(t *testing.T) {
	_, err := parseText(t, "roles:\n- name: a\n  nodes: x\n  command: c\n  grace: 1\n- {name: b}\n")
	var found Errors
	if !errors.As(err, &found) {
		t.Fatal(err)
	}
	want := `cannot use job.yaml:3: role a: nodes is "x": give a whole number from 1 to 1000000, rest, all or head
cannot use job.yaml:5: role a: grace is "1": give a number with a unit, such as 90s, 5m or 1h
cannot use job.yaml:6: role b: nodes is missing: give a number, rest, all or head, or place it with: another role
cannot use job.yaml:6: role b: command is missing: give the shell text that each process runs, or framework: ray or dask`
	if got := found.InFile("job.yaml"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	many := "roles:\n- {" + strings.Repeat("[]: 1, ", 50) + "}\n"
	if _, err := parseText(t, many); !strings.Contains(err.Error(), "cannot use line 2") {
		t.Errorf("got %v", err)
	}
}

func TestParseSpares(t *testing.T) {
	for _, tc := range []struct {
		text    string
		spares  roles.Spares
		message string
	}{
		{text: "spares: 2", spares: roles.Spares{0: 2}},
		{text: "spares: {0: 1, 3: 2}", spares: roles.Spares{0: 1, 3: 2}},
		{text: "spares:", spares: roles.Spares{}},
		{text: "spares: some", message: `spares is "some": give a whole number`},
		{text: "spares: {a: 1}", message: `spares: group is "a"`},
		{text: "spares: {1: x}", message: `spares: group 1 is "x"`},
	} {
		t.Run(tc.text, func(t *testing.T) {
			spares, err := ParseSpares(topLevel(t, tc.text, SparesKey))
			if tc.message != "" {
				wantRefusal(t, err, 1, tc.message)
			} else if err != nil || !cmp.Equal(spares, tc.spares) {
				t.Errorf("got %v, %v; want %v", spares, err, tc.spares)
			}
		})
	}
}
