package voice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Spoken is a line of a daemon's own log, which is JSON, as people read it: the time, the level, what it says, and then
// its fields, in quotes where they need any. The text is one line, but may hold what a terminal obeys. ok is whether it is such a line.
func Spoken(line []byte) (text string, ok bool) {
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
	keys := encoding()
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

// longestRecord is how long a line may be, in bytes, to be taken for a record.
const longestRecord = 1 << 20

// Ear makes lines for people of a daemon's own log, as it is read piece by piece. What is no record stays as it is. All is
// made inert: JSON may hide what a terminal obeys.
type Ear struct{ lines process.Lines }

// NewEar returns one that has heard nothing.
func NewEar() *Ear { return &Ear{process.Lines{Longest: longestRecord}} }

// Hear returns the lines that have ended with the next piece.
func (e *Ear) Hear(piece []byte) (said []byte) {
	e.lines.Add(piece, func(line []byte, _ bool) { said = append(said, told(line)...) })
	return said
}

// Rest returns a line without an end.
func (e *Ear) Rest() (said []byte) {
	e.lines.End(func(line []byte, _ bool) { said = told(line) })
	return said
}

func told(line []byte) []byte {
	if text, ok := Spoken(line); ok {
		line = []byte(text)
	}
	return append(prose.Escaped(line), '\n')
}
