package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSyntaxErrorOfLargeFile verifies that the line of a syntax error is found wherever it is in a
// large file.
func TestSyntaxErrorOfLargeFile(t *testing.T) {
	const lines = 3000
	for name, tc := range map[string]struct {
		at    int // index of the line with the mistake
		wrong string
		line  string
	}{
		"at the beginning": {0, "a: b: c\n", ":1: "},
		"in the middle":    {lines / 2, " a: 1\n", ":1501: "},
		"at the end":       {lines, "a: [\n", ":3001: "},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("- a\n", tc.at) + tc.wrong + strings.Repeat("- a\n", lines-tc.at)
			path := filepath.Join(t.TempDir(), "job.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readConfig(SourceFile, path, readFile, examples(), nil)
			if err == nil || !strings.Contains(err.Error(), tc.line) {
				t.Errorf("%v, want line %s", err, tc.line)
			}
		})
	}
}
