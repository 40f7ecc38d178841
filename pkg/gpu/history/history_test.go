package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

var day = time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)

// card returns a GPU with that many remapped rows; -1: unreadable.
func card(id, bus string, rows int) Device {
	d := Device{ID: "GPU-" + id, Index: int(bus[0] - '0'), Bus: bus, RemappedRows: gpu.Reading[int]{Value: &rows}}
	if rows < 0 {
		d.RemappedRows = gpu.Reading[int]{Reason: gpu.NotSupported}
	}
	return d
}

func nic(guid, bus string) Device { return Device{ID: guid, Name: "mlx5_0", Index: -1, Bus: bus} }

// encoded returns the encoded records of runs, the newest first.
func encoded(t *testing.T, records ...Record) (texts [][]byte) {
	t.Helper()
	for _, r := range records {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return texts
}

func TestNews(t *testing.T) {
	before := []Device{card("a", "0:", 1), card("b", "1:", -1), nic("506b:4b03:0:1", "3:")}
	for name, tc := range map[string]struct {
		now   []Device
		slots []string
		want  string
	}{
		"nothing":                     {before, []string{"0:", "1:"}, ""},
		"more rows":                   {[]Device{card("a", "0:", 3), card("b", "1:", -1)}, nil, "GPU 0 (0:): 2 more memory rows remapped since run 1.0: now 3"},
		"rows that could not be read": {[]Device{card("a", "0:", -1), card("b", "1:", 7)}, nil, ""},
		"another GPU":                 {[]Device{card("c", "0:", 0), card("b", "1:", -1)}, []string{"0:", "1:"}, "GPU 0 (0:): replaced since run 1.0: now GPU-c, was GPU-a"},
		"a GPU elsewhere":             {[]Device{card("a", "2:", 1), card("b", "1:", -1)}, []string{"1:", "2:"}, "GPU 2 (2:): moved since run 1.0: it was at 0:"},
		"two that have changed places": {[]Device{card("b", "0:", -1), card("a", "1:", 1)}, []string{"0:", "1:"},
			"GPU 0 (0:): moved since run 1.0: it was at 1:\nGPU 1 (1:): moved since run 1.0: it was at 0:"},
		"a GPU that is gone":              {[]Device{card("b", "1:", -1)}, []string{"1:"}, "GPU 0 (0:): missing: it was present in run 1.0"},
		"a GPU that another job has":      {[]Device{card("b", "1:", -1)}, []string{"0:", "1:"}, ""},
		"where nobody tells of the bus":   {[]Device{card("b", "1:", -1)}, nil, ""},
		"another network card":            {append(before[:2:2], nic("506b:4b03:0:2", "3:")), nil, "mlx5_0: replaced since run 1.0: now 506b:4b03:0:2, was 506b:4b03:0:1"},
		"network cards that are not seen": {before[:2], []string{"0:", "1:"}, ""},
		"a GPU more":                      {append(before[:3:3], card("c", "2:", 0)), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			past := Record{}.NextRecord("1.0", day, before, nil, nil)
			var told []string
			for _, news := range past.Changes(tc.now, tc.slots) {
				told = append(told, news.Device.String()+": "+news.What)
			}
			if diff := cmp.Diff(tc.want, strings.Join(told, "\n")); diff != "" {
				t.Error(diff)
			}
			after := past.NextRecord("2.0", day, tc.now, tc.slots, nil)
			if news := after.Changes(tc.now, tc.slots); len(news) > 0 {
				t.Errorf("it is told twice: %+v", news)
			}
		})
	}
	if news := (Record{}).Changes(before, nil); len(news) > 0 {
		t.Errorf("before any run there is news: %+v", news)
	}
}

// TestRead verifies that the record of a run that has overlapped another takes precedence for its
// own observations, and that invalid records are skipped.
func TestRead(t *testing.T) {
	old := Record{}.NextRecord("1.0", day, []Device{card("a", "0:", 1), card("b", "1:", 1)}, nil, []Suspicion{{Run: "1.0", Device: "GPU-a", Kind: "xid 79"}})
	one := old.NextRecord("2.0", day, []Device{card("a", "0:", 2)}, nil, []Suspicion{{Run: "2.0", Device: "GPU-a", Kind: "lost"}})
	other := old.NextRecord("3.0", day, []Device{card("b", "1:", 5)}, nil, nil)
	newer := Record{Version: Version + 1, Run: "9.0", Runs: []string{"9.0"}}
	texts := append(encoded(t, newer, other, one, old), []byte("{"), nil, []byte(`{"version":1,"devices":"x"}`))
	got := MergeRecords(texts)
	if diff := cmp.Diff([]string{"3.0", "1.0", "2.0"}, got.Runs); diff != "" {
		t.Error(diff)
	}
	rows := map[string]int{}
	for _, d := range got.Devices {
		rows[d.ID] = d.RemappedRows.OrZero()
	}
	if diff := cmp.Diff(map[string]int{"GPU-a": 2, "GPU-b": 5}, rows); diff != "" {
		t.Error(diff)
	}
	if len(got.Suspicions) != 2 {
		t.Errorf("the suspicions are %+v", got.Suspicions)
	}
	if diff := cmp.Diff(Record{}, MergeRecords([][]byte{nil, []byte("null"), []byte("7")})); diff != "" {
		t.Error(diff)
	}
}

// TestReadCleans verifies that the texts of a file contain no terminal control sequences.
func TestReadCleans(t *testing.T) {
	d := card("a", "0:", 0)
	d.Run = "\x1b[31m1.0"
	r := Record{Version: Version, Runs: []string{"1.0"}, Devices: []Device{d}, Suspicions: []Suspicion{{Run: "1.0", What: "\x1b]0;x\a"}}}
	got := MergeRecords(encoded(t, r))
	if text := got.Devices[0].Run + got.Suspicions[0].What; strings.ContainsAny(text, "\x1b\a") {
		t.Errorf("%q", text)
	}
}

// TestBounded verifies that a record stays small, however long a node is in use.
func TestBounded(t *testing.T) {
	var r Record
	for n := range 3 * maxDevices {
		run := fmt.Sprintf("%d.0", n)
		d := card(fmt.Sprint(n), fmt.Sprintf("%d:", n), 0)
		var found []check.Finding
		for i := range 3 * maxEntries {
			found = append(found, check.Finding{ID: "gpu.remap", Device: &check.Device{UUID: d.ID}, Verdict: check.Warn, Observed: strings.Repeat("x", 10000+i)})
		}
		r = r.NextRecord(run, day, WithFindings([]Device{d}, found), nil, []Suspicion{{Run: run, Device: d.ID, Kind: "lost"}})
	}
	if len(r.Runs) != suspicionWindow || len(r.Devices) != maxDevices || len(r.Suspicions) != suspicionWindow || len(r.Devices[0].Findings) != maxEntries {
		t.Errorf("%d runs, %d devices, %d suspicions, %d findings", len(r.Runs), len(r.Devices), len(r.Suspicions), len(r.Devices[0].Findings))
	}
	const pastBytes = 256 << 10 // the limit in pkg/signal
	for i := range r.Devices[maxDevices/2:] {
		r.Devices[i].Findings = nil // as for 32 healthy GPUs
	}
	if text := encoded(t, r)[0]; len(text) > pastBytes {
		t.Errorf("it has %d bytes", len(text))
	}
}
