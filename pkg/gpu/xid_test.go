package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/internal/textutil"
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
	table, err := XidTable{}.WithOverrides(xidTableData)
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for effect, byNext := range policy {
		for next, xids := range byNext {
			all += len(xids)
			for _, xid := range xids {
				verdict := table.lookUpXid(xid)
				if verdict.Effect != effect || verdict.Next != next {
					t.Errorf("Xid %d is %s, and then %s, want %s and %s", xid, verdict.Effect, verdict.Next, effect, next)
				}
				if verdict.Action == "" || verdict.Meaning == "" {
					t.Errorf("Xid %d has no action or meaning: %+v", xid, verdict)
				}
			}
		}
	}
	if len(table.rows) != all {
		t.Errorf("the file has %d Xids, want %d", len(table.rows), all)
	}
	if diff := cmp.Diff(table.rows, BuiltinXidTable().rows); diff != "" {
		t.Error(diff)
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
		if _, known := BuiltinXidTable().rows[xid]; known == slices.Contains(unused, xid) {
			t.Errorf("Xid %d is in the table: %v", xid, known)
		}
	}
}

// TestXidsAreInOrder verifies the order of the file, in which people look numbers up.
func TestXidsAreInOrder(t *testing.T) {
	last := 0
	for line := range strings.Lines(string(xidTableData)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Count(line, "\t") != 4 {
			t.Errorf("%q has not five fields", line)
		}
		xid, _, err := parseXidLine(strings.TrimSpace(line), nil)
		if err != nil || xid <= last {
			t.Errorf("%q comes after Xid %d: %v", line, last, err)
		}
		last = xid
	}
}

func TestUnknownXid(t *testing.T) {
	unknown := BuiltinXidTable().lookUpXid(4711)
	if unknown.Meaning != "not in the table of Xids" || !strings.Contains(unknown.Action, xidCatalogue) {
		t.Errorf("an unknown Xid is described as %+v", unknown)
	}
	if got := (XidTable{}).lookUpXid(79); got.Effect != EffectWarn {
		t.Errorf("the zero table says %+v", got)
	}
}

func TestOverlay(t *testing.T) {
	was := BuiltinXidTable().lookUpXid(109)
	table, err := BuiltinXidTable().WithOverrides([]byte("# ours\n\n109\tfatal\tunfit\r\n4711\tfatal\tfit\tsay goodbye\tthe end\n63\tfatal\tunfit\t\tnot here\n"))
	if err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[int]EventVerdict{
		109:  {EffectFatal, NextUnfit, was.Action, was.Meaning},
		4711: {EffectFatal, NextFit, "say goodbye", "the end"},
		63:   {EffectFatal, NextUnfit, BuiltinXidTable().lookUpXid(63).Action, "not here"},
		79:   BuiltinXidTable().lookUpXid(79),
	} {
		if diff := cmp.Diff(want, table.lookUpXid(xid)); diff != "" {
			t.Errorf("Xid %d: %s", xid, diff)
		}
	}
	if got := BuiltinXidTable().lookUpXid(109); got != was {
		t.Errorf("the table under it has changed: %+v", got)
	}
}

func TestOverlayRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		says []string
	}{
		"no tabs":       {"79 warn", []string{"line 1", "79 warn", "tabs"}},
		"a word only":   {"# x\n79", []string{"line 2", "tabs"}},
		"too much":      {"79\twarn\tfit\ta\tb\tc", []string{"6 fields", "tabs"}},
		"an old file":   {"79\twarn\tpower it off\tit is off the bus", []string{"power it off", "neither fit nor unfit", "fit or unfit", "action"}},
		"an old line":   {"79\twarn", []string{"2 fields", "fit or unfit"}},
		"unfit, FIT":    {"79\twarn\tFIT", []string{"FIT", "fit or unfit"}},
		"no number":     {"XID79\twarn\tfit", []string{"XID79", "integer from 1 to 65535"}},
		"a range":       {"144-150\twarn\tfit", []string{"144-150", "integer"}},
		"zero":          {"0\twarn\tfit", []string{"integer"}},
		"too large":     {"70000\twarn\tfit", []string{"integer"}},
		"another form":  {"079\twarn\tfit", []string{"integer"}},
		"no verdict":    {"79\tWARN\tfit", []string{"WARN", "fatal, ask, app, warn or ignore"}},
		"twice":         {"79\twarn\tfit\n80\twarn\tfit\n79\tfatal\tunfit", []string{"line 3", "line 1 already has Xid 79"}},
		"not text":      {"79\twarn\tfit\t\xff", []string{"UTF-8"}},
		"for terminals": {"79\twarn\tfit\t\x1b[2J", []string{"plain text"}},
	} {
		_, err := BuiltinXidTable().WithOverrides([]byte(c.text))
		if err == nil {
			t.Errorf("%s: is taken", name)
			continue
		}
		for _, word := range append(c.says, "cannot use line") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", name, err, word)
			}
		}
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add([]byte("79\twarn\tfit\tdo\tmeans\n# x\n\n109\tapp\tunfit"))
	f.Add([]byte("79\tfatal\tunfit\n79\tfatal\tunfit"))
	f.Add([]byte("1\task\tfit\t \t\r\n"))
	f.Add([]byte("144-150\twarn\tfit"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := BuiltinXidTable().WithOverrides(data)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for xid, verdict := range table.rows {
			known := []Effect{EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore}
			if xid < 1 || xid > maxXid || !slices.Contains(known, verdict.Effect) || !slices.Contains([]NextJobFitness{NextFit, NextUnfit}, verdict.Next) {
				t.Errorf("Xid %d: %+v", xid, verdict)
			}
			if textutil.StripControls(verdict.Action) != verdict.Action || textutil.StripControls(verdict.Meaning) != verdict.Meaning {
				t.Errorf("Xid %d can't be shown: %+q", xid, verdict)
			}
		}
		again, err := table.WithOverrides(data)
		if diff := cmp.Diff(table.rows, again.rows); err != nil || diff != "" {
			t.Errorf("the second time: %v %s", err, diff)
		}
	})
}
