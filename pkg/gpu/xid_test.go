package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/prose"
)

// policy is what we have settled on for each Xid, apart from the file.
var policy = map[Effect][]int{
	EffectFatal: {79,
		46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158,
		48, 54, 74, 151, 167},
	EffectAsk: {144, 145, 146, 147, 148, 149, 150, 154},
	EffectApp: {8, 11, 13, 25, 31, 32, 39, 40, 41, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 94,
		126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139,
		82, 83, 84, 85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105},
	EffectWarn: {14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 108, 121, 137, 141, 152, 153, 157, 160, 161, 159,
		162, 163, 164, 165, 166, 168, 169, 170, 173, 171, 172},
	EffectIgnore: {106, 107},
}

func TestXids(t *testing.T) {
	table, err := XidTable{}.Overlay(builtinXids)
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for effect, xids := range policy {
		all += len(xids)
		for _, xid := range xids {
			verdict := table.verdict(xid, "")
			if verdict.Effect != effect {
				t.Errorf("Xid %d is %s, want %s", xid, verdict.Effect, effect)
			}
			if verdict.Action == "" || verdict.Meaning == "" {
				t.Errorf("Xid %d has no action or meaning: %+v", xid, verdict)
			}
		}
	}
	if len(table.rows) != all {
		t.Errorf("the file has %d Xids, want %d", len(table.rows), all)
	}
	if diff := cmp.Diff(table.rows, Xids().rows); diff != "" {
		t.Error(diff)
	}
}

// The file is for people, who look a number up in it.
func TestXidsAreInOrder(t *testing.T) {
	last := 0
	for line := range strings.Lines(string(builtinXids)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Count(line, "\t") != 3 {
			t.Errorf("%q has not four fields", line)
		}
		xid, _, err := parseXid(strings.TrimSpace(line), nil)
		if err != nil || xid <= last {
			t.Errorf("%q comes after Xid %d: %v", line, last, err)
		}
		last = xid
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		xid      int
		severity string
		want     Effect
	}{
		"fatal":                              {79, "", EffectFatal},
		"the word does not make it milder":   {79, "Nonfatal", EffectFatal},
		"nor worse":                          {31, "Fatal", EffectApp},
		"NVLink, no word":                    {145, "", EffectAsk},
		"NVLink, fatal":                      {145, "Fatal", EffectFatal},
		"NVLink, nonfatal":                   {145, "Nonfatal", EffectWarn},
		"NVLink, as the catalogue writes it": {145, "Non-fatal", EffectWarn},
		"NVLink, another word":               {145, "Link", EffectAsk},
		"recovery action":                    {154, "", EffectAsk},
		"remapping, where fleets disagree":   {63, "", EffectWarn},
		"contained, where fleets disagree":   {94, "", EffectApp},
		"no switch, where fleets disagree":   {109, "", EffectFatal},
		"C2C, where fleets disagree":         {121, "", EffectWarn},
		"no longer used, Azure fails":        {57, "", EffectWarn},
		"unknown":                            {4711, "", EffectWarn},
		"unknown, and fatal":                 {4711, "Fatal", EffectWarn},
		"the driver can't name it":           {999, "", EffectWarn},
		"none":                               {0, "", EffectWarn},
	} {
		if got := Xids().verdict(c.xid, c.severity); got.Effect != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	unknown := Xids().verdict(4711, "")
	if !strings.Contains(unknown.Meaning, "4711") || !strings.Contains(unknown.Action, xidCatalogue) {
		t.Errorf("an unknown Xid is told as %+v", unknown)
	}
	if got := (XidTable{}).verdict(79, ""); got.Effect != EffectWarn {
		t.Errorf("the zero table says %+v", got)
	}
}

func TestOverlay(t *testing.T) {
	was := Xids().verdict(109, "")
	table, err := Xids().Overlay([]byte("# ours\n\n109\tapp\r\n4711\tfatal\tsay goodbye\tthe end\n63\tfatal\t\tnot here\n"))
	if err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[int]XidVerdict{
		109:  {EffectApp, was.Action, was.Meaning},
		4711: {EffectFatal, "say goodbye", "the end"},
		63:   {EffectFatal, Xids().verdict(63, "").Action, "not here"},
		79:   Xids().verdict(79, ""),
	} {
		if diff := cmp.Diff(want, table.verdict(xid, "")); diff != "" {
			t.Errorf("Xid %d: %s", xid, diff)
		}
	}
	if got := Xids().verdict(109, ""); got != was {
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
		"too much":      {"79\twarn\ta\tb\tc", []string{"5 fields", "tabs"}},
		"no number":     {"XID79\twarn", []string{"XID79", "whole number of 1 to 65535"}},
		"a range":       {"144-150\twarn", []string{"144-150", "whole number"}},
		"zero":          {"0\twarn", []string{"whole number"}},
		"too large":     {"70000\twarn", []string{"whole number"}},
		"another form":  {"079\twarn", []string{"whole number"}},
		"no verdict":    {"79\tWARN", []string{"WARN", "fatal, ask, app, warn or ignore"}},
		"twice":         {"79\twarn\n80\twarn\n79\tfatal", []string{"line 3", "line 1 has Xid 79"}},
		"not text":      {"79\twarn\t\xff", []string{"UTF-8"}},
		"for terminals": {"79\twarn\t\x1b[2J", []string{"plain text"}},
	} {
		_, err := Xids().Overlay([]byte(c.text))
		if err == nil {
			t.Errorf("%s: is taken", name)
			continue
		}
		for _, word := range append(c.says, "cannot take line") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", name, err, word)
			}
		}
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add([]byte("79\twarn\tdo\tmeans\n# x\n\n109\tapp"))
	f.Add([]byte("79\tfatal\n79\tfatal"))
	f.Add([]byte("1\task\t \t\r\n"))
	f.Add([]byte("144-150\twarn"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Xids().Overlay(data)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for xid, verdict := range table.rows {
			known := []Effect{EffectFatal, EffectAsk, EffectApp, EffectWarn, EffectIgnore}
			if xid < 1 || xid > mostXid || !slices.Contains(known, verdict.Effect) {
				t.Errorf("Xid %d: %+v", xid, verdict)
			}
			if prose.Plain(verdict.Action) != verdict.Action || prose.Plain(verdict.Meaning) != verdict.Meaning {
				t.Errorf("Xid %d can't be shown: %+q", xid, verdict)
			}
		}
		again, err := table.Overlay(data)
		if diff := cmp.Diff(table.rows, again.rows); err != nil || diff != "" {
			t.Errorf("the second time: %v %s", err, diff)
		}
	})
}
