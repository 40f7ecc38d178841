package gpu

import (
	"slices"
	"strings"
)

const (
	keptLines = 3
	keptLine  = 300 // bytes
)

// crashes are how lines begin with which a Go program dies. What comes after them
// says more than the end.
var crashes = []string{"panic: ", "fatal error: ", "SIG", "runtime: "}

// lastLines keeps the last lines of what a process has said, or those that begin
// with a crash, without what a terminal would obey.
type lastLines struct {
	kept    []string
	crashed bool // the first one is that of a crash
}

func (l *lastLines) add(text []byte) {
	said := strings.TrimSpace(plain(string(text[:min(len(text), 4*keptLine)])))
	said = strings.ToValidUTF8(said[:min(len(said), keptLine)], "")
	if said == "" || l.crashed && len(l.kept) == keptLines {
		return
	}
	if !l.crashed && slices.ContainsFunc(crashes, func(begin string) bool { return strings.HasPrefix(said, begin) }) {
		l.crashed, l.kept = true, nil
	}
	l.kept = append(l.kept, said)
	l.kept = l.kept[max(0, len(l.kept)-keptLines):]
}

// after returns the last lines as one behind a separator, nothing where there are
// none.
func (l *lastLines) after(separator string) string {
	if len(l.kept) == 0 {
		return ""
	}
	return separator + strings.Join(l.kept, "; ")
}
