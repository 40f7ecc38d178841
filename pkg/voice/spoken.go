package voice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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
