package console

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestEar(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"a record", `{"level":"info","at":"2026-11-22T02:21:20.646000001Z","daemon":"bringupd[0 n0]",` +
			`"msg":"made it","dir":"/x","nodes":2}` + "\n",
			"02:21:20.646 info made it dir=/x nodes=2\n"},
		{"what would end the line or look like a field",
			`{"level":"warn","msg":"a\nb","why":"c=d\n","d":["q"],"e":""}` + "\n",
			`warn a b d=["q"] e="" why="c=d\n"` + "\n"},
		{"no time", `{"level":"info","at":"soon","msg":"x"}` + "\n", "info x\n"},
		{"JSON of another program", `{"msg":"x"}` + "\n", `{"msg":"x"}` + "\n"},
		{"what a terminal obeys", `{"level":"warn","msg":"a\u001b[2Jb\nc"}` + "\n", "warn a\\x1b[2Jb c\n"},
		{"no record", "panic: \x1b[1m\n", "panic: \\x1b[1m\n"},
		{"no end", `{"level":"info","msg":"cut`, "{\"level\":\"info\",\"msg\":\"cut\n"},
		{"a line without end", strings.Repeat("x", maxRecordLength+10), strings.Repeat("x", maxRecordLength+10) + "\n"},
	} {
		v := NewLogFormatter(time.Time{})
		var got []byte
		for rest := []byte(tc.text); len(rest) > 0; {
			n := min(7919, len(rest))
			got = append(got, v.FormatNext(rest[:n])...)
			rest = rest[n:]
		}
		got = append(got, v.FormatRest()...)
		if tc.name == "a line without end" {
			got = bytes.ReplaceAll(got, []byte("\n"), nil)
			got = append(got, '\n')
		}
		if string(got) != tc.want {
			t.Errorf("%s: %.300q, not %.300q", tc.name, got, tc.want)
		}
	}
}

// TestFormatSince verifies that the lines before the first record since a time are left out, and no
// later ones.
func TestFormatSince(t *testing.T) {
	const text = `{"level":"info","at":"2026-11-22T02:21:19Z","msg":"a"}` + "\npanic\n" +
		`{"level":"info","at":"2026-11-22T02:21:20Z","msg":"b"}` + "\nno record\n" +
		`{"level":"info","at":"2026-11-22T02:21:19Z","msg":"c"}` + "\n"
	for since, want := range map[string]string{
		"2026-11-22T02:21:20Z":      "02:21:20.000 info b\nno record\n02:21:19.000 info c\n",
		"2026-11-22T03:21:20+01:00": "02:21:20.000 info b\nno record\n02:21:19.000 info c\n",
		"2026-11-22T02:21:21Z":      "",
	} {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(NewLogFormatter(at).FormatNext([]byte(text))); got != want {
			t.Errorf("since %s: %q, not %q", since, got, want)
		}
	}
}
