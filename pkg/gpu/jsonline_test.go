package gpu

import (
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

func TestLineIsPlain(t *testing.T) {
	l, err := decodeMessage([]byte(`{"v":2,"event":{"kind":"x\u001b[2J","uuid":"a\nb","detail":"\u001b[2J"}}`))
	if err != nil || strings.ContainsFunc(ClassifyEvent(*l.Event).String(), unicode.IsControl) {
		t.Errorf("it is %+v, %v", l.Event, err)
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
