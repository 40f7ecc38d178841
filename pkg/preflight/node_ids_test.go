package preflight

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
)

func TestMeans(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		want    bool
	}{
		{"gpu.remap", true},
		{"gpu.*", true},
		{"host.shm", true},
		{"x.gpu_count", true},
		{"active.nccl-test", true},
		{"active.*", true},
		{"gpu.remaps", false},
		{"active.other", false},
		{"gpu", false},
	} {
		if got := (check.Rule{Pattern: tc.pattern}).Matches(ListNodeCheckIDs([]string{"/opt/nccl-test " +
			"--least=3"})...); got != tc.want {
			t.Errorf("%s means something: %t, want %t", tc.pattern, got, tc.want)
		}
	}
}

// TestDocumented compares docs/checks.md with the existing checks.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/checks.md")
	must(t, err)
	var documented []string
	named := regexp.MustCompile("`((?:gpu|cuda|net|node|host|x|active)\\.[a-z0-9_]+)`")
	for _, match := range named.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, match[1])
	}
	slices.Sort(documented)
	documented = slices.Compact(documented)
	ids := ListNodeCheckIDs(nil)
	for _, id := range ids {
		if !slices.Contains(documented, id) {
			t.Errorf("docs/checks.md does not tell of %s", id)
		}
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z]+\\.[a-z0-9_]+)` \\| ([^|]*) \\|")
	classes := make(map[string]string)
	for _, row := range row.FindAllStringSubmatch(string(text), -1) {
		classes[row[1]] = row[2]
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, "x.") && !regexp.MustCompile(`\b(node|environment|user)\b`).MatchString(classes[id]) {
			t.Errorf("docs/checks.md has no class for %s: %q", id, classes[id])
		}
	}
	for _, id := range documented {
		if !slices.Contains(ids, id) {
			t.Errorf("docs/checks.md tells of %s, which there is not", id)
		}
	}
}
