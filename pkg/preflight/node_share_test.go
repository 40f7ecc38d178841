package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

func TestShare(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		name, dir string
		want      map[string]check.Verdict
		says      string
	}{
		{"a directory", dir, map[string]check.Verdict{"host.share": check.Pass, "host.clock": check.Pass}, ""},
		{"one that a run would make", filepath.Join(dir, "a", "b"),
			map[string]check.Verdict{"host.share": check.Pass, "host.clock": check.Pass}, ""},
		{"a file", file, map[string]check.Verdict{"host.share": check.Unknown}, "not a directory"},
		{"one that nobody can write to", "/proc/sys",
			map[string]check.Verdict{"host.share": check.Unknown}, "/proc/sys"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := shareCheck{tc.dir, shareTimeout, readShareFacts}.Inspect(t.Context(), nil)
			if got := verdicts(check.Report{Findings: found}); len(got) != len(tc.want) ||
				got["host.clock"] != tc.want["host.clock"] {
				t.Fatalf("got %+v", found)
			}
			// A test machine may have little free space; the check has at least determined it.
			got := found[0]
			if tc.want["host.share"] == check.Unknown &&
				(got.Verdict != check.Unknown || !strings.Contains(got.Observed, tc.says)) || got.ID != "host.share" {
				t.Errorf("got %+v", got)
			}
		})
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("there is %v, %v", names, err)
	}
}

// TestShareIsSilent verifies that a file system that does not answer in time is reported.
func TestShareIsSilent(t *testing.T) {
	silent := make(chan struct{})
	defer close(silent)
	ask := func(string) check.ShareFacts { <-silent; return check.ShareFacts{} }
	found := shareCheck{dir: "/x", timeout: time.Millisecond, readFacts: ask}.Inspect(t.Context(), nil)
	if len(found) != 1 || found[0].Verdict != check.Unknown ||
		!strings.Contains(found[0].Observed, "did not respond within 1ms") {
		t.Errorf("got %+v", found)
	}
}
