package gpu

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
)

const (
	keptBytes = 64 << 10 // of what a child says: more than the stacks and registers of a crash
	keptLines = 3
	keptLine  = 300 // bytes
)

// crashes are how lines begin with which a Go program dies. What follows is of
// less use.
var crashes = []string{"panic: ", "fatal error: ", "SIG", "runtime: "}

// lastLines keeps the end of what is written to it.
type lastLines struct{ kept []byte }

func (l *lastLines) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[max(0, len(p)-keptBytes):]...)
	if over := len(l.kept) - keptBytes; over > 0 {
		l.kept = append(l.kept[:0], l.kept[over:]...)
	}
	return len(p), nil
}

// String returns the last lines as one, or those that begin with a crash,
// without what a terminal would obey.
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
			lines = append(lines, strings.ToValidUTF8(text[:min(len(text), keptLine)], ""))
		}
	}
	isCrash := func(line string) bool {
		return slices.ContainsFunc(crashes, func(begin string) bool { return strings.HasPrefix(line, begin) })
	}
	if at := slices.IndexFunc(lines, isCrash); at >= 0 {
		lines = lines[at:min(at+keptLines, len(lines))]
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
