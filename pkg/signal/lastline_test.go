package signal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadLastLine verifies which line of a log is its last one, and that it has no secret, also of
// a line whose beginning is not read.
func TestReadLastLine(t *testing.T) {
	long := strings.Repeat("x", 3*lastLineBytes)
	for name, tc := range map[string]struct{ content, want string }{
		"empty":                   {"", ""},
		"lines":                   {"a\n  b c\n\n", "b c"},
		"without an end":          {"a\nb", "b"},
		"a progress bar":          {"a\n10 %\r20 %\r30 %", "30 %"},
		"a long progress bar":     {strings.Repeat("loads\r", lastLineBytes) + "30 %", "30 %"},
		"controls":                {"\x1b[31mred\x1b[0m\n", "red"},
		"a secret":                {"a\ntoken=hunter2\n", "token=…"},
		"after a long line":       {long + "\nb\n", "b"},
		"a long line":             {"token=" + long, ""},
		"a long line with an end": {"token=" + long + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "head.log"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			reader, err := OpenReader(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			logs, err := reader.ListDir(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if got := logs.ReadLastLine(t.Context(), "head.log"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if got := logs.ReadLastLine(t.Context(), "driver.log"); got != "" {
				t.Errorf("of a log that does not exist: %q", got)
			}
		})
	}
}
