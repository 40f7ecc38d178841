package main

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// printed returns the configuration that --dry-run prints: the values and their origins.
func printed(t *testing.T, got said) (values map[string]any, origins map[string]string) {
	t.Helper()
	if got.code != 0 {
		t.Fatalf("--dry-run ended with %d: %s", got.code, got.err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(got.out), &root); err != nil {
		t.Fatalf("%v in:\n%s", err, got.out)
	}
	if err := root.Decode(&values); err != nil {
		t.Fatal(err)
	}
	origins = make(map[string]string)
	top := root.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		comment := top.Content[i].LineComment + top.Content[i+1].LineComment
		origins[top.Content[i].Value] = strings.TrimPrefix(comment, "# ")
	}
	return values, origins
}

func dry(args ...string) []string {
	return append(append([]string{"--dry-run"}, rank0...), args...)
}

func TestPrecedence(t *testing.T) {
	const text = "setup-cmd: file\npeer-timeout: 3s\nframework: ray\nray-head-args: [--of=file]\nverbose: true\nsandbox-cmd: x\nsandbox-ready: tcp:3\n" +
		"check: [gpu.busy=warn, net.*=off]\nactive-check: dcgmi diag -r 1\ngpu-check: off\n"
	for _, tc := range []struct {
		name   string
		key    string
		env    []string
		file   bool
		flags  []string
		want   any
		origin string
	}{
		{name: "default", key: "peer-timeout", want: "10s", origin: "default"},
		{name: "variable over file", key: "peer-timeout", file: true, env: []string{"BRINGUPD_PEER_TIMEOUT=4s"}, want: "4s", origin: "BRINGUPD_PEER_TIMEOUT"},
		{name: "flag over all", key: "peer-timeout", file: true, env: []string{"BRINGUPD_PEER_TIMEOUT=4s"}, flags: []string{"--peer-timeout=5s"}, want: "5s", origin: "--peer-timeout"},
		{name: "a variable that is outranked may be wrong", key: "peer-timeout", env: []string{"BRINGUPD_PEER_TIMEOUT=x"}, flags: []string{"--peer-timeout=5s"}, want: "5s", origin: "--peer-timeout"},
		{name: "empty flag over file", key: "setup-cmd", file: true, flags: []string{"--setup-cmd="}, want: "", origin: "--setup-cmd"},
		{name: "empty variable is none", key: "setup-cmd", file: true, env: []string{"BRINGUPD_SETUP_CMD="}, want: "file", origin: "job.yaml:1"},
		{name: "empty probe over file", key: "sandbox-ready", file: true, flags: []string{"--sandbox-ready="}, want: "", origin: "--sandbox-ready"},
		{name: "switch off over file", key: "verbose", file: true, flags: []string{"--verbose=false"}, want: false, origin: "--verbose"},
		{name: "switch on", key: "verbose", flags: []string{"--verbose"}, want: true, origin: "--verbose"},
		{name: "the last of two flags", key: "setup-cmd", flags: []string{"--setup-cmd=a", "--setup-cmd", "b"}, want: "b", origin: "--setup-cmd"},
		{name: "list by file", key: "ray-head-args", file: true, want: []any{"--of=file"}, origin: "job.yaml:4"},
		{
			name: "list by flags over file", key: "ray-head-args", file: true,
			flags: []string{`--ray-head-args=--resources={"a":1,"b":2}`, "--ray-head-args=--x=3"},
			want:  []any{`--resources={"a":1,"b":2}`, "--x=3"}, origin: "--ray-head-args",
		},
		{
			name: "list by a variable's lines over file", key: "ray-head-args", file: true,
			env: []string{"BRINGUPD_RAY_HEAD_ARGS=--a=1,2\n--b=3\n"}, want: []any{"--a=1,2", "--b=3"}, origin: "BRINGUPD_RAY_HEAD_ARGS",
		},
		{
			name: "list by flag over variable", key: "ray-head-args", env: []string{"BRINGUPD_RAY_HEAD_ARGS=--a"},
			flags: []string{"--framework=ray", "--ray-head-args=--b=3"}, want: []any{"--b=3"}, origin: "--ray-head-args",
		},
		{name: "no rules by default", key: "check", want: []any{}, origin: "default"},
		{name: "rules by file", key: "check", file: true, want: []any{"gpu.busy=warn", "net.*=off"}, origin: "job.yaml:8"},
		{
			name: "rules by flags over file", key: "check", file: true, flags: []string{"--check=gpu.*=warn", "--check", "gpu.remap=fail"},
			want: []any{"gpu.*=warn", "gpu.remap=fail"}, origin: "--check",
		},
		{
			name: "rules by a variable's lines over file", key: "check", file: true, env: []string{"BRINGUPD_CHECK=gpu.*=warn\ngpu.remap=fail\n"},
			want: []any{"gpu.*=warn", "gpu.remap=fail"}, origin: "BRINGUPD_CHECK",
		},
		{name: "a word that YAML takes for false", key: "gpu-check", file: true, want: "off", origin: "job.yaml:10"},
		{name: "another framework's variable is let be", key: "framework", env: []string{"BRINGUPD_RAY_LOGS=end"}, want: "none", origin: "default"},
		{name: "what a parent's daemon tells is no flag", key: "framework", env: []string{"BRINGUPD_RANK=7", "BRINGUPD_NNODES=8", "BRINGUPD_SIZE=8"}, want: "none", origin: "default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := dry(tc.flags...)
			if tc.file {
				args = append(args, "--config="+file(t, "job.yaml", text))
			}
			values, origins := printed(t, call(t, tc.env, args...))
			if list, ok := tc.want.([]any); ok {
				got, _ := values[tc.key].([]any)
				if !slices.Equal(got, list) {
					t.Errorf("got %v, want %v", values[tc.key], tc.want)
				}
			} else if values[tc.key] != tc.want {
				t.Errorf("got %v, want %v", values[tc.key], tc.want)
			}
			if origins[tc.key] != tc.origin {
				t.Errorf("it comes from %q, want %q", origins[tc.key], tc.origin)
			}
		})
	}
}

// TestOnThisRankAlone verifies that variables that identify one node are not used if they are
// inherited: a daemon's own children have them, or the shell that started all daemons.
func TestOnThisRankAlone(t *testing.T) {
	env := []string{"BRINGUPD_RANK=0", "BRINGUPD_NNODES=1", "BRINGUPD_LAUNCHED_LOCALLY=1", "BRINGUPD_LAUNCHED_OF=1", "BRINGUPD_JOB_ID=x"}
	got := call(t, env, "--dry-run", "--gpu-check=off", "--log-dir=/logs")
	if got.code != 65 || !strings.HasPrefix(got.err, "bringupd: cannot tell which node this is") {
		t.Errorf("it is node 0: code %d\n%s%s", got.code, got.out, got.err)
	}
}

func TestFile(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		key        string
		want       any
	}{
		{"empty", "", "framework", "none"},
		{"comments only", "# nothing\n", "framework", "none"},
		{"a key without a value says nothing", "framework:\n", "framework", "none"},
		{"a number", "gpus-per-node: 8\n", "gpus-per-node", 8},
		{"an alias", "head-cmd: &serve ./serve\nworker-cmd: *serve\n", "worker-cmd", "./serve"},
		{"a capital switch", "verbose: True\n", "verbose", true},
		{"one value for a list", "framework: ray\nray-head-args: --x=3\n", "ray-head-args", []any{"--x=3"}},
		{"lines", "setup-cmd: |\n  a\n  b\n", "setup-cmd", "a\nb\n"},
		{"driver", "driver: [sleep, 5]\n", "driver", []any{"sleep", "5"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := file(t, "job.yaml", tc.text)
			values, _ := printed(t, call(t, nil, dry("--config="+path)...))
			if list, ok := tc.want.([]any); ok {
				if got, _ := values[tc.key].([]any); !slices.Equal(got, list) {
					t.Errorf("got %v, want %v", values[tc.key], tc.want)
				}
			} else if values[tc.key] != tc.want {
				t.Errorf("got %v, want %v", values[tc.key], tc.want)
			}
		})
	}
}

func TestFileByVariable(t *testing.T) {
	path := file(t, "job.yaml", "setup-cmd: file\ndriver: [a]\n")
	values, origins := printed(t, call(t, []string{"BRINGUPD_CONFIG=" + path}, dry("--", "b", "--dry-run=false")...))
	if values["setup-cmd"] != "file" || origins["setup-cmd"] != "job.yaml:1" {
		t.Errorf("the file by a variable gives %v (%s)", values["setup-cmd"], origins["setup-cmd"])
	}
	if got, _ := values["driver"].([]any); !slices.Equal(got, []any{"b", "--dry-run=false"}) {
		t.Errorf("the command line's driver became %v", got)
	}
	values, _ = printed(t, call(t, []string{"BRINGUPD_CONFIG=" + path}, dry("--config=")...))
	if values["setup-cmd"] != "" {
		t.Errorf("no file is wanted, and it gives %v", values["setup-cmd"])
	}
}
