package ray

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
)

// withLogs creates a node's temporary directory with the logs of a session.
func withLogs(t *testing.T, session string, logs ...string) string {
	t.Helper()
	temp := t.TempDir()
	dir := filepath.Join(temp, session)
	for _, sub := range []string{"logs", "sockets"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(temp, "session_latest")); err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-logs", log))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "logs", filepath.Base(log)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return temp
}

func TestRaySigns(t *testing.T) {
	tests := []struct {
		name string
		logs []string
		want []string // the beginning of each finding
	}{
		{"no logs", nil, nil},
		{"a raylet whose port is taken", []string{"raylet.err"},
			[]string{"raylet.err: Check failed: server_ Failed to start the grpc server. The " +
				"specified port is 27001."}},
		{"an agent whose port is taken", []string{"dashboard_agent.log"},
			[]string{"dashboard_agent.log: RuntimeError: Failed to bind to address 0.0.0.0:27001;"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			temp := withLogs(t, "session_1", tc.logs...)
			got := failureLines(temp)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q", got)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i], want) || len(got[i]) > 400 {
					t.Errorf("got %q", got[i])
				}
			}
			if len(tc.want) > 0 && !isTransient(process.Exit{Code: 1}, got) {
				t.Errorf("not taken for a failure in passing: %q", got)
			}
		})
	}
}

// TestRayletEnds verifies that the end of a raylet is explained by its own log, and not by what an
// agent that lived longer has logged.
func TestRayletEnds(t *testing.T) {
	for name, want := range map[string]string{
		"crashed": "raylet.err: [2026-11-27 02:18:54,641 E 8891 8891] (raylet) " +
			"logging.cc:474: *** SIGSEGV received",
		"terminated": `raylet.out: reason_message: "received SIGTERM"`,
		"killed": "raylet.out: no reason, as after SIGKILL (by a user or the OOM killer); " +
			"its last line: [2026-11-27 02:17:07,368 I",
		"agent-killed": "raylet.err: [2026-11-27 02:23:59,653 E 21597 21622] (raylet) " +
			"agent_manager.cc:87: The raylet exited immediately because one Ray agent failed, " +
			"agent_name = dashboard_agent.",
	} {
		t.Run(name, func(t *testing.T) {
			raylet := "raylet.out"
			if name == "crashed" || name == "agent-killed" {
				raylet = "raylet.err"
			}
			temp := withLogs(t, "session_1", filepath.Join(name, raylet), filepath.Join(name, "dashboard_agent.log"))
			agent := filepath.Join(temp, "session_1", "logs", "dashboard_agent.log")
			text, err := os.ReadFile(agent)
			if err == nil {
				err = os.WriteFile(agent, append([]byte("OSError: of the agent\n"), text...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := failureLines(temp)
			if len(got) == 0 || !strings.HasPrefix(got[0], want) {
				t.Fatalf("got %q", got)
			}
			isOfAgent := slices.Contains(got, "dashboard_agent.log: OSError: of the agent")
			if isOfAgent != (name == "agent-killed") || len(got) > 2 {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestLastPart verifies that the end of a long log is read, which contains the reason.
func TestLastPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 1<<20)+"\nOSError: it is full\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := findFailureLines(readFileEnd(path)); len(got) != 1 || got[0] != "OSError: it is full" {
		t.Errorf("got %q", got)
	}
	if got := findFailureLines([]byte("ValueError: Dashboard http address not found in InternalKV.\n")); len(got) != 0 {
		t.Errorf("an agent without a dashboard explains %q", got)
	}
}

// TestRayTransient checks the last lines of failed starts, as Ray 2.60.0 printed them.
func TestRayTransient(t *testing.T) {
	tests := []struct {
		file string
		code int
		want bool
	}{
		{"version", 1, false},
		{"flag", 2, false},
		{"number", 2, false},
		{"address", 1, false},
		{"no-address", 1, false},
		{"resources", 1, false},
		{"cpu-resource", 1, false},
		{"long-path", 1, false},
		{"port-twice", 1, false},
		{"no-token", 1, false},
		{"wrong-token", 1, false},
		{"no-auth", 1, false},
		{"no-gcs", 1, true},
		{"other-gcs", 1, true},
		{"gcs-port-taken", 1, true},
		{"client-port-taken", 1, true},
		{"dashboard-port-taken", 1, true},
		{"raylet-timeout", 1, true},
		// It prints nothing here; Ray's own logs contain the reason.
		{"agent-port-taken", 1, false},
	}
	for _, tc := range tests {
		t.Run(tc.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-starts", tc.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			if got := isTransient(process.Exit{Code: tc.code}, strings.Split(string(text), "\n")); got != tc.want {
				t.Errorf("got %v for:\n%s", got, text)
			}
		})
	}
}

func TestRayTransientByExit(t *testing.T) {
	busy := []string{"OSError: [Errno 98] Address already in use"}
	tests := []struct {
		name  string
		exit  process.Exit
		lines []string
		want  bool
	}{
		{"a port that is taken", process.Exit{Code: 1}, busy, true},
		{"killed meanwhile", process.Exit{Code: -1, Signal: syscall.SIGKILL}, busy, false},
		{"not found", process.Exit{Code: 127}, busy, false},
		{"says nothing", process.Exit{Code: 1}, nil, false},
		{"refused after a wait", process.Exit{Code: 1},
			[]string{"Failed to connect to GCS at address", "RuntimeError: Version mismatch: The cluster"}, false},
		{"a cgroup that Ray cannot use", process.Exit{Code: 1}, []string{
			"Exception: The current node timed out during startup. This could happen because",
			"raylet.err: Check failed: cgroup_manager_s.ok() Failed to start CgroupManager due to Invalid: Cgroupv1"},
			false},
		{"says what is not known", process.Exit{Code: 1}, []string{"RuntimeError: the moon is full"}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := isTransient(tc.exit, tc.lines); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestAdviseDriver verifies the advice for what failed drivers of the real Ray printed.
func TestAdviseDriver(t *testing.T) {
	const dashboard, start = "enable Ray's dashboard", "leave out ray start"
	plain, enabled := *New(), Cluster{HeadArgs: []string{"--include-dashboard=true"}}
	for _, tc := range []struct {
		cluster    Cluster
		said, want string
	}{
		{plain, "job-submit", dashboard},
		{plain, "job-submit-address", dashboard},
		{enabled, "job-submit-address", ""},
		{plain, "start", start},
		{enabled, "symmetric-run", start},
		{plain, "out-of-memory", "RAY_memory_usage_threshold"},
	} {
		text, err := os.ReadFile("testdata/ray-2.60.0-drivers/" + tc.said + ".log")
		if err != nil {
			t.Fatal(err)
		}
		step := tc.cluster.adviseDriver(strings.Split(string(text), "\n"))
		if tc.want == "" && step != "" || !strings.Contains(step, tc.want) {
			t.Errorf("the advice for %s of %+v is %q, want %q", tc.said, tc.cluster, step, tc.want)
		}
	}
	step := plain.adviseDriver([]string{
		"ValueError: When connecting to an existing cluster, num_cpus and num_gpus must not be provided."})
	if !strings.Contains(step, "--ray-head-args=--num-cpus=N") {
		t.Errorf("the advice for resources in ray.init is %q", step)
	}
	if step := plain.adviseDriver([]string{"ConnectionError: Could not read 'actors' from GCS."}); step != "" {
		t.Errorf("the advice for another error is %q", step)
	}
}
