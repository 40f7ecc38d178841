package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestReadLogsShowsTheEnds verifies that the log of the cause is the first one, that the end of a
// long log is shown, and that an entry that is not a regular file is reported without waiting for
// it.
func TestReadLogsShowsTheEnds(t *testing.T) {
	run := sample(200, true)
	run.Path = t.TempDir()
	dir := filepath.Join(run.Path, signal.LogsDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"driver.log":      strings.Repeat("a line of which many fill the file\n", 5000) + "the last one\n",
		"worker-0199.log": "killed\n", "worker-0007.log": "well\n",
		"daemon-0000.log": `{"level":"info","at":"2026-11-21T02:10:51.402Z","msg":"join is over","took":"1s"}` + "\n",
		"notes.txt":       "not a log",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "head.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	logs := ReadLogs(context.Background(), run)
	var got []string
	for _, log := range logs {
		got = append(got, log.Name)
	}
	if want := []string{"worker-0199.log", "driver.log", "head.log", "daemon-0000.log"}; !slices.Equal(got, want) {
		t.Fatalf("the logs are %v, want %v", got, want)
	}
	driver := logs[1]
	n := len(driver.Lines)
	if n != maxImportantLines || driver.Lines[n-1] != "the last one" || !driver.Cut || driver.Error != "" {
		t.Errorf("of the driver's log %d lines are shown: %q", n, driver.Lines)
	}
	if logs[2].Error == "" {
		t.Error("it is not told that head.log is no file")
	}
	if want := "02:10:51.402 info join is over took=1s"; logs[3].Lines[0] != want {
		t.Errorf("a daemon says %q, want %q", logs[3].Lines[0], want)
	}
}

// TestLogsOfManyInstances verifies that of many instances only those that have exited, or run on a
// node that caused the failure, have their logs shown, and that logs are those of the nodes of the
// instances.
func TestLogsOfManyInstances(t *testing.T) {
	for _, tc := range []struct {
		nodes int
		want  []string
	}{
		{4, []string{"srv-0.log 0", "srv-3.log 0", "srv-9.g1.log 2", "srv-4.log 1"}},
		{251, []string{"srv-3.log 0", "srv-9.g1.log 2"}},
	} {
		run := sampleRoles(tc.nodes, false)
		run.Roles.Roles[0].Instances[3].LastExit = &record.InstanceExit{Failure: record.Failure{Log: "srv-3.log"}}
		run.Nodes[2].Failures = []record.Failure{{}}
		var got []string
		for _, log := range selectLogs(run, []string{"srv-0.log", "srv-3.log", "srv-4.log", "srv-9.g1.log"}) {
			got = append(got, fmt.Sprint(log.name, " ", log.nodeIndex))
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("of %d nodes %v are shown, want %v", tc.nodes, got, tc.want)
		}
	}
}
