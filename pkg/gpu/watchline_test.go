package gpu

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWatchLine(t *testing.T) {
	eight := 8
	at := time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC)
	for name, line := range map[string]watchLine{
		"ready": {Version: WatchVersion, Watching: &eight},
		"beat":  {Version: WatchVersion, Beat: true},
		"ended": {Version: WatchVersion, Ended: "no library"},
		"event": {Version: WatchVersion, Event: &Event{At: at, Kind: KindXid, Xid: 79, GPU: 3, UUID: "GPU-3", Bus: "0000:3b:00.0", Detail: "it"}},
		"blame": {Version: WatchVersion, Event: &Event{At: at, Kind: KindXid, Xid: 79, GPU: -1}},
	} {
		text, err := line.encode()
		if err != nil || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		got, err := decodeWatchLine(text)
		if diff := cmp.Diff(line, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestWatchLineRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              ``,
		"no JSON":              `nvml: hello`,
		"a half":               `{"v":1,"watch`,
		"another's":            `{"level":"info"}`,
		"of tomorrow":          `{"v":2,"watching":8}`,
		"empty":                `{"v":1}`,
		"two things":           `{"v":1,"watching":8,"beat":true}`,
		"fewer than none":      `{"v":1,"watching":-1}`,
		"more than there are":  `{"v":1,"watching":100000}`,
		"an event of no kind":  `{"v":1,"event":{"gpu":1}}`,
		"of no such GPU":       `{"v":1,"event":{"kind":"xid","gpu":-2}}`,
		"of no such Xid":       `{"v":1,"event":{"kind":"xid","xid":-1}}`,
		"of a GPU with a name": `{"v":1,"event":{"kind":"xid","gpu":"one"}}`,
	} {
		if line, err := decodeWatchLine([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

func FuzzWatchLine(f *testing.F) {
	f.Add([]byte(`{"v":1,"watching":8}`))
	f.Add([]byte(`{"v":1,"beat":true}`))
	f.Add([]byte(`{"v":1,"ended":"why"}`))
	f.Add([]byte(`{"v":1,"event":{"at":"2026-11-22T01:02:03Z","kind":"xid","xid":79,"gpu":3,"uuid":"GPU-3","detail":"\u001b[2J"}}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := decodeWatchLine(text)
		if err != nil {
			return
		}
		if line.Event != nil {
			judged := Xids().Judge(*line.Event)
			if said := judged.String(); said != plain(said) {
				t.Errorf("%q can't be shown", said)
			}
		}
		again, err := line.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeWatchLine(again); err != nil || !cmp.Equal(line, got) {
			t.Errorf("%s becomes %s: %v", text, again, err)
		}
	})
}
