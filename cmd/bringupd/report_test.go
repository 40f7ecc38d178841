package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const recordedRuns = "../../pkg/inspect/timeline/testdata/runs"

// recordedRun returns a recorded run directory and a log directory that contains it.
func recordedRun(t *testing.T, name string) (dir, logs string) {
	t.Helper()
	logs = t.TempDir()
	dir = filepath.Join(logs, name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(recordedRuns, name))); err != nil {
		t.Fatal(err)
	}
	return dir, logs
}

func TestReportWritesAPage(t *testing.T) {
	dir, logs := recordedRun(t, "service-77")
	for _, tc := range []struct {
		name, file string
		args       []string
	}{
		{"by default", "report.html", []string{dir}},
		{"with -o behind it", "page.html", []string{dir, "-o", "page.html"}},
		{"with --output before it", "page.html", []string{"--output=page.html", dir}},
		{"of the newest run in the log directory", "report.html", []string{"--log-dir", logs}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := call(t, nil, append([]string{"report"}, tc.args...)...)
			if got.code != 0 || got.out != "" ||
				!strings.HasPrefix(got.err, "bringupd: Failed: ") || !strings.Contains(got.err, tc.file) {
				t.Errorf("got %d, %q, %q", got.code, got.out, got.err)
			}
			page, err := os.ReadFile(tc.file)
			if err != nil || !strings.Contains(string(page), "cannot bind: address already in use") {
				t.Errorf("the page does not explain it: %v", err)
			}
			if info, err := os.Stat(tc.file); err != nil || info.Mode() != 0o600 {
				t.Errorf("the page, which quotes logs, has mode %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestReportInOtherFormats(t *testing.T) {
	dir, _ := recordedRun(t, "peer-76")
	for _, tc := range []struct {
		name, begins, has string
		args              []string
	}{
		{"JSON", "{\n", `"critical_path"`, []string{"--format=json"}},
		{"a page", "<!doctype html>", `id="timeline"`, []string{"-o", "-"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := call(t, nil, append([]string{"report", dir}, tc.args...)...)
			if got.code != 0 || got.err != "" || !strings.HasPrefix(got.out, tc.begins) ||
				!strings.Contains(got.out, tc.has) {
				t.Errorf("got %d, %.300q, %q", got.code, got.out, got.err)
			}
			if tc.begins[0] == '{' && !json.Valid([]byte(got.out)) {
				t.Error("it is no JSON")
			}
			untouched(t)
		})
	}
}
