package health_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

// TestFindErrorLine finds the errors in the outputs of real programs that have failed, some of them
// for another reason than the one that their output shows. testdata/errors/README.md describes the
// files.
func TestFindErrorLine(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.txt")
	if err != nil || len(files) < 120 {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	found, all := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, output, _ := strings.Cut(string(data), "\n\n")
		facts := make(map[string]string)
		for line := range strings.Lines(head) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": ")
			facts[name] = value
		}
		code, err := strconv.Atoi(facts["exit"])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want := facts["error"]
		got := health.FindErrorLine(code, strings.Split(strings.TrimRight(output, "\n"), "\n"))
		switch {
		case want == "none" && got != "":
			t.Errorf("%s: the false line %q", filepath.Base(file), got)
		case want != "none":
			all++
			if isSameError(got, want) {
				found++
			} else if got != "" {
				t.Errorf("%s: %q, want %q", filepath.Base(file), got, want)
			} else {
				t.Logf("%s: nothing, want %q", filepath.Base(file), want)
			}
		}
	}
	if found*10 < all*9 {
		t.Errorf("%d of %d errors are found, want 90 %%", found, all)
	}
}

// isSameError reports whether a line is the expected one, or has its beginning.
func isSameError(got, want string) bool {
	const decisive = 60
	return got != "" && (strings.Contains(want, strings.TrimSuffix(got, "…")) ||
		strings.Contains(got, want[:min(len(want), decisive)]))
}
