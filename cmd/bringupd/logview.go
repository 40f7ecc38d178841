package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/process"
)

// logView is how far a log has been shown.
type logView struct {
	offset int64
	daemon bool // its lines are records of a daemon's own log
	lines  process.Lines
}

// longestRecord is how long a line of a daemon's log may be to be taken for a
// record.
const longestRecord = 1 << 20

func newLogView(name string) *logView {
	daemon := strings.HasPrefix(name, "daemon-") || strings.HasPrefix(name, "sandbox-daemon-")
	return &logView{daemon: daemon, lines: process.Lines{Longest: longestRecord}}
}

// take returns what is to be shown of what was read.
func (v *logView) take(data []byte) (shown []byte) {
	if !v.daemon {
		return data
	}
	v.lines.Add(data, func(line []byte, _ bool) { shown = append(shown, recordText(line)...) })
	return shown
}

// rest returns a line without an end.
func (v *logView) rest() (shown []byte) {
	v.lines.End(func(line []byte, _ bool) { shown = recordText(line) })
	return shown
}

// recordText makes a line for people of a record of a daemon's log; what is none
// stays as it is, but inert: JSON may hide what a terminal obeys.
func recordText(line []byte) []byte {
	var record map[string]any
	if json.Unmarshal(line, &record) != nil {
		return append(escaped(line), '\n')
	}
	var b strings.Builder
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(record["at"]))
	if err == nil {
		b.WriteString(at.Format("15:04:05.000 "))
	}
	fmt.Fprintf(&b, "%v %v", record["level"], record["msg"])
	for _, known := range []string{"at", "level", "msg", "daemon"} {
		delete(record, known)
	}
	for _, name := range slices.Sorted(maps.Keys(record)) {
		value, err := json.Marshal(record[name])
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, " %s=%s", name, value)
	}
	return append(escaped([]byte(strings.ReplaceAll(b.String(), "\n", " "))), '\n')
}

// inert passes text on so that a terminal shows all of it and obeys none of it.
type inert struct {
	to   io.Writer
	held []byte // the beginning of a character
}

// Write implements io.Writer.
func (w *inert) Write(data []byte) (int, error) {
	text := append(w.held, data...)
	w.held = nil
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				w.held = slices.Clone(tail)
				text = text[:len(text)-back]
			}
			break
		}
	}
	if _, err := w.to.Write(escaped(text)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// escaped writes out what a terminal might obey: control characters but for
// newline and tab, what turns the direction of text, and bytes that are no text.
func escaped(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		case r == utf8.RuneError && size == 1, r < ' ', r == 0x7f:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}
