package gpu

import (
	"slices"
	"strings"
	"testing"
)

// TestXidsOfTheDriver verifies that every number in nverror.h of open-gpu-kernel-modules 595.45.04
// is in the table or in its list of those that do not occur on any GPU of the catalogue.
func TestXidsOfTheDriver(t *testing.T) {
	unused := []int{16, 19, 20, 21, 22, 23, 27, 28, 29, 30, 33, 34, 35, 36, 81, 91}
	named := []int{13, 14, 16, 19, 20, 21, 22, 23, 31, 32, 47, 48, 58, 65, 92, 93, 94, 95, 108, 110}
	for _, span := range [][2]int{{27, 36}, {39, 45}, {58, 65}, {68, 105}, {119, 176}} {
		for xid := span[0]; xid <= span[1]; xid++ {
			named = append(named, xid)
		}
	}
	for _, xid := range named {
		if _, known := xidTable()[xid]; known == slices.Contains(unused, xid) {
			t.Errorf("Xid %d is in the table: %v", xid, known)
		}
	}
}

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
