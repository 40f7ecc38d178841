package ray

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdviseDriver verifies the advice for what drivers of the real Ray printed without a dashboard.
func TestAdviseDriver(t *testing.T) {
	recorded, err := filepath.Glob("testdata/ray-2.60.0-drivers/*.log")
	if err != nil || len(recorded) != 2 {
		t.Fatalf("there are %d recorded outputs: %v", len(recorded), err)
	}
	for _, path := range recorded {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		if step := New().adviseDriver(lines); !strings.Contains(step, "BRINGUPD_RAY_HEAD_ARGS=--include-dashboard=true") {
			t.Errorf("the advice for %s is %q", path, step)
		}
		enabled := Cluster{HeadArgs: []string{"--include-dashboard=true"}}
		if step := enabled.adviseDriver(lines); step != "" {
			t.Errorf("with a dashboard, the advice for %s is %q", path, step)
		}
	}
	if step := New().adviseDriver([]string{"ConnectionError: Could not read 'actors' from GCS."}); step != "" {
		t.Errorf("the advice for another error is %q", step)
	}
}
