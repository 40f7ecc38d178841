package report

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAttempts verifies that the report of the second of three attempts says so, names what has
// ended the others, and has links to their reports or directories.
func TestAttempts(t *testing.T) {
	dir := t.TempDir()
	for run, of := range map[string]string{"4712.0": "peer-76", "4712.0-a1": "service-77", "4712.0-a2": "running"} {
		if err := os.CopyFS(filepath.Join(dir, run), os.DirFS(filepath.Join(recordings, of))); err != nil {
			t.Fatal(err)
		}
	}
	setLaunchID(t, filepath.Join(dir, "4712.0-a1", "control", "job"), "4712")
	if err := os.WriteFile(filepath.Join(dir, "4712.0-a2", reportName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := ReadView(context.Background(), filepath.Join(dir, "4712.0-a1"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range v.Attempts {
		code := -1
		if a.Code != nil {
			code = *a.Code
		}
		got = append(got, fmt.Sprint(a.Number, " ", a.Run, " ", a.IsThis, " ", code, " ", a.Reason != ""))
	}
	want := []string{"1 4712.0 false 76 true", "2 4712.0-a1 true 77 true", "3 4712.0-a2 false -1 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	page := pageOf(t, v)
	for _, want := range []string{
		">attempt 2 of 3<", `href="file://` + dir + `/4712.0"`, `href="file://` + dir + `/4712.0-a2/report.html"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

func setLaunchID(t *testing.T, path, id string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job := make(map[string]any)
	if err := json.Unmarshal(data, &job); err != nil {
		t.Fatal(err)
	}
	job["launch_id"] = id
	data, err = json.Marshal(job)
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
