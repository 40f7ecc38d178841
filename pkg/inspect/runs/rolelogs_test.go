package runs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestRoleLogs verifies which logs of a run with roles a word selects.
func TestRoleLogs(t *testing.T) {
	from, dir := "../timeline/testdata/runs/roles-running", filepath.Join(t.TempDir(), "roles-running")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"", "control", "nodes", "logs"} {
		if err := os.Chmod(filepath.Join(dir, sub), 0o700); err != nil { //nolint:gosec // a directory
			t.Fatal(err)
		}
	}
	// Only processes that have printed something have logs.
	for name := range strings.FieldsSeq(
		"judge-0 judge-1.g1 judge-2 judge-3 reward-0 trainer-0.0 trainer-0.1 trainer-0.2 trainer-0.3") {
		if err := os.WriteFile(filepath.Join(dir, "logs", name+".log"), []byte("line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run, job, err := signal.OpenExisting(t.Context(), dir, "login")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		word string
		want []string
	}{
		{"", []string{"trainer-0.0.log", "trainer-0.1.log", "trainer-0.2.log", "trainer-0.3.log"}},
		{"judge", []string{"judge-0.log", "judge-1.g1.log", "judge-1.log", "judge-2.log", "judge-3.log"}},
		{"judge.1", []string{"judge-1.g1.log", "judge-1.log"}},
		{"judge-1", []string{"judge-1.g1.log", "judge-1.log"}},
		{"trainer-0.2.log", []string{"trainer-0.2.log"}},
		{"trainer.0.2", []string{"trainer-0.2.log"}},
		{"judge.7", nil},
		{"head", []string{"daemon-0000.log", "judge-0.log", "judge-1.g1.log", "judge-1.log", "reward-0.log"}},
		{"1", []string{"daemon-0001.log", "judge-2.log", "judge-3.log", "reward-1.log"}},
		{"3", []string{"daemon-0003.log", "trainer-0.2.log", "trainer-0.3.log"}},
	} {
		node := func(_ context.Context, name string) (int, error) { return strconv.Atoi(name) }
		wanted, err := SelectLogs(t.Context(), run, job.Plan, tc.word, node)
		if err != nil {
			t.Errorf("%q: %v", tc.word, err)
			continue
		}
		names, err := run.ListNames(t.Context(), signal.LogsDir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range names {
			if _, node, ok := signal.ParseLogName(name); ok && wanted(name, node) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q selects %q, want %q", tc.word, got, tc.want)
		}
	}
}

func TestParseRoleLog(t *testing.T) {
	roles := []string{"judge", "judge-2", "a"}
	for name, want := range map[string]roleLog{
		"judge-1.log":      {roleWord{"judge", 1, -1}, "judge-1"},
		"judge-2-1.log":    {roleWord{"judge-2", 1, -1}, "judge-2-1"},
		"judge-1.3.g2.log": {roleWord{"judge", 1, 3}, "judge-1.3"},
		"judge-1.g2.log":   {roleWord{"judge", 1, -1}, "judge-1"},
		"a-12.0.log":       {roleWord{"a", 12, 0}, "a-12.0"},
		"daemon-0001.log":  {}, "judge-1": {}, "judge.log": {}, "judge-x.log": {}, "judge-1.2.3.log": {},
		"judge-1.gx.log": {}, "judge-g1.log": {}, "-1.log": {},
	} {
		if got, ok := parseRoleLog(name, roles); ok != (want.role != "") || ok && got != want {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
}
