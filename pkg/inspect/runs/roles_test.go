package runs

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// testRoles has four servers on two nodes, an engine over two nodes, and a client.
const testRoles = `roles:
- {name: judge, nodes: 2, per-node: 2, command: serve --key=$SECRET, env: {SECRET: abc}, ready: "exec:curl -H 'Authorization: Bearer abcdefghijklmnop'", restarts: 2, require: {start: all, run: 2}}
- {name: engine, nodes: 2, nodes-per-instance: 2, ranks-per-node: 2, command: engine, restarts: 1}
- {name: client, nodes: head, primary: true, command: client}
`

// testHeader is the header of all records.
var testHeader = record.Header{Version: record.FormatVersion, Nonce: "nonce"}

// parse returns the definitions in a file.
func parse(t *testing.T, text string) []roles.Definition {
	t.Helper()
	var file struct{ Roles yaml.Node }
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(&file.Roles)
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

// planOf returns the record of a plan on nodes of four GPUs, the way observers read it.
func planOf(t *testing.T, defs []roles.Definition, nodes int) *roles.PlanRecord {
	t.Helper()
	rec := &roles.PlanRecord{Header: testHeader, Roles: roles.Describe(defs)}
	for i := range nodes {
		host := "n" + string(rune('0'+i%10))
		rec.Offers = append(rec.Offers, roles.NodeFacts{NodeIndex: i, Host: host, Address: host, GPUs: 4, FirstPort: 20000})
	}
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	read := new(roles.PlanRecord)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return read
}

// writeRun writes a run directory with these files, of which those without content are marks.
func writeRun(t *testing.T, files map[string]any) string {
	t.Helper()
	run := t.TempDir()
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		if err := os.Mkdir(filepath.Join(run, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, rec := range files {
		writeFile(t, run, name, rec)
	}
	return run
}

// writeFile writes a record, or a mark.
func writeFile(t *testing.T, run, name string, rec any) {
	t.Helper()
	var text []byte
	if rec != nil {
		var err error
		if text, err = json.Marshal(rec); err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
	}
	replaceFile(t, filepath.Join(run, name), string(text))
}

// replaceFile replaces a file, as a daemon does: a reader sees it before or after.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exit returns the record of an exit.
func exit(message string, restarts bool) *record.InstanceExit {
	rec := &record.InstanceExit{WillRestart: restarts}
	rec.Header, rec.Message = testHeader, message
	return rec
}

// jobOf returns the job record of a run of some nodes.
func jobOf(nodes int) *record.Job {
	return &record.Job{Header: testHeader, Size: nodes, Run: "j"}
}

func TestInstanceStates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]any
		want  string // of the judges, the engine and the client
	}{
		{"nothing has happened", nil, "starting starting starting starting, starting, waiting"},
		{"some are ready", map[string]any{"nodes/0000.i0000.g0.ready": nil, "nodes/0001.i0003.g0.ready": nil, "nodes/0002.i0004.g0.ready": nil}, "ready starting starting ready, starting, waiting"},
		{"all run", map[string]any{"nodes/0002.i0004.g0.ready": nil, "nodes/0003.i0004.g0.ready": nil, "control/start.client": nil, "nodes/0000.i0005.g0.ready": nil}, "starting starting starting starting, ready, ready"},
		{"unready, and ready again", map[string]any{
			"nodes/0000.i0000.g0.ready": nil, "nodes/0000.i0000.g0.unready.000001": nil,
			"nodes/0000.i0001.g0.ready": nil, "nodes/0000.i0001.g0.unready.000001": nil, "nodes/0000.i0001.g0.ready.000002": nil,
		}, "unready ready starting starting, starting, waiting"},
		{"the end of an aborted run, which has no marks of instances", map[string]any{"nodes/0000.i0000.g0.ready": nil, "nodes/0000.i0001.g0.ready": nil, "nodes/0000.i0001.g0.unready.000001": nil, "control/abort.0000": nil},
			"stopped stopped stopped stopped, stopped, stopped"},
		{"restarting, restarted and lost", map[string]any{
			"nodes/0000.i0000.g0.ready": nil, "nodes/0000.i0000.g0.exited": exit("one", true),
			"nodes/0000.i0001.g0.exited": exit("two", true), "nodes/0000.i0001.g1.ready": nil,
			"nodes/0001.i0002.g0.exited": exit("three", false), "nodes/0001.i0003.g2.exited": exit("four", true),
			"control/live.000003": &record.LiveInstances{Header: testHeader, Lost: []int{3}},
		}, "restarting ready lost lost, starting, waiting"},
		{"an engine restarts", map[string]any{"nodes/0002.i0004.g0.exited": exit("gone", false), "nodes/0003.i0004.g0.stopped": nil}, "starting starting starting starting, restarting, waiting"},
		{"an engine was told to start again", map[string]any{"nodes/0002.i0004.g0.exited": exit("gone", false), "nodes/0003.i0004.g0.stopped": nil, "control/inst.0004.g1.start": nil}, "starting starting starting starting, starting, waiting"},
		{"nodes are lost, of which one has no spare", map[string]any{
			"nodes/0000.i0000.g0.ready": nil, "nodes/0000.i0001.g0.ready": nil, "nodes/0001.i0002.g0.ready": nil, "nodes/0001.i0003.g0.ready": nil, "nodes/0004.i0003.g1.ready": nil,
			"control/live.000001": &record.LiveInstances{Header: testHeader, Lost: []int{0, 1}},
			"control/plan.0001": func() *roles.PlanRecord {
				plan := planOf(t, parse(t, testRoles), 4)
				plan.Offers[1].NodeIndex, plan.Generations = 4, map[int]int{2: 1, 3: 1}
				return plan
			}(),
		}, "lost lost starting ready, starting, waiting"},
		{"the end", map[string]any{
			"control/drain": nil, "nodes/0000.i0000.g0.stopped": nil, "nodes/0000.i0001.g0.exited": exit("late", true), "nodes/0001.i0002.g0.exited": exit("the cause", false),
			"control/start.client": nil, "nodes/0000.i0005.g0.done": nil,
		}, "stopped stopped lost stopped, stopped, done"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := writeRun(t, map[string]any{"control/job": jobOf(5), "control/plan.0000": planOf(t, parse(t, testRoles), 4)})
			for name, rec := range tc.files {
				writeFile(t, run, name, rec)
			}
			placed, err := readRoles(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, role := range placed.Roles {
				var states []string
				for _, instance := range role.Instances {
					states = append(states, string(instance.Status))
				}
				parts = append(parts, strings.Join(states, " "))
			}
			if got := strings.Join(parts, ", "); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestEndpointFormat(t *testing.T) {
	endpoint := roles.Endpoint{Host: "n1", Address: "10.0.0.1", Port: 8000, Instance: 3}
	for text, want := range map[string]string{
		"http://%a": "http://10.0.0.1:8000", "%h %p": "10.0.0.1 8000", "server%i 100%%": "server3 100%", "%%h": "%h", "": "", "plain": "plain",
	} {
		format, err := ParseEndpointFormat(text)
		if got := format.Of(endpoint); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"%", "%x", "%h:%", "%%%z"} {
		if _, err := ParseEndpointFormat(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestRoleQuery(t *testing.T) {
	run := writeRun(t, map[string]any{
		"control/job": jobOf(4), "control/plan.0000": planOf(t, parse(t, testRoles), 4), "nodes/0000.i0000.g1.ready": nil, "nodes/0000.i0000.g0.exited": exit("the judge died", true),
	})
	for _, tc := range []struct {
		name  string
		query RoleQuery
		want  string // in the output, or in the error
	}{
		{"a table", RoleQuery{Role: "judge"}, "judge.0   ready     1         n0     n0:20000  the judge died\njudge.1   starting  0         n0     n0:20001\n"},
		{"endpoints", RoleQuery{Role: "judge", Format: "%i=%a"}, "0=n0:20000\n1=n0:20001\n2=n1:20000\n3=n1:20001\n"},
		{"those of all roles", RoleQuery{Format: "%p"}, "20000\n20001\n20000\n20001\n20000\n20002\n"},
		{"JSON", RoleQuery{AsJSON: true}, `"role": "engine",`},
		{"no such role", RoleQuery{Role: "juge"}, `cannot show role "juge": the roles of the run are judge, engine, client`},
		{"no such role of endpoints", RoleQuery{Role: "juge", Format: "%a"}, `cannot show role "juge"`},
		{"no such role to watch", RoleQuery{Role: "juge", Watch: true}, `cannot show role "juge"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			tc.query.Path, tc.query.Out = run, &out
			err := tc.query.Print(t.Context())
			if err != nil {
				out.WriteString(err.Error())
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("got %s\nwant %s", out.String(), tc.want)
			}
		})
	}
	without := writeRun(t, map[string]any{"control/job": jobOf(1)})
	if err := (RoleQuery{Path: without}).Print(t.Context()); err == nil || !strings.Contains(err.Error(), "it has published no plan of roles") {
		t.Errorf("got %v", err)
	}
}

// lineChannel passes on what is written to it.
type lineChannel chan string

func (c lineChannel) Write(line []byte) (int, error) {
	c <- strings.TrimSuffix(string(line), "\n")
	return len(line), nil
}

// all returns the lines, of which no more follow.
func (c lineChannel) all() (lines []string) {
	close(c)
	for line := range c {
		lines = append(lines, line)
	}
	return lines
}

// TestRoleWatch verifies that a watch prints each change and ends with the run, outside of the job and by
// the file of a node.
func TestRoleWatch(t *testing.T) {
	for _, hasFile := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			run := writeRun(t, map[string]any{"control/job": jobOf(4), "control/plan.0000": planOf(t, parse(t, testRoles), 4)})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			lines, ended := make(lineChannel, 10), make(chan error, 1)
			query := RoleQuery{Path: run, Role: "judge", Watch: true, Format: "%a", Out: lines}
			if hasFile {
				query.EndpointsFile = filepath.Join(run, "endpoints")
				if err := os.WriteFile(query.EndpointsFile, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			publish := func(number int, ready ...int) {
				writeFile(t, run, "control/"+signal.SeriesLive.Name(number), &record.LiveInstances{Header: testHeader, Ready: ready})
				if hasFile {
					var text string
					for _, number := range ready {
						text += []string{"n0:20000", "n0:20001", "n1:20000", "n1:20001", "n2:20000", "n0:20002"}[number] + "\n"
					}
					replaceFile(t, query.EndpointsFile, text)
				}
				time.Sleep(2 * shareInterval)
			}
			go func() { ended <- query.Print(ctx) }()
			time.Sleep(2 * shareInterval)
			publish(0)
			publish(1, 0, 4)
			publish(2, 0, 3, 4)
			publish(3, 4)
			publish(4, 0, 4, 5)
			writeFile(t, run, "control/drain", nil)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			got := lines.all()
			if want := []string{"n0:20000", "n0:20000 n1:20001", "", "n0:20000"}; !slices.Equal(got, want) {
				t.Errorf("with a file %v: got %q, want %q", hasFile, got, want)
			}
		})
	}
}

func TestSelectNodes(t *testing.T) {
	run := writeRun(t, map[string]any{"control/job": jobOf(4), "control/plan.0000": planOf(t, parse(t, testRoles), 4)})
	for _, tc := range []struct {
		words []string
		nodes []string
		env   string // one variable
		fails string
	}{
		{[]string{"judge"}, []string{"0", "1"}, "BRINGUPD_ROLE_COUNT=4", ""},
		{[]string{"judge.2"}, []string{"1"}, "BRINGUPD_PORT=20000", ""},
		{[]string{"engine.0"}, []string{"2", "3"}, "BRINGUPD_INSTANCE_SIZE=4", ""},
		{[]string{"judge.3", "engine"}, []string{"1", "2", "3"}, "", ""},
		{[]string{"judge.4"}, nil, "", "cannot use judge.4: the role has the instances 0 to 3"},
		{[]string{"juge"}, nil, "", `cannot show role "juge": the roles of the run are judge, engine, client`},
		{[]string{"judge.x"}, nil, "", `cannot use role "judge.x": give a role or an instance, such as judge or judge.1`},
		{[]string{"engine.0.1"}, nil, "", `cannot use role "engine.0.1"`},
	} {
		nodes, env, err := SelectNodes(t.Context(), run, tc.words)
		if tc.fails != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.fails) {
				t.Errorf("%v: got %v, want %s", tc.words, err, tc.fails)
			}
			continue
		}
		if err != nil || !slices.Equal(nodes, tc.nodes) || tc.env != "" && !slices.Contains(env, tc.env) || tc.env == "" && env != nil {
			t.Errorf("%v: got %v, %v, %v", tc.words, nodes, env, err)
		}
		if slices.ContainsFunc(env, func(entry string) bool { return strings.Contains(entry, "_ENDPOINTS=") }) {
			t.Errorf("%v: there is a list: %v", tc.words, env)
		}
	}
}

// TestRoleWatchFollowsSpares verifies that a process of the run soon learns the address of a spare node
// that takes a place in the plan.
func TestRoleWatchFollowsSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := planOf(t, parse(t, testRoles), 4), planOf(t, parse(t, testRoles), 4)
		second.Offers[1].Address = "spare"
		run := writeRun(t, map[string]any{"control/job": jobOf(5), "control/plan.0000": first})
		lines, ended := make(lineChannel, 10), make(chan error, 1)
		query := RoleQuery{Path: run, Role: "judge", Watch: true, Format: "%i=%a", Out: lines, EndpointsFile: filepath.Join(run, "endpoints")}
		replaceFile(t, query.EndpointsFile, "n0:20000\nn1:20000\n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { ended <- query.Print(ctx) }()
		time.Sleep(2 * shareInterval)
		writeFile(t, run, "control/plan.0001", second)
		replaceFile(t, query.EndpointsFile, "n0:20000\nspare:20000\n")
		time.Sleep(3 * shareInterval)
		writeFile(t, run, "control/drain", nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		got := lines.all()
		if want := []string{"0=n0:20000 2=n1:20000", "0=n0:20000 2=spare:20000"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
