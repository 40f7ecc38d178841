package gpu

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		event Event
		want  Effect
		next  NextJobFitness
		says  string // contained in the action or the meaning
	}{
		"off the bus":  {Event{Kind: KindXid, Xid: 79}, EffectFatal, NextUnfit, "off the PCI bus"},
		"a page fault": {Event{Kind: KindXid, Xid: 31}, EffectApp, NextFit, "page fault"},
		"no remapping": {Event{Kind: KindXid, Xid: 64}, EffectWarn, NextUnfit, "after the job"},
		"an unknown Xid": {Event{Kind: KindXid, Xid: 4711}, EffectWarn, NextFit,
			"not in the table of Xids"},
		"old NVLink, and nothing asked for": {Event{Kind: KindXid, Xid: 74}, EffectWarn, NextUnfit, "NVLink"},
		"NVLink, and nothing asked for":     {Event{Kind: KindXid, Xid: 145}, EffectWarn, NextFit, "RLW"},
		"C2C, and nothing asked for":        {Event{Kind: KindXid, Xid: 173}, EffectWarn, NextUnfit, "C2C"},
		"another action, none":              {Event{Kind: KindXid, Xid: 154}, EffectWarn, NextFit, "has changed"},
		"asks for nothing":                  {Event{Kind: KindRecovery}, EffectIgnore, NextFit, ""},
		"asks for a reset":                  {Event{Kind: KindRecovery, Recovery: 1}, EffectFatal, NextUnfit, "reset"},
		"asks for a reboot":                 {Event{Kind: KindRecovery, Recovery: 2}, EffectFatal, NextUnfit, "reboot"},
		"asks to be drained":                {Event{Kind: KindRecovery, Recovery: 3}, EffectWarn, NextUnfit, "NVLink"},
		"asks to be drained and reset":      {Event{Kind: KindRecovery, Recovery: 4}, EffectWarn, NextUnfit, "reset"},
		"asks for IMEX":                     {Event{Kind: KindRecovery, Recovery: 5}, EffectWarn, NextUnfit, "IMEX"},
		"asks for its bus": {Event{Kind: KindRecovery, Recovery: 6}, EffectFatal,
			NextUnfit, "PCIe bus"},
		"asks for the system": {Event{Kind: KindRecovery, Recovery: 7}, EffectFatal,
			NextUnfit, "reboot of the system"},
		"asks for what we can't name": {Event{Kind: KindRecovery, Recovery: 8}, EffectFatal, NextUnfit, "8"},
		"lost": {Event{Kind: KindLost, Detail: string(GPUIsLost)},
			EffectFatal, NextUnfit, "reboot"},
		"lost until a reset": {Event{Kind: KindLost, Detail: string(ResetRequired)},
			EffectFatal, NextUnfit, "reset"},
		"links down": {Event{Kind: KindLink, Detail: "link 3"}, EffectFatal,
			NextUnfit, "NVLinks"},
		"C2C down":                        {Event{Kind: KindC2C}, EffectFatal, NextUnfit, "C2C"},
		"unwatched":                       {Event{Kind: KindUnwatched}, EffectWarn, NextFit, "cannot watch"},
		"silent":                          {Event{Kind: KindSilent}, EffectWarn, NextFit, "hang"},
		"silent of one":                   {Event{Kind: KindSilent, GPU: 3}, EffectWarn, NextFit, "respond"},
		"begins anew":                     {Event{Kind: KindRestarted, GPU: -1}, EffectWarn, NextFit, "is restarted"},
		"of a kind from a newer bringupd": {Event{Kind: "melted"}, EffectWarn, NextFit, "melted"},
		"the driver can't name what it is": {Event{Kind: KindXid, Xid: 999}, EffectWarn, NextFit,
			"not in the table of Xids"},
	} {
		got := ClassifyEvent(c.event)
		if got.Effect != c.want || got.Next != c.next ||
			!strings.Contains(got.Meaning+got.Action, c.says) || got.Event != c.event {
			t.Errorf("%s: %+v, want %s, %s and %q", name, got, c.want, c.next, c.says)
		}
	}
}

// TestJudgeEveryXid verifies that an event gets the values of its row in the table, except that
// EffectAsk is a warning until the driver has reported more.
func TestJudgeEveryXid(t *testing.T) {
	for xid, row := range xidTable() {
		want := row
		if row.Effect == EffectAsk {
			want.Effect = EffectWarn
		}
		got := ClassifyEvent(Event{Kind: KindXid, Xid: xid})
		if got.EventVerdict != want || strings.ContainsAny(got.String(), "\n\r") {
			t.Errorf("Xid %d: %s", xid, got)
		}
		if got.Effect == EffectFatal && got.Next != NextUnfit {
			t.Errorf("Xid %d ends the job, and the GPU is fit for the next one", xid)
		}
	}
}

func TestReadJudged(t *testing.T) {
	told := ClassifyEvent(Event{Kind: KindXid, Xid: 64, GPU: 3, Bus: "0000:5d:00.0"})
	record, err := json.Marshal(told)
	if err != nil || !strings.Contains(string(record), `"next":"unfit"`) {
		t.Fatalf("%s, %v", record, err)
	}
	if got, ok := DecodeEvent(record); !ok || got != told {
		t.Errorf("it is read as %+v", got)
	}
	for _, record := range []string{"", "7", "{"} {
		if got, ok := DecodeEvent([]byte(record)); ok {
			t.Errorf("%q is read as %+v", record, got)
		}
	}
	want := "gpu.xid GPU 3 (0000:5d:00.0): Xid 64: a defective part of the GPU's memory could " +
		"not be retired or remapped"
	if got := told.ToFinding().OneLine(); got != want {
		t.Errorf("it is found as\n%s\n%s", got, want)
	}
}

func TestJudgedString(t *testing.T) {
	for name, c := range map[string]struct {
		event Event
		want  string
	}{
		"an Xid": {
			Event{Kind: KindXid, Xid: 46, GPU: 3, Bus: "0000:3b:00.0"},
			"GPU 3 (0000:3b:00.0): Xid 46: the GPU stopped responding to the driver (timeout); " +
				"drain the node, and reset the GPU",
		},
		"of nobody": {
			Event{Kind: KindXid, Xid: 14, GPU: -1, Count: 7},
			"an unknown GPU: Xid 14: an error that was injected for a test, repeated 7 times",
		},
		"links": {
			Event{Kind: KindLink, GPU: 3, Detail: "links 2 and 5"},
			"GPU 3: NVLinks that were active have gone down (links 2 and 5); drain the node, " +
				"and reset the GPUs of the fabric; if it recurs, test the link and its peer",
		},
		"the watch": {
			Event{Kind: KindRestarted, GPU: -1, Detail: "the child ended with exit code 3"},
			"the GPU watcher ended and is restarted (the child ended with exit code 3)",
		},
		"lost": {
			Event{Kind: KindLost, Detail: "RESET_REQUIRED"},
			"GPU 0: the GPU is unusable until it is reset (RESET_REQUIRED); drain the node, and reset the GPU",
		},
	} {
		if got := ClassifyEvent(c.event).String(); got != c.want {
			t.Errorf("%s:\n%s\n%s", name, got, c.want)
		}
	}
}

// TestDedupOfAFlood verifies that a thousand events per second for a day are reported about 150
// times, and that all are counted.
func TestDedupOfAFlood(t *testing.T) {
	const day, each = 24 * time.Hour, 10 * time.Millisecond
	begin := time.Unix(1_800_000_000, 0)
	var d RepeatFilter
	told, counted, last, longest := 0, 0, time.Duration(0), time.Duration(0)
	for at := time.Duration(0); at < day; at += each {
		e, now := d.FilterEvent(Event{Kind: KindXid, Xid: 31}, begin.Add(at))
		if !now {
			continue
		}
		told++
		counted += max(e.Count, 1)
		longest = max(longest, at-last)
		last = at
	}
	if told < 140 || told > 160 {
		t.Errorf("told %d times", told)
	}
	if want := int(last/each) + 1; counted != want {
		t.Errorf("%d are counted of %d", counted, want)
	}
	if longest > maxRepeatInterval {
		t.Errorf("nothing for %v", longest)
	}
}

// TestDedupIsBounded verifies that the invalid events of a broken watch do not exhaust the memory.
func TestDedupIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var d RepeatFilter
	told := 0
	for xid := range 3 * maxTrackedEvents {
		if _, tell := d.FilterEvent(Event{Kind: KindXid, Xid: xid + 1}, now); tell {
			told++
		}
	}
	if len(d.seen) > maxTrackedEvents+1 || told > maxTrackedEvents+1 {
		t.Errorf("%d are kept, and %d told", len(d.seen), told)
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
