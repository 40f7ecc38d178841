package ray

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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
		{"a path too long for the first line",
			"#!/bin/sh\n'''exec' /a/python \"$0\" \"$@\"\n' '''\n" + entryPoint, nil},
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
			if got := findPython([]byte(tc.script)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWarm(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ray": "#!/opt/bin/python3\n" + entryPoint,
		"wrapped": "#!/bin/sh\nexec ray\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := []string{"/opt/bin/python3", "-c", startScript, filepath.Join(dir, "ray")}
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
			if diff := cmp.Diff(tc.want, warmCommand(tc.program, []string{"PATH=" + dir})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOrder verifies that unused components are not started, and that components the node does not
// wait for start later.
func TestOrder(t *testing.T) {
	later := []string{"start_log_monitor", "start_monitor"}
	for _, tc := range []struct {
		name  string
		argv  framework.Arguments
		user  framework.Arguments
		block bool
		want  startOrder
	}{
		{
			"a head", framework.Arguments{"ray", "start", "--head", "--include-dashboard=false"}, nil, false,
			startOrder{[]string{"start", "--head", "--include-dashboard=false"},
				[]string{"start_api_server", "start_ray_client_server"}, later},
		},
		{
			"with a dashboard", framework.Arguments{"ray", "start", "--head",
				"--include-dashboard=true"}, framework.Arguments{"--include-dashboard=true"}, false,
			startOrder{[]string{"start", "--head", "--include-dashboard=true"},
				[]string{"start_ray_client_server"}, later},
		},
		{
			"for Ray Client", framework.Arguments{"ray", "start", "--ray-client-server-port=10001"},
			framework.Arguments{"--ray-client-server-port", "10001"}, false,
			startOrder{[]string{"start", "--ray-client-server-port=10001"}, []string{"start_api_server"}, later},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got startOrder
			if err := json.Unmarshal(encodeStartOrder(tc.argv, tc.user), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// fakeRay contains the parts of Ray that startScript uses: a command that starts a GCS and then
// sends it the token.
var fakeRay = map[string]string{
	"ray":                        "from ray.scripts.scripts import main\nmain()\n",
	"ray.d/__init__.py":          "",
	"ray.d/scripts/__init__.py":  "",
	"ray.d/scripts/scripts.py":   "def main():\n    from ray._private.node import Node\n    Node()\n",
	"ray.d/_private/__init__.py": "",
	"ray.d/_private/node.py": `
import os, socket, subprocess, sys
from types import SimpleNamespace

GCS = """
import os, socket, sys, time
time.sleep(0.3)
if os.environ["ENDS"]:
    sys.exit(3)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    server.settimeout(2)  # no daemon ends it here
    print("the GCS has received", server.accept()[0].recv(99).decode())
"""

class Node:
    def __init__(self):
        self._ray_params = SimpleNamespace(gcs_server_port=int(os.environ["PORT"]))
        self.all_processes = {}
        self.start_gcs_server()
        for at in ("127.0.0.1", "::1"):
            try:
                with socket.create_connection((at, self._ray_params.gcs_server_port)) as gcs:
                    gcs.sendall(b"the token")
            except OSError:
                pass
        self.all_processes["gcs_server"][0].process.wait()

    def start_gcs_server(self):
        gcs = subprocess.Popen([sys.executable, "-c", GCS, str(self._ray_params.gcs_server_port)])
        self.all_processes["gcs_server"] = [SimpleNamespace(process=gcs)]
`,
}

// outsidePorts counts the ports that [listenOutside] has tried.
var outsidePorts atomic.Int32

// listenOutside listens, on every address, on a port that neither the kernel nor bringupd assigns: on
// one of those another test may begin to listen, at another address, at any time. No two calls return
// the same port.
func listenOutside(t *testing.T) net.Listener {
	t.Helper()
	for range 100 {
		port := 10000 + os.Getpid()%6000 + int(outsidePorts.Add(1))
		if listener, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			return listener
		}
	}
	t.Fatal("cannot find a free port")
	return nil
}

// TestStartTellsNoStranger verifies that ray start sends the token to its own GCS only: never to
// another user's process that has the port, and to no process if the GCS has ended.
func TestStartTellsNoStranger(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, stranger, ends string
		says                 string
	}{
		{"nobody else", "", "", "the GCS has received the token"},
		{"a stranger on the GCS's address", "127.0.0.1", "", "cannot start Ray's GCS: a process of user "},
		{"a stranger on another address", "[::1]", "", "cannot start Ray's GCS: a process of user "},
		{"a GCS that ends", "", "yes", "cannot start Ray's GCS: it ended with 3 before it used port "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range fakeRay {
				path := filepath.Join(dir, strings.Replace(name, "ray.d", "lib/ray", 1))
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			listener := listenOutside(t)
			if tc.stranger != "" {
				_ = listener.Close()
				var err error
				if listener, err = net.Listen("tcp", tc.stranger+":0"); err != nil {
					t.Fatal(err)
				}
			}
			port := listener.Addr().(*net.TCPAddr).Port
			if tc.stranger == "" {
				_ = listener.Close()
			}
			received := make(chan string, 1)
			go func() {
				var text []byte
				if conn, err := listener.Accept(); err == nil {
					text, _ = io.ReadAll(conn)
				}
				received <- string(text)
			}()
			cmd := exec.CommandContext(t.Context(), python, "-c", startScript, filepath.Join(dir, "ray"))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(dir, "lib"),
				"PORT="+strconv.Itoa(port), "ENDS="+tc.ends)
			cmd.Stdin = strings.NewReader(`{"args": [], "skipped_methods": [], "deferred_methods": []}`)
			out, err := cmd.CombinedOutput()
			_ = listener.Close()
			if (err == nil) != (tc.stranger == "" && tc.ends == "") || !strings.Contains(string(out), tc.says) {
				t.Errorf("%v: %s", err, out)
			}
			if text := <-received; text != "" {
				t.Errorf("the stranger has received %q", text)
			}
		})
	}
}
