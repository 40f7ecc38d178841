package ray

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

const entryPoint = "import sys\nfrom ray.scripts.scripts import main\nsys.exit(main())\n"

func TestInterpreter(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         []string
	}{
		{"pip's", "#!/opt/venv/bin/python3\n" + entryPoint, []string{"/opt/venv/bin/python3"}},
		{"with an option", "#!/opt/venv/bin/python3.11 -E\n" + entryPoint, []string{"/opt/venv/bin/python3.11", "-E"}},
		{"by env", "#!/usr/bin/env python3\n" + entryPoint, []string{"/usr/bin/env", "python3"}},
		{"a long path", "#!/bin/sh\n'''exec' /a/long/path/bin/python \"$0\" \"$@\"\n' '''\n" + entryPoint, []string{"/a/long/path/bin/python"}},
		{"one with blanks", "#!/bin/sh\n'''exec' \"/a long/path/bin/python\" \"$0\" \"$@\"\n' '''\n" + entryPoint, []string{"/a long/path/bin/python"}},
		{"a wrapper", "#!/bin/sh\nexec /opt/ray/bin/ray \"$@\"\n", nil},
		{"a wrapper that names it", "#!/bin/bash\n# from ray.scripts.scripts import main\nexec ray\n", nil},
		{"another shell line", "#!/bin/sh\necho\nfrom ray.scripts.scripts import main\n", nil},
		{"another Python program", "#!/usr/bin/python3\nprint(1)\n", nil},
		{"env with options", "#!/usr/bin/env -S python3 -E\n" + entryPoint, nil},
		{"a binary", "\x7fELF\x02", nil},
		{"nothing", "", nil},
		{"no word", "#!\n" + entryPoint, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := interpreter([]byte(tc.script)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWarm(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ray": "#!/opt/bin/python3\n" + entryPoint, "wrapped": "#!/bin/sh\nexec ray\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := []string{"/opt/bin/python3", "-c", startProgram, filepath.Join(dir, "ray")}
	for _, tc := range []struct {
		name, program string
		want          []string
	}{
		{"found in PATH", "ray", script},
		{"by its path", filepath.Join(dir, "ray"), script},
		{"a wrapper", "wrapped", nil},
		{"not there", "absent", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, warm(tc.program, []string{"PATH=" + dir})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What nobody would use is not started, and what the node does not wait for comes later.
func TestOrder(t *testing.T) {
	later := []string{"start_log_monitor", "start_monitor"}
	for _, tc := range []struct {
		name  string
		argv  framework.Arguments
		user  framework.Arguments
		block bool
		want  order
	}{
		{
			"a head", framework.Arguments{"ray", "start", "--head", "--include-dashboard=false"}, nil, false,
			order{[]string{"start", "--head", "--include-dashboard=false"}, []string{"start_api_server", "start_ray_client_server"}, later},
		},
		{
			"with a dashboard", framework.Arguments{"ray", "start", "--head", "--include-dashboard=true"}, framework.Arguments{"--include-dashboard=true"}, false,
			order{[]string{"start", "--head", "--include-dashboard=true"}, []string{"start_ray_client_server"}, later},
		},
		{
			"for Ray Client", framework.Arguments{"ray", "start", "--ray-client-server-port=10001"}, framework.Arguments{"--ray-client-server-port", "10001"}, false,
			order{[]string{"start", "--ray-client-server-port=10001"}, []string{"start_api_server"}, later},
		},
		{
			"in a block of ports", framework.Arguments{"ray", "start", "--port=7000"}, nil, true,
			order{[]string{"start", "--port=7000"}, []string{"start_api_server"}, later},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got order
			if err := json.Unmarshal(orderOf(tc.argv, tc.user, tc.block), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
