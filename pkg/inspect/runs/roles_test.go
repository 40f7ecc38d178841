package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// testRoles has four servers on two nodes, an engine over two nodes, and a client.
const testRoles = `roles:
- {name: judge, nodes: 2, per-node: 2, command: serve, ready: "tcp:1", restarts: 2, require: {start: all, run: 2}}
- {name: engine, nodes: 2, nodes-per-instance: 2, ranks-per-node: 2, command: engine, restarts: 1}
- {name: client, nodes: head, primary: true, command: client}
`

// testHeader is the header of all records.
var testHeader = record.Header{Version: record.FormatVersion, Nonce: "nonce"}

// testPlan returns the record of a plan of testRoles on four nodes of four GPUs.
func testPlan(t *testing.T) *roles.PlanRecord {
	t.Helper()
	var file struct{ Roles yaml.Node }
	if err := yaml.Unmarshal([]byte(testRoles), &file); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(&file.Roles)
	if err != nil {
		t.Fatal(err)
	}
	rec := &roles.PlanRecord{Header: testHeader, Roles: roles.Describe(defs)}
	for i := range 4 {
		host := fmt.Sprint("n", i)
		offer := roles.NodeFacts{NodeIndex: i, Host: host, Address: host, GPUs: 4, FirstPort: 20000}
		rec.Offers = append(rec.Offers, offer)
	}
	return rec
}

// writeRun writes a run directory with the plan, and with these marks.
func writeRun(t *testing.T, marks ...string) string {
	t.Helper()
	run := t.TempDir()
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		if err := os.Mkdir(filepath.Join(run, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, run, "control/job", &record.Job{Header: testHeader, Size: 5, Run: "j"})
	writeFile(t, run, "control/plan.0000", testPlan(t))
	for node := range 5 {
		writeFile(t, run, "nodes/"+signal.NodeName(node, 5, record.StateJoined), nil)
	}
	for _, name := range marks {
		writeFile(t, run, name, nil)
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

// TestInstanceStates verifies which files count for the states of instances; roles.Fold has all cases.
func TestInstanceStates(t *testing.T) {
	moved := testPlan(t) // a spare has taken the place of node 1
	moved.Offers[1].NodeIndex, moved.Generations = 4, map[int]int{2: 1, 3: 1}
	const end = "stopped stopped stopped stopped, stopped, stopped"
	for _, tc := range []struct {
		name, marks string
		records     map[string]any
		want        string // of the judges, the engine and the client
	}{
		{"nothing has happened", "", nil, "starting starting starting starting, starting, waiting"},
		{
			"some are ready", "nodes/0000.i0000.g0.ready nodes/0001.i0003.g0.ready nodes/0002.i0004.g0.ready", nil,
			"ready starting starting ready, starting, waiting",
		},
		{
			"the client has started", "nodes/0002.i0004.g0.ready nodes/0003.i0004.g0.ready control/start.client " +
				"nodes/0000.i0005.g0.ready", nil, "starting starting starting starting, ready, ready",
		},
		{"an aborted run has no marks of its end", "nodes/0000.i0000.g0.ready control/abort.0000", nil, end},
		{
			"restarting, restarted and lost", "nodes/0000.i0000.g0.ready nodes/0000.i0001.g1.ready", map[string]any{
				"nodes/0000.i0000.g0.exited": exit("one", true), "nodes/0000.i0001.g0.exited": exit("two", true),
				"nodes/0001.i0002.g0.exited": exit("three", false), "nodes/0001.i0003.g2.exited": exit("four", true),
				"control/live.000003": &record.LiveInstances{Header: testHeader, Lost: []int{3}},
			}, "restarting ready lost lost, starting, waiting",
		},
		{
			"an engine was told to start again", "nodes/0003.i0004.g0.stopped control/inst.0004.g1.start",
			map[string]any{"nodes/0002.i0004.g0.exited": exit("gone", false)},
			"starting starting starting starting, starting, waiting",
		},
		{
			"nodes are lost, of which one has no spare", "nodes/0000.i0000.g0.ready nodes/0000.i0001.g0.ready " +
				"nodes/0001.i0002.g0.ready nodes/0001.i0003.g0.ready nodes/0004.i0003.g1.ready", map[string]any{
				"control/live.000001": &record.LiveInstances{Header: testHeader, Lost: []int{0, 1}},
				"control/plan.0001":   moved,
			}, "lost lost starting ready, starting, waiting",
		},
		{
			"the end", "control/drain nodes/0000.i0000.g0.stopped control/start.client nodes/0000.i0005.g0.done",
			map[string]any{
				"nodes/0000.i0001.g0.exited": exit("late", true), "nodes/0001.i0002.g0.exited": exit("cause", false),
			}, "stopped stopped lost stopped, stopped, done",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := writeRun(t, strings.Fields(tc.marks)...)
			for name, rec := range tc.records {
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
		"http://%a": "http://10.0.0.1:8000", "%h %p": "10.0.0.1 8000", "server%i 100%%": "server3 100%", "%%h": "%h",
		"": "", "plain": "plain",
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
	run := writeRun(t, "nodes/0000.i0000.g1.ready")
	writeFile(t, run, "nodes/0000.i0000.g0.exited", exit("the judge died", true))
	for _, tc := range []struct {
		name  string
		query RoleQuery
		want  string // in the output, or in the error
	}{
		{"a table", RoleQuery{Role: "judge"}, "judge.0   ready     1         n0     n0:20000  the judge died\n"},
		{"endpoints", RoleQuery{Role: "judge", Format: "%i=%a"}, "0=n0:20000\n1=n0:20001\n2=n1:20000\n3=n1:20001\n"},
		{"those of all roles", RoleQuery{Format: "%p"}, "20000\n20001\n20000\n20001\n20000\n20002\n"},
		{"JSON", RoleQuery{AsJSON: true}, `"role": "engine",`},
		{"no such role", RoleQuery{Role: "juge"}, `cannot show role "juge": the roles of the run are judge, `},
		{"no such role of endpoints", RoleQuery{Role: "juge", Format: "%a"}, `cannot show role "juge"`},
		{"no such role to watch", RoleQuery{Role: "juge", Watch: true}, `cannot show role "juge"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			tc.query.Path, tc.query.Out = run, &out
			if err := tc.query.Print(t.Context()); err != nil {
				out.WriteString(err.Error())
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("got %s\nwant %s", out.String(), tc.want)
			}
		})
	}
	if err := os.Remove(filepath.Join(run, "control/plan.0000")); err != nil {
		t.Fatal(err)
	}
	if err := (RoleQuery{Path: run}).Print(t.Context()); !errors.Is(err, timeline.ErrNoPlan) {
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

// watched returns the lines of a watch of the judges of a run, during which change is called, and which
// ends with the run.
func watched(t *testing.T, run string, format EndpointFormat, endpointsFile string, change func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lines, ended := make(lineChannel, 10), make(chan error, 1)
	query := RoleQuery{
		Path: run, Role: "judge", Watch: true, Format: format, Out: lines, EndpointsFile: endpointsFile,
	}
	go func() { ended <- query.Print(ctx) }()
	time.Sleep(2 * shareInterval)
	change()
	writeFile(t, run, "control/drain", nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return lines.all()
}

// TestRoleWatch verifies that a watch prints each change and ends with the run, outside of the job and by
// the file of a node.
func TestRoleWatch(t *testing.T) {
	endpoints := []string{"n0:20000", "n0:20001", "n1:20000", "n1:20001", "n2:20000", "n0:20002"} // by instance
	for _, hasFile := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			run, file := writeRun(t), ""
			if hasFile {
				file = filepath.Join(run, "endpoints")
				replaceFile(t, file, "")
			}
			got := watched(t, run, "%a", file, func() {
				for number, ready := range [][]int{nil, {0, 4}, {0, 3, 4}, {4}, {0, 4, 5}} {
					rec := &record.LiveInstances{Header: testHeader, Ready: ready}
					writeFile(t, run, "control/"+signal.SeriesLive.Name(number), rec)
					var text string
					for _, instance := range ready {
						text += endpoints[instance] + "\n"
					}
					if hasFile {
						replaceFile(t, file, text)
					}
					time.Sleep(2 * shareInterval)
				}
			})
			if want := []string{"n0:20000", "n0:20000 n1:20001", "", "n0:20000"}; !slices.Equal(got, want) {
				t.Errorf("with a file %v: got %q, want %q", hasFile, got, want)
			}
		})
	}
}

// TestRoleWatchFollowsSpares verifies that a process of the run soon learns the address of a spare node
// that takes a place in the plan.
func TestRoleWatchFollowsSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, second := writeRun(t), testPlan(t)
		second.Offers[1].Address = "spare"
		file := filepath.Join(run, "endpoints")
		replaceFile(t, file, "n0:20000\nn1:20000\n")
		got := watched(t, run, "%i=%a", file, func() {
			writeFile(t, run, "control/plan.0001", second)
			replaceFile(t, file, "n0:20000\nspare:20000\n")
			time.Sleep(3 * shareInterval)
		})
		if want := []string{"0=n0:20000 2=n1:20000", "0=n0:20000 2=spare:20000"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestSelectNodes(t *testing.T) {
	run := writeRun(t)
	for _, tc := range []struct {
		words, nodes string
		env          string // one variable
		fails        string
	}{
		{"judge", "0 1", "BRINGUPD_ROLE_COUNT=4", ""},
		{"judge.2", "1", "BRINGUPD_PORT=20000", ""},
		{"engine.0", "2 3", "BRINGUPD_INSTANCE_SIZE=4", ""},
		{"judge.3 engine", "1 2 3", "", ""},
		{"judge.4", "", "", "cannot use judge.4: the role has the instances 0 to 3"},
		{"juge", "", "", `cannot show role "juge": the roles of the run are judge, engine, client`},
		{"judge.x", "", "", `cannot use role "judge.x": give a role or an instance, such as judge or judge.1`},
		{"engine.0.1", "", "", `cannot use role "engine.0.1"`},
	} {
		nodes, env, err := SelectNodes(t.Context(), run, strings.Fields(tc.words))
		if tc.fails != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.fails) {
				t.Errorf("%s: got %v, want %s", tc.words, err, tc.fails)
			}
			continue
		}
		hasEnv := tc.env == "" && env == nil || slices.Contains(env, tc.env)
		isList := func(entry string) bool { return strings.Contains(entry, "_ENDPOINTS=") }
		if err != nil || strings.Join(nodes, " ") != tc.nodes || !hasEnv || slices.ContainsFunc(env, isList) {
			t.Errorf("%s: got %v, %v, %v", tc.words, nodes, env, err)
		}
	}
}
