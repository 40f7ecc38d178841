package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// otherVersionRun returns a copy of a run that a bringupd of format version 1 has recorded, as if it
// had this version, and its log directory.
func otherVersionRun(t *testing.T, version string) (dir, logs string) {
	t.Helper()
	logs = t.TempDir()
	dir = filepath.Join(logs, "old")
	if err := os.CopyFS(dir, os.DirFS("testdata/version-1/old")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.EventsDir} {
		files, err := filepath.Glob(filepath.Join(dir, sub, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, file, string(bytes.ReplaceAll(data, []byte(`"v":1`), []byte(`"v":`+version))))
		}
	}
	return dir, logs
}

// TestOtherVersion verifies that all subcommands say that a run has another version, and that those
// which need no other record show what its result has.
func TestOtherVersion(t *testing.T) {
	for _, version := range []string{"1", "3"} {
		t.Run(version, func(t *testing.T) {
			dir, logs := otherVersionRun(t, version)
			reason := "format version " + version + ": this bringupd supports version 2"
			var status timeline.Status
			got := call(t, nil, "status", "--json", dir)
			if err := json.Unmarshal([]byte(got.out), &status); err != nil {
				t.Fatal(err)
			}
			if got.code != timeline.ExitFailed || !status.OtherVersion ||
				status.State != timeline.StateFailed || status.Nodes != 2 ||
				status.End == nil || status.End.Code != 3 || status.ToGate == 0 ||
				len(status.Steps) > 0 || len(status.Abnormal) > 0 ||
				len(status.Problems) != 1 || !strings.Contains(status.Problems[0], reason) {
				t.Errorf("the status is %d, %+v", got.code, status)
			}
			if got := call(t, nil, "status", dir); got.code != timeline.ExitFailed ||
				strings.Count(got.out, reason) != 1 || strings.Contains(got.out, "  nodes") {
				t.Errorf("the status is %d, %s", got.code, got.out)
			}
			var list runs.List
			got = call(t, nil, "list", "--json", logs)
			if err := json.Unmarshal([]byte(got.out), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Runs) != 1 || list.Runs[0].Code == nil || *list.Runs[0].Code != 3 ||
				!strings.Contains(list.Runs[0].Problem, reason) {
				t.Errorf("the list is %+v", list.Runs)
			}
			if got := call(t, nil, "report", "--format=json", dir); got.code != 0 ||
				strings.Count(got.out, reason) != 1 ||
				!strings.Contains(got.out, `"code": 3,`) ||
				!strings.Contains(got.out, `"node": null`) || strings.Contains(got.out, "not opened") {
				t.Errorf("the report is %d, %s, %s", got.code, got.out, got.err)
			}
			for _, goal := range []string{"up", "end"} {
				if got := call(t, nil, "wait", "--for="+goal, dir); got.code != 3 ||
					strings.Count(got.err, reason) != 1 {
					t.Errorf("the wait for %s is %d, %s", goal, got.code, got.err)
				}
			}
			for _, args := range [][]string{{"roles", dir}, {"why", dir}, {"logs", "driver", dir},
				{"stop", dir}, {"exec", dir, "--", "true"}} {
				refused(t, call(t, nil, args...), 64, reason)
			}
		})
	}
}

// TestOtherVersionWithoutResult verifies that nothing is said about a run of another version that has
// no result.
func TestOtherVersionWithoutResult(t *testing.T) {
	const reason = "format version 1: this bringupd supports version 2"
	dir, logs := otherVersionRun(t, "1")
	if err := os.Remove(filepath.Join(dir, signal.NameResult)); err != nil {
		t.Fatal(err)
	}
	var status timeline.Status
	got := call(t, nil, "status", "--json", dir)
	if err := json.Unmarshal([]byte(got.out), &status); err != nil || got.code != timeline.ExitInProgress ||
		status.State != timeline.StateUnknown || status.Phase != "" || status.Next != "" || status.End != nil {
		t.Errorf("the status is %d, %+v: %v", got.code, status, err)
	}
	for _, args := range [][]string{{"status", dir}, {"list", logs}, {"wait", "--for=up", dir}} {
		got := call(t, nil, args...)
		if strings.Count(got.out+got.err, reason) != 1 || args[0] == "wait" && got.code != 1 {
			t.Errorf("%s: %+v", args[0], got)
		}
	}
	refused(t, call(t, nil, "report", "--format=json", dir), 64, reason)
}
