package gpu

import (
	"bytes"
	"strings"
	"unicode"
)

const (
	keptBytes = 2 << 10 // of what a child says
	keptLines = 3
)

// lastLines keeps the end of what is written to it.
type lastLines struct{ kept []byte }

func (l *lastLines) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[max(0, len(p)-keptBytes):]...)
	if over := len(l.kept) - keptBytes; over > 0 {
		l.kept = append(l.kept[:0], l.kept[over:]...)
	}
	return len(p), nil
}

// String returns the last lines as one, without what a terminal would obey.
func (l *lastLines) String() string {
	var lines []string
	for line := range bytes.Lines(l.kept) {
		text := strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, strings.ToValidUTF8(string(line), "?"))
		if text = strings.TrimSpace(text); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines[max(0, len(lines)-keptLines):], "; ")
}

// after returns the last lines behind a separator, nothing where there are none.
func (l *lastLines) after(separator string) string {
	if text := l.String(); text != "" {
		return separator + text
	}
	return ""
}
