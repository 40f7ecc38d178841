package gpu

import (
	"slices"
	"strings"
	"testing"
)

// policy lists the chosen classification of each Xid, independently of the file.
var policy = map[Effect]map[NextJobFitness][]int{
	EffectFatal: {NextUnfit: {79, 46, 62, 95, 110, 119, 120, 136, 140, 143, 158, 48, 54, 151, 167, 175}},
	EffectAsk: {
		NextUnfit: {74, 155, 173},
		NextFit:   {144, 145, 146, 147, 148, 149, 150, 154},
	},
	EffectApp: {NextFit: {8, 11, 13, 25, 31, 32, 39, 40, 41, 42, 45, 47, 60, 65, 68, 69, 70, 71, 72, 73, 75, 76, 77, 80, 94, 109,
		126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 142, 174,
		82, 83, 84, 85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105}},
	EffectWarn: {
		NextUnfit: {64, 156},
		NextFit: {14, 37, 38, 43, 44, 58, 59, 61, 63, 66, 67, 78, 90, 92, 93, 108, 121, 122, 123, 124, 125, 137, 138, 141, 152, 153,
			157, 160, 161, 159, 162, 163, 164, 165, 166, 168, 169, 170, 171, 172, 176, 185},
	},
	EffectIgnore: {NextFit: {87, 106, 107}},
}

func TestXids(t *testing.T) {
	all := 0
	for effect, byNext := range policy {
		for next, xids := range byNext {
			all += len(xids)
			for _, xid := range xids {
				verdict := lookUpXid(xid)
				if verdict.Effect != effect || verdict.Next != next {
					t.Errorf("Xid %d is %s, and then %s, want %s and %s", xid, verdict.Effect, verdict.Next, effect, next)
				}
				if verdict.Action == "" || verdict.Meaning == "" {
					t.Errorf("Xid %d has no action or meaning: %+v", xid, verdict)
				}
			}
		}
	}
	if len(xidTable()) != all {
		t.Errorf("the file has %d Xids, want %d", len(xidTable()), all)
	}
}

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

// TestXidsAreInOrder verifies the order of the file, in which people look numbers up.
func TestXidsAreInOrder(t *testing.T) {
	last := 0
	for line := range strings.Lines(xidTableData) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		xid, _, err := parseXidLine(strings.TrimSpace(line))
		if err != nil || xid <= last {
			t.Errorf("%q comes after Xid %d: %v", line, last, err)
		}
		last = xid
	}
}

func TestUnknownXid(t *testing.T) {
	unknown := lookUpXid(4711)
	if unknown.Meaning != "not in the table of Xids" || !strings.Contains(unknown.Action, xidCatalogue) {
		t.Errorf("an unknown Xid is described as %+v", unknown)
	}
}
