package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
)

const recordedDumps = "testdata/flight-recorder"

// TestDescribeFlightRecorder reads the dumps of a run directory in which rank 2 has not entered the
// last collective, some ranks have no dump, and some dumps are none.
func TestDescribeFlightRecorder(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, signal.LogsDir)
	if err := os.CopyFS(logs, os.DirFS(recordedDumps)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"flight-recorder-rank_7": "cos\nsystem\n(S'id'\ntR.",
		"flight-recorder-rank_8": "\x80\x09N.", "flight-recorder-rank_9": "",
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

// TestDumps compares dumps of ranks as torch writes them as JSON, and as Python pickles them.
func TestDumps(t *testing.T) {
	entry := func(group string, sequence int, name string, at int, more string) string {
		return fmt.Sprintf(`{"process_group": [%q, "tensor parallel"], "collective_seq_id": %d, "profiling_name": %q,
			"time_created_ns": %d, "state": "completed"%s}`, group, sequence, name, at, more)
	}
	a := func(sequence int) string { return entry("g", sequence, "a", sequence, "") }
	open := func(sequence int) string { return entry("g", sequence, "a", sequence, `, "state": "scheduled"`) }
	const entries = "\x8c\x07entries"
	pickle := func(text string) string { return "\x80\x04}(\x8c\x07version\x8c\x032.1" + entries + text + "u." }
	wide := "N"
	for range maxDumpDepth {
		wide += "q\x01(" + strings.Repeat("h\x01", 100) + "t"
	}
	for name, tc := range map[string]struct {
		groups string
		dumps  map[int]string // by rank: entries, or a whole pickle
		want   []string
	}{
		"equal": {"", map[int]string{0: a(1), 1: a(1)},
			[]string{"all 2 ranks with a dump have entered the same collectives"}},
		"never entered": {`"g": {"ranks": "[0, 1, 2]"}`, map[int]string{0: a(1), 1: "", 2: a(1)},
			[]string{"collective 1 of group g (tensor parallel), a: rank 1 of 3 has not entered it"}},
		"no dump": {`"g": {"ranks": "[0, 1, 2]"}`,
			map[int]string{0: a(1) + "," + open(2), 2: a(1) + "," + open(2)},
			[]string{"collective 2 of group g (tensor parallel), a: rank 1 left no dump"}},
		"the network": {"", map[int]string{0: open(9), 1: open(9)},
			[]string{"collective 9 of group g (tensor parallel), a: all ranks have entered it, " +
				"and it has not completed"}},
		"different": {"", map[int]string{0: entry("g", 4, "a", 1, ""),
			1: entry("g", 4, "b", 1, "")}, []string{"collective 4 of group g (tensor parallel), a: rank 1 entered b"}},
		"a full buffer": {"", map[int]string{0: a(7) + "," + a(8), 1: a(8)},
			[]string{"all 2 ranks with a dump have entered the same collectives"}},
		"between two": {"", map[int]string{0: entry("g", 1, "send", 1, `, "is_p2p": true`),
			1: ""}, []string{"all 2 ranks with a dump have entered the same collectives"}},
		"the first wait": {`"g": {"ranks": "[0, 1]"}, "h": {"ranks": "[0, 1]"}`,
			map[int]string{0: entry("g", 1, "a", 20, "") + "," + entry("h", 1, "b", 10, ""), 1: ""}, []string{
				"collective 1 of group h (tensor parallel), b: rank 1 of 2 has not entered it",
				"collective 1 of group g (tensor parallel), a: rank 1 of 2 has not entered it",
			}},
		"a pickle": {"", map[int]string{0: pickle("](}(\x8c\x0dprocess_group\x8c\x010\x8c\x0adefault_pg\x86" +
			"\x8c\x11collective_seq_id\x8a\x01\x05\x8c\x0eprofiling_name\x8c\x0fnccl:all_reduce" +
			"\x8c\x0binput_sizes](](K\x02K\x03eeue")},
			[]string{"collective 5 of the default group, nccl:all_reduce of [2, 3]: all ranks " +
				"have entered it, and it has not completed"}},
		"a deep tuple": {"", map[int]string{0: pickle("N" + strings.Repeat("\x85", 1<<20))},
			[]string{"collective 0 of group  (undescribed), : all ranks have entered it, and it has not completed"}},
		"too many values": {"", map[int]string{0: "\x80\x02" + wide + "."},
			[]string{"cannot read the dump flight-recorder-rank_0: it has more than 10000000 values"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, signal.LogsDir), 0o700); err != nil {
				t.Fatal(err)
			}
			for rank, text := range tc.dumps {
				if !strings.HasPrefix(text, "\x80") {
					text = fmt.Sprintf(`{"version": "2.10", "pg_config": {%s}, "entries": [%s]}`, tc.groups, text)
				}
				path := filepath.Join(dir, signal.LogsDir, fmt.Sprint(signal.FlightRecorderPrefix, rank))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, DescribeFlightRecorder(t.Context(), dir)); diff != "" {
				t.Error(diff)
			}
		})
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
