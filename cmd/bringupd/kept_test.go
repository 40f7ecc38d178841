package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// keep creates a framework's own log in a run directory.
func keep(t *testing.T, dir, service, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, signal.LogsDir, service+".d", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, text)
	return path
}

// TestLogsKept shows logs that a framework has written itself: the nodes that have any, the logs of
// a node, and one log.
func TestLogsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dir := endedRun(t, "4711.0")
	for i, path := range []string{
		keep(t, dir, "ray-head", "raylet.out", "raylet 0\n"),
		keep(t, dir, "ray-head", "gcs_server.out", strings.Repeat("gcs\n", 512)),
		keep(t, dir, "ray-worker-0001", "raylet.out", "raylet 1\n"),
		keep(t, dir, "ray-worker-0001", "raylet.err", "oops\x1b[2J\n"),
		keep(t, dir, "ray-worker-0001", "a\x1b[2J\nb", ""),
	} {
		at := time.Date(2026, 1, 2, 3, 4, i, 0, time.Local)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, "secret\n")
	if err := os.Symlink(secret, filepath.Join(dir, signal.LogsDir, "ray-head.d", "link")); err != nil {
		t.Fatal(err)
	}
	logs := "BRINGUPD_LOG_DIR=" + filepath.Dir(dir)
	for _, tc := range []struct{ args, want string }{
		{"ray", "node 0 (node0000)  2 files  2.0 KiB\nnode 1 (node0001)  3 files  18 bytes\n"},
		{"ray 4711.0", "node 0 (node0000)  2 files  2.0 KiB\nnode 1 (node0001)  3 files  18 bytes\n"},
		{"ray head", "9 bytes  2026-01-02 03:04:00  raylet.out\n2.0 KiB  2026-01-02 03:04:01  gcs_server.out\n"},
		{"ray 1 4711.0", "9 bytes  2026-01-02 03:04:02  raylet.out\n9 bytes  2026-01-02 03:04:03  raylet.err\n0 bytes  2026-01-02 03:04:04  a\ufffd[2J b\n"},
		{"ray 0 raylet", "raylet 0\n"},
		{"ray node0001 raylet.out", "raylet 1\n"},
		{"ray 1 raylet.e " + dir, "oops\x1b[2J\n"},
		{"ray 1 raylet.out 4711.0 -f", "raylet 1\n"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if got := call(t, []string{logs}, append([]string{"logs"}, strings.Fields(tc.args)...)...); got.code != 0 || got.out != tc.want {
				t.Errorf("code %d, shown %q, want %q\n%s", got.code, got.out, tc.want, got.err)
			}
		})
	}
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"ray 1 raylet", 64, "one of these names: raylet.err, raylet.out"},
		{"ray 1 -f", 64, "cannot follow a list"},
		{"ray 7", 64, `no node "7"`},
		{"ray 1 " + filepath.Dir(secret), 64, "cannot find a run"},
		{"ray 1 raylet.out 4711.0 more", 64, "4 arguments"},
		{"ray 1 gcs", 1, "none of node 1 named gcs in " + filepath.Join(dir, signal.LogsDir) + "; they are copied when a run fails, or with --ray-logs=end or a duration"},
		{"ray 0 link", 70, "it is a symbolic link"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			refused(t, call(t, []string{logs}, append([]string{"logs"}, strings.Fields(tc.args)...)...), tc.code, tc.says)
		})
	}
	if got := call(t, []string{logs}, "logs", "dask"); got.code != 1 || strings.Contains(got.err, "they come there") {
		t.Errorf("of a framework that keeps none it shows %+v", got)
	}
	refused(t, call(t, nil, "logs", "ray", endedRun(t, "4712.0")), 1, "there are none in")
	refused(t, call(t, nil, "logs", "ray", "head", endedRun(t, "4713.0")), 1, "there are none of node 0 in")
}

// TestLogsKeptFollow follows a log from before it exists until the run is over.
func TestLogsKeptFollow(t *testing.T) {
	dir := runDir(t, 2, -1)
	follow := program(t, "logs", "-f", "ray", "1", "raylet", dir)
	follow.Stderr = os.Stderr
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	shown := bufio.NewReader(out)
	comes := func(want string) {
		t.Helper()
		if line, err := shown.ReadString('\n'); line != want {
			t.Errorf("shown %q, %v; want %q", line, err, want)
		}
	}
	path := keep(t, dir, "ray-worker-0001", "raylet.out", "one\n")
	comes("one\n")
	keep(t, dir, "ray-worker-0001", "raylet.err", "another that begins so\n")
	for _, line := range []string{"two\n", "three\n"} {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if line == "three\n" {
			touch(t, dir, signal.ControlDir, signal.NameOrderlyEnd)
			ends(t, dir, 0)
		}
		comes(line)
	}
	comes("")
	if err := follow.Wait(); err != nil {
		t.Error(err)
	}
}
