package rolefile

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
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
		Name: "a",
		Placement: roles.Placement{Nodes: 2, InstancesPerNode: 1, NodesPerInstance: 1,
			RanksPerNode: 1, GPUs: roles.GPUsDivided},
		Program: roles.Program{Command: "serve", Ports: []roles.PortRequest{{Name: "http", Count: 1}}},
		Ready: roles.ReadyProbe{Timeout: 30 * time.Minute,
			ProbeLimits: roles.ProbeLimits{Try: 30 * time.Second, Misses: 3}},
		Alive: roles.AliveProbe{After: time.Minute,
			ProbeLimits: roles.ProbeLimits{Try: 20 * time.Second, Misses: 3}},
		Restarts: roles.RestartPolicy{Window: 10 * time.Minute, MinBackoff: time.Second, MaxBackoff: 30 * time.Second},
		Required: roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll},
		Stop:     roles.StopPolicy{Grace: 10 * time.Second, Signal: "TERM"},
		Line:     2,
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
  shell: bash -eu
  env: {HF_HOME: /scratch, NCCL_DEBUG: , PORT: 8}
  step: judge
  ports: {http: 8000, rpc: auto, kv: {count: 4}}
  endpoints: all
  after: [setup]
  ready: {probe: "http://localhost:$BRINGUPD_PORT/health", timeout: 1h, try: 1m, misses: 2}
  alive: {probe: "tcp:$BRINGUPD_PORT", after: 90s, misses: 4}
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
- {name: pool-ranks, nodes: all, ranks: 9, on-rank-failure: continue, command: rank}
`

func TestParseEveryKey(t *testing.T) {
	text := strings.Replace(everyKey, "http: 8000", "http: auto", 1)
	defs := mustParse(t, text)
	judge := defs[0]
	want := roles.Definition{
		Name: "judge",
		Placement: roles.Placement{Nodes: 4, Group: 1, InstancesPerNode: 4, NodesPerInstance: 1,
			RanksPerNode: 1, GPUs: 2, Segment: 2},
		Program: roles.Program{
			Command: "vllm serve", Shell: "bash -eu", Env: map[string]string{"HF_HOME": "/scratch", "NCCL_DEBUG": "",
				"PORT": "8"}, Step: "judge", AllEndpoints: true,
			Ports: []roles.PortRequest{{Name: "http", Count: 1}, {Name: "rpc", Count: 1}, {Name: "kv", Count: 4}},
		},
		After: []string{"setup"},
		Ready: roles.ReadyProbe{Probe: "http://localhost:$BRINGUPD_PORT/health", Timeout: time.Hour,
			ProbeLimits: roles.ProbeLimits{Try: time.Minute, Misses: 2}},
		Alive: roles.AliveProbe{Probe: "tcp:$BRINGUPD_PORT", After: 90 * time.Second,
			ProbeLimits: roles.ProbeLimits{Try: 30 * time.Second, Misses: 4}},
		Restarts: roles.RestartPolicy{Max: 3, Window: 20 * time.Minute, MinBackoff: 2 * time.Second,
			MaxBackoff: time.Minute},
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
	if pool := defs[2]; pool.Program.Framework != "ray" ||
		pool.Placement.NodesPerInstance != roles.NodesAll || pool.Placement.Nodes != roles.NodesRest {
		t.Errorf("got %+v", pool)
	}
	if side := defs[3].Placement; side.GPUs != 0 || side.Nodes != roles.NodesAll ||
		!cmp.Equal(side.With, []string{"pool", "judge"}) {
		t.Errorf("got %+v", side)
	}
	trainer := defs[4]
	if trainer.HangTimeout != 20*time.Minute || judge.HangTimeout != 0 {
		t.Errorf("the times of hangs are %s and %s", trainer.HangTimeout, judge.HangTimeout)
	}
	if p := trainer.Placement; p.GPUs != roles.GPUsDivided || p.RanksPerNode != roles.PerGPU ||
		!p.HasRanks || p.NodesPerInstance != roles.NodesAll {
		t.Errorf("got %+v", p)
	}
	if p := defs[5].Placement; p.Ranks != 9 || p.RanksPerNode != roles.PerSlot || !p.HasRanks || !p.RanksGoOn {
		t.Errorf("got %+v", p)
	}
	if after := []string{"judge", "setup", "pool", "side", "pool-ranks"}; !cmp.Equal(trainer.After, after) {
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
	if decode.Placement.Nodes != 2 || decode.Program.Command != "serve" ||
		len(decode.Program.Ports) != 2 || decode.Ready.Probe != "" {
		t.Errorf("got %+v", decode)
	}
	if want := map[string]string{"A": "1", "B": "3", "C": "4", "D": "", "E": ""}; !cmp.Equal(decode.Program.Env, want) {
		t.Errorf("got %v, want %v", decode.Program.Env, want)
	}
}

// TestCommandAsList verifies that the words of a list reach the program as they are, except the variables
// of bringupd; and that keys which begin with x- are ignored.
func TestCommandAsList(t *testing.T) {
	defs := mustParse(t, `
roles:
- name: a
  nodes: 1
  x-note: [anything]
  command: [printf, '%s\n', a b, $HOME, '--port=$BRINGUPD_PORT', "it's", "", '${BRINGUPD_PORT}${BRINGUPD_PORT}x']
`)
	shell := exec.Command("/bin/sh", "-c", defs[0].Program.Command)
	shell.Env = append(os.Environ(), "BRINGUPD_PORT=80 80")
	out, err := shell.Output()
	const want = "a b\n$HOME\n--port=80 80\nit's\n\n80 8080 80x\n"
	if err != nil || string(out) != want {
		t.Errorf("got %q, want %q: %v", out, want, err)
	}
}

// TestParseShortForms parses the files for which today's flags are short forms.
func TestParseShortForms(t *testing.T) {
	defs := mustParse(t, `
roles:
- {name: setup, nodes: all, oneshot: node, command: "true"}
- {name: head, nodes: head, after: [setup], command: serve}
- {name: worker, nodes: all, after: [head], command: serve}
- {name: sandbox, nodes: all, require: 3, command: serve}
- {name: ranks, nodes: all, ranks-per-node: 8, gpus: 1, primary: true, command: train}
- {name: driver, nodes: head, primary: true, command: drive}
`)
	if defs[0].Timeout != 10*time.Minute || defs[1].Timeout != 0 {
		t.Errorf("setup has %s, head %s", defs[0].Timeout, defs[1].Timeout)
	}
	for at, gpus := range []int{roles.GPUsAll, 0, 0, 0, 1, 0} {
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

var update = flag.Bool("update", false, "write the answers in testdata/*.txt anew")

// checkAnswers compares the answers to the questions in a file of testdata. Questions are separated by
// empty lines, and each is followed by its answer, of lines that begin with ">".
func checkAnswers(t *testing.T, path string, answer func(question string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		question, _, _ := strings.Cut(block, "\n> ")
		got = append(got, question+"\n> "+strings.ReplaceAll(answer(question), "\n", "\n> "))
	}
	all := strings.Join(got, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(text), all); diff != "" {
		t.Errorf("the answers are others (-update writes them):\n%s", diff)
	}
}

// TestRefusals compares the mistakes in each file of testdata/refusals.txt. A role alone stands for a
// list of it.
func TestRefusals(t *testing.T) {
	checkAnswers(t, "testdata/refusals.txt", func(text string) string {
		if strings.HasPrefix(text, "- ") {
			text = "roles:\n" + text
		}
		_, err := parseFile([]byte(text))
		return fmt.Sprint(err)
	})
}

// parseNodes returns nodes n0, n1, … from words such as 4x8/0/d1: four nodes with eight GPUs each, in
// group 0 and NVLink domain d1.
func parseNodes(text string) (nodes []roles.NodeFacts) {
	for word := range strings.FieldsSeq(text) {
		var count, gpus, group int
		_, _ = fmt.Sscanf(word, "%dx%d/%d", &count, &gpus, &group) // a group may be missing
		domain := append(strings.Split(word, "/"), "", "")[2]
		for range count {
			host := fmt.Sprint("n", len(nodes))
			nodes = append(nodes, roles.NodeFacts{
				Host: host, Address: host, GPUs: gpus, Group: group, Domain: domain, FirstPort: 20000,
			})
		}
	}
	return nodes
}

// TestPlans compares the plan of each file of testdata/plans.txt, which follows the nodes, or why there
// is none. Each role has the command c.
func TestPlans(t *testing.T) {
	checkAnswers(t, "testdata/plans.txt", func(text string) string {
		lines := strings.Split(text, "\n")
		text = strings.ReplaceAll(strings.Join(lines[2:], "\n"), "- {", "- {command: c, ")
		defs := mustParse(t, "roles:\n"+text)
		plan, err := roles.MakePlan(defs, parseNodes(lines[1]))
		if err != nil {
			return err.Error()
		}
		again, _ := roles.MakePlan(defs, parseNodes(lines[1]))
		if diff := cmp.Diff(plan, again); diff != "" {
			t.Errorf("%s\nanother plan:\n%s", text, diff)
		}
		return describePlan(plan)
	})
}

// describePlan returns the nodes of each role and the processes of its instances, as host/local:GPUs.
func describePlan(plan *roles.Plan) string {
	var lines []string
	for _, role := range plan.Roles {
		line := textutil.FormatIndices(role.Name+" on node", role.Nodes) + ":"
		for _, instance := range role.Instances {
			for at, process := range instance.Processes {
				separator := "; "
				if at > 0 {
					separator = ", "
				}
				line += fmt.Sprintf("%s%s/%d", separator, plan.Nodes[process.Place].Host, process.Local)
				if len(process.GPUs) > 0 {
					line += ":" + textutil.FormatRanges(process.GPUs)
				}
			}
		}
		lines = append(lines, strings.Replace(line, ":;", ":", 1))
	}
	if idle := plan.IdleNodes(); idle != nil {
		lines = append(lines, "idle: "+textutil.FormatIndices("node", idle))
	}
	return strings.Join(lines, "\n")
}

func TestParseSpares(t *testing.T) {
	for text, want := range map[string]roles.Spares{
		"spares: 2": {0: 2}, "spares: {0: 1, 3: 2}": {0: 1, 3: 2}, "spares:": {},
	} {
		if spares, err := ParseSpares(topLevel(t, text, SparesKey)); err != nil || !cmp.Equal(spares, want) {
			t.Errorf("%s: got %v, %v; want %v", text, spares, err, want)
		}
	}
}
