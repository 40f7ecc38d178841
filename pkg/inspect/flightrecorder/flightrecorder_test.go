package flightrecorder

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// readRecorded reads the dumps of testdata.
func readRecorded(t *testing.T) (dumps []Dump) {
	t.Helper()
	for rank := range 4 {
		data, err := os.ReadFile(fmt.Sprintf("testdata/hung/flight-recorder-rank_%d", rank))
		if err != nil {
			t.Fatal(err)
		}
		dump, err := parseDump(rank, data)
		if err != nil {
			t.Fatal(err)
		}
		dumps = append(dumps, dump)
	}
	return dumps
}

// TestRecorded reads the dumps of a real torch, in which rank 2 has not entered the last all-reduce.
func TestRecorded(t *testing.T) {
	dumps := readRecorded(t)
	if d := dumps[0]; d.Version != "2.10" || len(d.Entries) != 5 || d.Entries[0].Caller != "train.py:10" || !d.Entries[0].Completed || d.Entries[4].Completed {
		t.Errorf("rank 0 has %+v", d)
	}
	want := []string{"collective 4 of the default group, gloo:all_reduce of [8, 4] at train.py:10: rank 2 of 4 has not entered it"}
	var got []string
	for _, f := range Analyze(dumps) {
		got = append(got, f.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("it finds %q, want %q", got, want)
	}
}

// TestDescribe reads the dumps of a run directory, of which one is missing and one is damaged.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, signal.LogsDir)
	if err := os.CopyFS(logs, os.DirFS("testdata/hung")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"flight-recorder-rank_7": "cos\nsystem\n(S'id'\ntR.", "flight-recorder-rank_x": "", "driver.log": "", "rank-0000.log": ""} {
		if err := os.WriteFile(filepath.Join(logs, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"collective 4 of the default group, gloo:all_reduce of [8, 4] at train.py:10: rank 2 of 4 has not entered it",
		"cannot read the dump flight-recorder-rank_7: cannot read the pickle at byte 0: the instruction 0x63 is not for plain data",
	}
	if got := Describe(t.Context(), dir); !slices.Equal(got, want) {
		t.Errorf("it is described as %q, want %q", got, want)
	}
	if got := Describe(t.Context(), t.TempDir()); got != nil {
		t.Errorf("no dumps are described as %q", got)
	}
}

func TestAnalyze(t *testing.T) {
	entry := func(group string, sequence int64, name string, at int64) Entry {
		return Entry{Group: group, Description: "tensor parallel", Sequence: sequence, Name: name, CreatedAt: at, Completed: true}
	}
	open := func(e Entry) Entry {
		e.Completed = false
		return e
	}
	groups := map[string][]int{"g": {0, 1, 2}}
	for _, tc := range []struct {
		name  string
		dumps []Dump
		want  []string
	}{
		{"equal", []Dump{{Rank: 0, Entries: []Entry{entry("g", 1, "a", 1)}}, {Rank: 1, Entries: []Entry{entry("g", 1, "a", 2)}}}, nil},
		{"never entered", []Dump{{Rank: 0, Groups: groups, Entries: []Entry{entry("g", 1, "a", 1)}}, {Rank: 1}, {Rank: 2, Entries: []Entry{entry("g", 1, "a", 1)}}},
			[]string{"collective 1 of group g (tensor parallel), a: rank 1 of 3 has not entered it"}},
		{"no dump", []Dump{{Rank: 0, Groups: groups, Entries: []Entry{entry("g", 1, "a", 1), open(entry("g", 2, "a", 3))}}, {Rank: 2, Entries: []Entry{entry("g", 1, "a", 1), open(entry("g", 2, "a", 1))}}},
			[]string{"collective 2 of group g (tensor parallel), a: rank 1 left no dump"}},
		{"the network", []Dump{{Rank: 0, Entries: []Entry{open(entry("g", 9, "a", 1))}}, {Rank: 1, Entries: []Entry{open(entry("g", 9, "a", 1))}}},
			[]string{"collective 9 of group g (tensor parallel), a: all ranks have entered it, and it has not completed"}},
		{"different", []Dump{{Rank: 0, Entries: []Entry{entry("g", 4, "all_reduce", 1)}}, {Rank: 1, Entries: []Entry{entry("g", 4, "all_gather", 1)}}},
			[]string{"collective 4 of group g (tensor parallel), all_reduce: rank 1 entered all_gather"}},
		{"a full buffer", []Dump{{Rank: 0, Entries: []Entry{entry("g", 7, "a", 1), entry("g", 8, "a", 1)}}, {Rank: 1, Entries: []Entry{entry("g", 8, "a", 1)}}}, nil},
		{"the first wait", []Dump{{Rank: 0, Entries: []Entry{entry("g", 1, "a", 20), entry("h", 1, "b", 10)}}, {Rank: 1, Groups: map[string][]int{"g": {0, 1}, "h": {0, 1}}}},
			[]string{"collective 1 of group h (tensor parallel), b: rank 1 of 2 has not entered it", "collective 1 of group g (tensor parallel), a: rank 1 of 2 has not entered it"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range Analyze(tc.dumps) {
				got = append(got, f.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it finds %q, want %q", got, tc.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	d, err := parseDump(3, []byte(`{"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 3]"}},
		"entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce", "input_sizes": [[2, 3]], "state": "started", "is_p2p": false},
		{"process_group": ["0", "default_pg"], "collective_seq_id": 5, "is_p2p": true}]}`))
	want := Entry{Group: "0", Description: "default_pg", Sequence: 5, Name: "nccl:all_reduce", Sizes: "[2, 3]"}
	if err != nil || len(d.Entries) != 1 || d.Entries[0] != want || !slices.Equal(d.Groups["0"], []int{0, 3}) {
		t.Errorf("it is %+v: %v", d, err)
	}
}

// TestPickle reads what Python's pickle writes for plain data, and refuses everything else.
func TestPickle(t *testing.T) {
	for _, text := range []string{
		"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\x01X\x01\x00\x00\x00bq\x02]q\x03(\x8a\x02\x00\x80\x88Ne\x85q\x04u.",              // protocol 2
		"\x80\x05\x95\x1f\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94]\x94(\x8a\x02\x00\x80\x88Ne\x85\x94u.", // protocol 5
	} {
		value, err := decodePickle([]byte(text))
		inner := elements(lookup(value, "b"))
		if err != nil || integer(lookup(value, "a")) != 1 || len(inner) != 1 {
			t.Errorf("%q is %v: %v", text, value, err)
			continue
		}
		if items := elements(inner[0]); len(items) != 3 || items[0] != int64(-32768) || items[1] != true || items[2] != nil {
			t.Errorf("%q has %v", text, items)
		}
	}
	for _, text := range []string{
		"", ".", "\x80\x02", "cos\nsystem\n(S'id'\ntR.", "\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x02id\x85R.", "a.", "]q\x00(s.", "h\x05.", "\x80\x09N.",
		"X\xff\xff\xff\xff.", "\x8a\x09123456789.", "N\x86.", "(t0.", "Qx.", "\x82\x01.", "(\x85.", "}(K\x01u.", "ib\nc\n.",
	} {
		if value, err := decodePickle([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %v", text, value)
		}
	}
	if _, err := parseDump(0, []byte("\x80\x02}.")); err == nil || !strings.Contains(err.Error(), "no dump of a flight recorder") {
		t.Errorf("another file: %v", err)
	}
}

func FuzzParseDump(f *testing.F) {
	for rank := range 4 {
		data, err := os.ReadFile(fmt.Sprintf("testdata/hung/flight-recorder-rank_%d", rank))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDump(1, data)
		if err != nil {
			return
		}
		for _, finding := range Analyze([]Dump{{Rank: 0}, d}) {
			if strings.ContainsAny(finding.String(), "\x1b\n") {
				t.Errorf("the finding is %q", finding)
			}
		}
	})
}
