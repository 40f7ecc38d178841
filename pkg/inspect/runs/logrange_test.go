package runs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// runWithLogs makes a run directory with logs, all of which changed at a time.
func runWithLogs(t *testing.T, at time.Time, logs map[string]string) runs.Opened {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "7.0")
	job := fmt.Sprintf(`{"v":%d,"nonce":"n0","run":"7.0","size":2}`+"\n", record.VersionOf(&record.Job{}))
	files := map[string]string{filepath.Join(signal.ControlDir, signal.NameJob): job}
	for name, text := range logs {
		files[filepath.Join(signal.LogsDir, name)] = text
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	run, err := runs.Open(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestLogRange(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat(strings.Repeat("x", 999)+"\n", 200)
	records := `{"level":"info","at":"2026-11-21T11:59:00Z","msg":"a"}` + "\n" +
		`{"level":"info","at":"2026-11-21T11:59:30Z","msg":"b"}` + "\n"
	for _, tc := range []struct {
		name, log, text string
		part            runs.LogRange
		want            string
		says            int
	}{
		{"all", "driver.log", "a\nb\n", runs.LogRange{Tail: -1}, "a\nb\n", 0},
		{"one line", "driver.log", "a\nb\n", runs.LogRange{Tail: 1}, "b\n", 0},
		{"an unfinished line", "driver.log", "a\nb\nc", runs.LogRange{Tail: 2}, "b\nc", 0},
		{"empty lines", "driver.log", "a\n\n\n", runs.LogRange{Tail: 2}, "\n\n", 0},
		{"no line", "driver.log", "a\nb\n", runs.LogRange{}, "", 0},
		{"more lines than there are", "driver.log", "a\nb\n", runs.LogRange{Tail: 3}, "a\nb\n", 0},
		{"an empty log", "driver.log", "", runs.LogRange{Tail: 3}, "", 0},
		{"lines in several blocks", "driver.log", "a\n" + long, runs.LogRange{Tail: 200}, long, 0},
		{"a log that has changed since", "driver.log", "a\nb\n",
			runs.LogRange{Tail: -1, Since: noon}, "a\nb\n", 1},
		{"its last line", "driver.log", "a\nb\n", runs.LogRange{Tail: 1, Since: noon}, "b\n", 0},
		{"a log that has not", "driver.log", "a\nb\n", runs.LogRange{Tail: -1, Since: noon.Add(1)}, "", 1},
		{"a daemon's log", "daemon-0000.log", records, runs.LogRange{Tail: -1, Since: noon.Add(-time.Minute + 1)},
			"11:59:30.000 info b\n", 0},
		{"the last record since", "daemon-0000.log", records,
			runs.LogRange{Tail: 1, Since: noon.Add(-time.Hour)}, "11:59:30.000 info b\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := runWithLogs(t, noon, map[string]string{tc.log: tc.text})
			var out strings.Builder
			said := 0
			tc.part.Say = func(string, ...any) { said++ }
			printer := runs.LogPrinter{RunDir: run.Dir, Out: &out, LogRange: tc.part,
				Wanted: func(string, int) bool { return true }}
			if shown, err := printer.PrintLogs(t.Context()); err != nil || shown != 1 ||
				out.String() != tc.want || said != tc.says {
				t.Errorf("%d logs, %v, %d messages: %.200q, want %.200q", shown, err, said, out.String(), tc.want)
			}
		})
	}
}

// appender is a writer that changes the logs when the first of them has been printed.
type appender struct {
	strings.Builder
	change func()
}

func (a *appender) Write(p []byte) (int, error) {
	defer func() { a.change() }()
	return a.Builder.Write(p)
}

// TestFollowTail verifies that what is appended, and a log that appears later, follow the last lines.
func TestFollowTail(t *testing.T) {
	run := runWithLogs(t, time.Now(), map[string]string{"rank-0000.log": "a\nb\n"})
	add := func(name, text string) {
		file, err := os.OpenFile(filepath.Join(run.Path(), name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := file.WriteString(text); err != nil {
			t.Error(err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	out := &appender{}
	out.change = func() {
		out.change = func() {}
		add("logs/rank-0000.log", "c\n")
		add("logs/rank-0000.g1.log", "d\ne\n")
		add("control/drain", "")
		add("result.json", "{}")
	}
	printer := runs.LogPrinter{RunDir: run.Dir, Out: out, Follow: true, LogRange: runs.LogRange{Tail: 1},
		Wanted: func(string, int) bool { return true }}
	_, err := printer.PrintLogs(t.Context())
	const want = "b\nc\n\n==> rank-0000.g1.log <==\nd\ne\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"10m": "2026-11-21T11:50:00+01:00", "2d": "2026-11-19T12:00:00+01:00",
		"11:30": "2026-11-21T11:30:00+01:00", "11:30:05": "2026-11-21T11:30:05+01:00",
		"2026-11-20": "2026-11-20T00:00:00+01:00", "2026-11-20 07:00": "2026-11-20T07:00:00+01:00",
		"2026-11-20T07:00:01": "2026-11-20T07:00:01+01:00", "2026-11-20T07:00:01Z": "2026-11-20T07:00:01Z",
		"-1m": "", "12:01": "", "2026-11-22": "", "10": "", "1w": "", "d": "", "": "", "0s": "", "yesterday": "",
	} {
		at, err := runs.ParseSince(text, now)
		if got := at.Format(time.RFC3339); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q is %s, %v, want %s", text, got, err, want)
		}
	}
}
