package main

import (
	"reflect"
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
	const text = "setup-cmd: file\npeer-timeout: 3s\nframework: ray\nray-head-args: [--of=file]\nverbose: true\n" +
		"sandbox-cmd: x\nsandbox-ready: tcp:3\ncheck: [gpu.busy=warn, net.*=off]\nactive-check: dcgmi diag -r 1\n" +
		"gpu-check: off\n"
	type rows []struct {
		name, file string // the file's text
		env, flags []string
		want       any
		origin     string
	}
	for key, all := range map[string]rows{
		"peer-timeout": {
			{"default", "", nil, nil, "10s", "default"},
			{"variable over file", text, []string{"BRINGUPD_PEER_TIMEOUT=4s"}, nil, "4s", "BRINGUPD_PEER_TIMEOUT"},
			{"flag over all", text, []string{"BRINGUPD_PEER_TIMEOUT=4s"},
				[]string{"--peer-timeout=5s"}, "5s", "--peer-timeout"},
			{"an outranked variable may be wrong", "", []string{"BRINGUPD_PEER_TIMEOUT=x"},
				[]string{"--peer-timeout=5s"},
				"5s", "--peer-timeout"},
		},
		"setup-cmd": {
			{"empty flag over file", text, nil, []string{"--setup-cmd="}, "", "--setup-cmd"},
			{"empty variable is none", text, []string{"BRINGUPD_SETUP_CMD="}, nil, "file", "job.yaml:1"},
			{"the last of two flags", "", nil, []string{"--setup-cmd=a", "--setup-cmd", "b"}, "b", "--setup-cmd"},
			{"lines", "setup-cmd: |\n  a\n  b\n", nil, nil, "a\nb\n", "job.yaml:1"},
		},
		"sandbox-ready": {{"empty probe over file", text, nil, []string{"--sandbox-ready="}, "", "--sandbox-ready"}},
		"verbose": {
			{"switch off over file", text, nil, []string{"--verbose=false"}, false, "--verbose"},
			{"switch on", "", nil, []string{"--verbose"}, true, "--verbose"},
			{"a capital switch", "verbose: True\n", nil, nil, true, "job.yaml:1"},
		},
		"ray-head-args": {
			{"list by file", text, nil, nil, []any{"--of=file"}, "job.yaml:4"},
			{"list by flags over file", text, nil,
				[]string{`--ray-head-args=--resources={"a":1,"b":2}`, "--ray-head-args=--x=3"},
				[]any{`--resources={"a":1,"b":2}`, "--x=3"}, "--ray-head-args"},
			{"list by a variable's lines over file", text, []string{"BRINGUPD_RAY_HEAD_ARGS=--a=1,2\n--b=3\n"}, nil,
				[]any{"--a=1,2", "--b=3"}, "BRINGUPD_RAY_HEAD_ARGS"},
			{"list by flag over variable", "", []string{"BRINGUPD_RAY_HEAD_ARGS=--a"},
				[]string{"--framework=ray", "--ray-head-args=--b=3"}, []any{"--b=3"}, "--ray-head-args"},
			{"one value for a list", "framework: ray\nray-head-args: --x=3\n", nil, nil, []any{"--x=3"}, "job.yaml:2"},
		},
		"check": {
			{"no rules by default", "", nil, nil, []any{}, "default"},
			{"rules by flags over file", text, nil, []string{"--check=gpu.*=warn", "--check", "gpu.remap=fail"},
				[]any{"gpu.*=warn", "gpu.remap=fail"}, "--check"},
		},
		"gpu-check": {{"a word that YAML takes for false", text, nil, nil, "off", "job.yaml:10"}},
		"framework": {
			{"another framework's variable", "", []string{"BRINGUPD_RAY_HEAD_ARGS=--a"}, nil, "none", "default"},
			{"variables of a parent's daemon", "", []string{"BRINGUPD_RANK=7", "BRINGUPD_NNODES=8"},
				nil, "none", "default"},
			{"comments only", "# nothing\n", nil, nil, "none", "default"},
			{"a key without a value", "framework:\n", nil, nil, "none", "default"},
		},
		"gpus-per-node": {{"a number", "gpus-per-node: 8\n", nil, nil, 8, "job.yaml:1"}},
		"worker-cmd": {{"an alias", "head-cmd: &serve ./serve\nworker-cmd: *serve\n", nil, nil,
			"./serve", "job.yaml:2"}},
		"driver": {{"driver", "driver: [sleep, 5]\n", nil, nil, []any{"sleep", "5"}, ""}},
	} {
		for _, tc := range all {
			t.Run(key+" "+tc.name, func(t *testing.T) {
				args := dry(tc.flags...)
				if tc.file != "" {
					args = append(args, "--config="+file(t, "job.yaml", tc.file))
				}
				values, origins := printed(t, call(t, tc.env, args...))
				if !reflect.DeepEqual(values[key], tc.want) || origins[key] != tc.origin {
					t.Errorf("got %v of %q, want %v of %q", values[key], origins[key], tc.want, tc.origin)
				}
			})
		}
	}
}

// TestOnThisRankAlone verifies that variables that identify one node are not used if they are
// inherited: a daemon's own children have them, or the shell that started all daemons.
func TestOnThisRankAlone(t *testing.T) {
	env := []string{"BRINGUPD_RANK=0", "BRINGUPD_NNODES=1", "BRINGUPD_LAUNCHED_LOCALLY=1",
		"BRINGUPD_LAUNCHED_OF=1", "BRINGUPD_JOB_ID=x"}
	got := call(t, env, "--dry-run", "--gpu-check=off", "--log-dir=/logs")
	if got.code != 65 || !strings.HasPrefix(got.err, "bringupd: cannot tell which node this is") {
		t.Errorf("it is node 0: code %d\n%s%s", got.code, got.out, got.err)
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
