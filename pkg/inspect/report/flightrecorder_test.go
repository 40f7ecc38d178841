package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
)

const recordedDumps = "testdata/flight-recorder"

// TestRecordedDump reads the dumps of a real torch.
func TestRecordedDump(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(recordedDumps, "flight-recorder-rank_0"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDump(0, data)
	if err != nil || len(d.collectives) != 5 {
		t.Fatalf("it has %+v: %v", d, err)
	}
	if first, last := d.collectives[0], d.collectives[4]; first.caller != "train.py:10" || !first.completed || last.completed {
		t.Errorf("it has %+v", d)
	}
}

// TestDescribeFlightRecorder reads the dumps of a run directory in which rank 2 has not entered the
// last collective, some ranks have no dump, and some dumps are none.
func TestDescribeFlightRecorder(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, signal.LogsDir)
	if err := os.CopyFS(logs, os.DirFS(recordedDumps)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"flight-recorder-rank_7": "cos\nsystem\n(S'id'\ntR.", "flight-recorder-rank_8": "\x80\x09N.", "flight-recorder-rank_9": "",
		"flight-recorder-rank_x": "", "driver.log": "",
	} {
		if err := os.WriteFile(filepath.Join(logs, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"collective 4 of the default group, gloo:all_reduce of [8, 4] at train.py:10: rank 2 of 4 has not entered it",
		"cannot read the dump flight-recorder-rank_7: it has no version: it is no dump of a flight recorder",
		"cannot read the dump flight-recorder-rank_8: cannot read the pickle: invalid pickle version",
		"and 1 more dumps that cannot be read",
	}
	if diff := cmp.Diff(want, DescribeFlightRecorder(t.Context(), dir)); diff != "" {
		t.Error(diff)
	}
	if got := DescribeFlightRecorder(t.Context(), t.TempDir()); got != nil {
		t.Errorf("no dumps are described as %q", got)
	}
}

func TestFindHungCollectives(t *testing.T) {
	entry := func(group string, sequence int64, name string, at int64) collective {
		return collective{group: group, description: "tensor parallel", sequence: sequence, name: name, createdAt: at, completed: true}
	}
	open := func(e collective) collective {
		e.completed = false
		return e
	}
	dump := func(rank int, entries ...collective) flightDump { return flightDump{rank: rank, collectives: entries} }
	inGroups := func(groups map[string][]int, d flightDump) flightDump {
		d.groups = groups
		return d
	}
	three, two := map[string][]int{"g": {0, 1, 2}}, map[string][]int{"g": {0, 1}, "h": {0, 1}}
	for _, tc := range []struct {
		name  string
		dumps []flightDump
		want  []string
	}{
		{"equal", []flightDump{dump(0, entry("g", 1, "a", 1)), dump(1, entry("g", 1, "a", 2))}, nil},
		{"never entered", []flightDump{inGroups(three, dump(0, entry("g", 1, "a", 1))), dump(1), dump(2, entry("g", 1, "a", 1))},
			[]string{"1 of group g (tensor parallel), a: rank 1 of 3 has not entered it"}},
		{"no dump", []flightDump{
			inGroups(three, dump(0, entry("g", 1, "a", 1), open(entry("g", 2, "a", 3)))),
			dump(2, entry("g", 1, "a", 1), open(entry("g", 2, "a", 1))),
		}, []string{"2 of group g (tensor parallel), a: rank 1 left no dump"}},
		{"the network", []flightDump{dump(0, open(entry("g", 9, "a", 1))), dump(1, open(entry("g", 9, "a", 1)))},
			[]string{"9 of group g (tensor parallel), a: all ranks have entered it, and it has not completed"}},
		{"different", []flightDump{dump(0, entry("g", 4, "all_reduce", 1)), dump(1, entry("g", 4, "all_gather", 1))},
			[]string{"4 of group g (tensor parallel), all_reduce: rank 1 entered all_gather"}},
		{"a full buffer", []flightDump{dump(0, entry("g", 7, "a", 1), entry("g", 8, "a", 1)), dump(1, entry("g", 8, "a", 1))}, nil},
		{"the first wait", []flightDump{dump(0, entry("g", 1, "a", 20), entry("h", 1, "b", 10)), inGroups(two, dump(1))}, []string{
			"1 of group h (tensor parallel), b: rank 1 of 2 has not entered it",
			"1 of group g (tensor parallel), a: rank 1 of 2 has not entered it",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := mapSlice(findHungCollectives(tc.dumps), func(f collectiveFinding) string {
				return strings.TrimPrefix(f.String(), "collective ")
			})
			if !slices.Equal(got, tc.want) {
				t.Errorf("it finds %q, want %q", got, tc.want)
			}
		})
	}
}

// TestParseDump reads the same collective as JSON and as Python pickles it, and refuses pickles that
// would need too much memory.
func TestParseDump(t *testing.T) {
	const head, entries = `{"version": "2.10", "pg_config": {"0": {"ranks": "[0, 3]"}}, `, "\x8c\x07entries"
	want := collective{group: "0", description: "default_pg", sequence: 5, name: "nccl:all_reduce", sizes: "[2, 3]"}
	for _, tc := range []struct {
		name, text string
		want       []collective
	}{
		{"JSON", head + `"entries": [
			{"process_group": ["0", "default_pg"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce",
			 "input_sizes": [[2, 3]], "state": 7, "is_p2p": false},
			{"process_group": ["0", "default_pg"], "collective_seq_id": 5, "is_p2p": true}]}`, []collective{want}},
		{"a pickle", "\x80\x04}(\x8c\x07version\x8c\x032.1" + entries + "](}(\x8c\x0dprocess_group\x8c\x010\x8c\x0adefault_pg\x86" +
			"\x8c\x11collective_seq_id\x8a\x01\x05\x8c\x0eprofiling_name\x8c\x0fnccl:all_reduce\x8c\x0binput_sizes](](K\x02K\x03eeueu.", []collective{want}},
		{"a deep tuple", "\x80\x02}(\x8c\x07version\x8c\x012" + entries + "N" + strings.Repeat("\x85", 1<<20) + "u.", make([]collective, 1)},
	} {
		if d, err := parseDump(3, []byte(tc.text)); err != nil || !slices.Equal(d.collectives, tc.want) {
			t.Errorf("%s: %+v: %v", tc.name, d, err)
		}
	}
	wide := "\x80\x02N"
	for range maxDumpDepth {
		wide += "q\x01(" + strings.Repeat("h\x01", 100) + "t"
	}
	if _, err := parseDump(0, []byte(wide+".")); err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("a pickle of 10^16 values is accepted: %v", err)
	}
}

func FuzzDescribeFlightRecorder(f *testing.F) {
	for rank := range 4 {
		data, err := os.ReadFile(filepath.Join(recordedDumps, fmt.Sprint("flight-recorder-rank_", rank)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, signal.LogsDir), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, signal.LogsDir, signal.FlightRecorderPrefix+"1")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, sentence := range DescribeFlightRecorder(t.Context(), dir) {
			if strings.ContainsAny(sentence, "\x1b\n") {
				t.Errorf("a sentence is %q", sentence)
			}
		}
	})
}
