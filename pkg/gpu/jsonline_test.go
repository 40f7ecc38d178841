package gpu

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestLine(t *testing.T) {
	eight := 8
	at := time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC)
	for name, l := range map[string]message{
		"ready": {Version: protocolVersion, Watching: &eight},
		"beat":  {Version: protocolVersion, Heartbeat: true},
		"came": {Version: protocolVersion, Number: 2,
			Progress: &Progress{Initialised: 3, Total: 8, SlowCalls: "nvmlInit_v2"}},
		"look": {Version: protocolVersion, Request: requestInspection},
		"facts": {Version: protocolVersion, Facts: &Facts{Version: FactsVersion, Init: Success,
			Driver: newReading("570")}},
		"ended": {Version: protocolVersion, EndReason: "no library"},
		"event": {Version: protocolVersion, Event: &Event{At: at, Kind: KindXid, Xid: 79, GPU: 3,
			UUID: "GPU-3", Bus: "0000:3b:00.0", Detail: "it"}},
		"blame": {Version: protocolVersion, Event: &Event{At: at, Kind: KindXid, Xid: 79, GPU: -1}},
	} {
		text := l.encodeLine()
		if strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s: %q", name, text)
		}
		got, err := decodeMessage(text)
		if diff := cmp.Diff(l, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestLineRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              ``,
		"no JSON":              `nvml: hello`,
		"a half":               `{"v":2,"watch`,
		"another's":            `{"level":"info"}`,
		"of tomorrow":          `{"v":3,"watching":8}`,
		"facts of tomorrow":    `{"v":2,"facts":{"version":2,"init":"SUCCESS"}}`,
		"of a GPU with a name": `{"v":2,"event":{"kind":"xid","gpu":"one"}}`,
	} {
		if line, err := decodeMessage([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"v":2,"watching":8}`))
	f.Add([]byte(`{"v":2,"heartbeat":true}`))
	f.Add([]byte(`{"v":2,"end_reason":"why"}`))
	f.Add([]byte(`{"v":2,"event":{"at":"2026-11-22T01:02:03Z","kind":"xid","xid":79,"gpu":3,"detail":"\u001b[2J"}}`))
	f.Add([]byte(`{"v":2,"facts":{"version":1,"init":"SUCCESS","gpus":[{"index":0,"handle":"SUCCESS"}]}}`))
	f.Add([]byte(`{"v":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := decodeMessage(text)
		if err != nil {
			return
		}
		if line.Event != nil {
			judged := ClassifyEvent(*line.Event)
			if said := judged.String(); strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q can't be shown", said)
			}
		}
		again := line.encodeLine()
		if got, err := decodeMessage(again); err != nil || !bytes.Equal(got.encodeLine(), again) {
			t.Errorf("%s becomes %s: %v", text, again, err)
		}
	})
}
