package gpu

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		event Event
		want  Effect
		says  string // in the action or the meaning
	}{
		"off the bus":                      {Event{Kind: KindXid, Xid: 79}, EffectFatal, "off the PCI bus"},
		"a page fault":                     {Event{Kind: KindXid, Xid: 31}, EffectApp, "page fault"},
		"an unknown Xid":                   {Event{Kind: KindXid, Xid: 4711}, EffectWarn, "4711"},
		"NVLink, and nothing asked for":    {Event{Kind: KindXid, Xid: 145}, EffectWarn, "RLW"},
		"NVLink, and a reset asked for":    {Event{Kind: KindXid, Xid: 145, Recovery: 1}, EffectFatal, "reset the GPU"},
		"NVLink, nonfatal, reset asked":    {Event{Kind: KindXid, Xid: 145, Severity: severityNonfatal, Recovery: 1}, EffectWarn, "RLW"},
		"NVLink, fatal":                    {Event{Kind: KindXid, Xid: 145, Severity: severityFatal}, EffectFatal, "RLW"},
		"a page fault, and a reset asked":  {Event{Kind: KindXid, Xid: 31, Recovery: 1}, EffectApp, "page fault"},
		"another action, none":             {Event{Kind: KindXid, Xid: 154}, EffectWarn, "has changed"},
		"another action, a reboot":         {Event{Kind: KindXid, Xid: 154, Recovery: 2}, EffectFatal, "reboot"},
		"asks for nothing":                 {Event{Kind: KindRecovery}, EffectIgnore, ""},
		"asks for a reset":                 {Event{Kind: KindRecovery, Recovery: 1}, EffectFatal, "reset"},
		"asks for a reboot":                {Event{Kind: KindRecovery, Recovery: 2}, EffectFatal, "reboot"},
		"asks to be drained":               {Event{Kind: KindRecovery, Recovery: 3}, EffectFatal, "NVLink"},
		"asks to be drained and reset":     {Event{Kind: KindRecovery, Recovery: 4}, EffectFatal, "reset"},
		"asks for IMEX":                    {Event{Kind: KindRecovery, Recovery: 5}, EffectFatal, "IMEX"},
		"asks for what we can't name":      {Event{Kind: KindRecovery, Recovery: 6}, EffectFatal, "6"},
		"lost":                             {Event{Kind: KindLost, Detail: string(GPUIsLost)}, EffectFatal, "reboot"},
		"lost until a reset":               {Event{Kind: KindLost, Detail: string(ResetRequired)}, EffectFatal, "reset"},
		"unwatched":                        {Event{Kind: KindUnwatched}, EffectWarn, "can't be watched"},
		"silent":                           {Event{Kind: KindSilent}, EffectWarn, "hang"},
		"of a kind from a newer bringupd":  {Event{Kind: "melted"}, EffectWarn, "melted"},
		"the driver can't name what it is": {Event{Kind: KindXid, Xid: 999}, EffectWarn, "999"},
	} {
		got := Xids().Judge(c.event)
		if got.Effect != c.want || !strings.Contains(got.Meaning+got.Action, c.says) || got.Event != c.event {
			t.Errorf("%s: %+v, want %s and %q", name, got, c.want, c.says)
		}
	}
}

func TestJudgedString(t *testing.T) {
	for name, c := range map[string]struct {
		event Event
		want  string
	}{
		"an Xid": {
			Event{Kind: KindXid, Xid: 46, GPU: 3, Bus: "0000:3b:00.0"},
			"GPU 3 (0000:3b:00.0): Xid 46: the GPU stopped answering, and the driver gave up waiting; drain the node, and reset the GPU",
		},
		"of nobody": {
			Event{Kind: KindXid, Xid: 14, GPU: -1, Count: 7},
			"an unknown GPU: Xid 14: an error that was injected for a test, 7 times more",
		},
		"lost": {
			Event{Kind: KindLost, Detail: "RESET_REQUIRED"},
			"GPU 0: the GPU does no more until it is reset (RESET_REQUIRED); drain the node, and reset the GPU",
		},
	} {
		if got := Xids().Judge(c.event).String(); got != c.want {
			t.Errorf("%s:\n%s\n%s", name, got, c.want)
		}
	}
}

func TestDedup(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	xid := Event{Kind: KindXid, Xid: 31, GPU: 1, UUID: "GPU-1"}
	other := xid
	other.GPU, other.UUID = 2, "GPU-2"
	fatal := xid
	fatal.Xid = 79
	asks := Event{Kind: KindRecovery, GPU: 1, UUID: "GPU-1", Recovery: 1}
	reboot := asks
	reboot.Recovery = 2
	var d dedup
	for i, e := range []Event{xid, other, fatal, asks, reboot} {
		if got, told := d.pass(e, begin); !told || got != e {
			t.Errorf("event %d is not told the first time: %+v", i, got)
		}
		if _, told := d.pass(e, begin); told {
			t.Errorf("event %d is told twice", i)
		}
	}
}

// A thousand a second for a day are told some 150 times, and all are counted.
func TestDedupOfAFlood(t *testing.T) {
	const day, each = 24 * time.Hour, 10 * time.Millisecond
	begin := time.Unix(1_800_000_000, 0)
	var d dedup
	told, counted, last, longest := 0, 0, time.Duration(0), time.Duration(0)
	for at := time.Duration(0); at < day; at += each {
		e, now := d.pass(Event{Kind: KindXid, Xid: 31}, begin.Add(at))
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
	if longest > lastRepeat {
		t.Errorf("nothing for %v", longest)
	}
}

// What a broken watch makes up must not fill the memory.
func TestDedupIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var d dedup
	told := 0
	for xid := range 3 * mostRepeated {
		if _, tell := d.pass(Event{Kind: KindXid, Xid: xid + 1}, now); tell {
			told++
		}
	}
	if len(d.seen) > mostRepeated+1 || told > mostRepeated+1 {
		t.Errorf("%d are kept, and %d told", len(d.seen), told)
	}
}
