package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// FormatRecord converts a line of a daemon's own log, which is JSON, to readable text: time, level,
// message, and then the fields, quoted if necessary. The text is one line but may contain control
// sequences of terminals. ok is false if the line is not such a record.
func FormatRecord(line []byte) (text string, ok bool) {
	var record map[string]json.RawMessage
	var known struct{ At, Level, Msg string }
	if json.Unmarshal(line, &record) != nil || json.Unmarshal(line, &known) != nil || known.Level == "" {
		return "", false
	}
	var b strings.Builder
	if at, err := time.Parse(time.RFC3339Nano, known.At); err == nil {
		b.WriteString(at.Format("15:04:05.000 "))
	}
	fmt.Fprintf(&b, "%s %s", known.Level, known.Msg)
	keys := encoderConfig()
	for _, name := range []string{keys.TimeKey, keys.LevelKey, keys.MessageKey, keys.NameKey} {
		delete(record, name)
	}
	for _, name := range slices.Sorted(maps.Keys(record)) {
		value := string(record[name])
		if bare := strings.Trim(value, `"`); bare != "" && !strings.ContainsAny(bare, ` "\=`) {
			value = bare
		}
		fmt.Fprintf(&b, " %s=%s", name, value)
	}
	return strings.ReplaceAll(b.String(), "\n", " "), true
}

// maxRecordLength is the maximum length of a line that is parsed as a record, in bytes.
const maxRecordLength = 1 << 20

// LogFormatter converts a daemon's own log to readable lines while it is read piece by piece. Lines
// that are not records are left unchanged. Control sequences of terminals, which JSON may hide, are
// escaped.
type LogFormatter struct {
	splitter process.LineSplitter
	since    time.Time // the lines before the first record since then are left out; zero: none
}

// NewLogFormatter returns a [LogFormatter] at the beginning of a log, or of a part of it. It leaves out
// the lines before the first record since a time, unless that is zero.
func NewLogFormatter(since time.Time) *LogFormatter {
	return &LogFormatter{process.LineSplitter{MaxLength: maxRecordLength}, since}
}

// FormatNext returns the readable form of the lines that are completed by piece.
func (e *LogFormatter) FormatNext(piece []byte) (text []byte) {
	e.splitter.Add(piece, func(line []byte, _ bool) { text = append(text, e.formatLine(line)...) })
	return text
}

// FormatRest returns the readable form of an incomplete last line.
func (e *LogFormatter) FormatRest() (text []byte) {
	e.splitter.Flush(func(line []byte, _ bool) { text = e.formatLine(line) })
	return text
}

func (e *LogFormatter) formatLine(line []byte) []byte {
	if !e.since.IsZero() {
		var known struct{ At time.Time }
		if json.Unmarshal(line, &known) != nil || known.At.Before(e.since) {
			return nil
		}
		e.since = time.Time{}
	}
	if text, ok := FormatRecord(line); ok {
		line = []byte(text)
	}
	return append(textutil.EscapeControls(line), '\n')
}
