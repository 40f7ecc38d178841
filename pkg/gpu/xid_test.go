package gpu

import (
	"strings"
	"testing"
)

// TestXidsAreInOrder verifies the order of the file, in which people look numbers up, and that each
// has an action and a meaning.
func TestXidsAreInOrder(t *testing.T) {
	last := 0
	for line := range strings.Lines(xidTableData) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		xid, verdict, err := parseXidLine(strings.TrimSpace(line))
		if err != nil || xid <= last || verdict.Action == "" || verdict.Meaning == "" {
			t.Errorf("%q comes after Xid %d: %v", line, last, err)
		}
		last = xid
	}
}
