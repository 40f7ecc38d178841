package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// lineVersion is the version of the form of the lines between us and our child.
const lineVersion = 1

// question is what the child is asked for.
type question string

const (
	askLook  question = "look"  // answered by one line with facts
	askWatch question = "watch" // answered by how many GPUs are watched, and by lines without end
)

// line is one line that the child reads or prints: one of its parts.
type line struct {
	Version  int      `json:"v"`
	Ask      question `json:"ask,omitempty"` // all else are answers
	Facts    *Facts   `json:"facts,omitempty"`
	Watching *int     `json:"watching,omitempty"` // GPUs: the driver tells of their events from now on
	Event    *Event   `json:"event,omitempty"`
	Beat     bool     `json:"beat,omitempty"`  // nothing new: the driver answers
	Ended    string   `json:"ended,omitempty"` // the last line: why it can't go on
}

// encode is the line with its end. It can't fail: nothing of it is of a kind that JSON does not have.
func (l line) encode() []byte {
	l.Version = lineVersion
	text, _ := json.Marshal(l)
	return append(text, '\n')
}

const (
	mostWatched = 1024 // GPUs of a node; nobody has as many
	mostWords   = 300  // characters of what an event or an end says
)

var (
	errNoLine       = errors.New("no line of the GPUs' child")
	errOtherVersion = fmt.Errorf("%w: another bringupd", errNoLine)
)

// decodeLine reads a line; its error is errNoLine. It refuses what can't be, and makes plain text of all words of an
// event: they come from a driver that may be broken.
func decodeLine(text []byte) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Version == 0 {
		return line{}, errNoLine
	}
	l.Ended = prose.Line(l.Ended, mostWords)
	if e := l.Event; e != nil {
		for _, words := range []*string{(*string)(&e.Kind), &e.UUID, &e.Bus, &e.Severity, &e.Detail} {
			*words = prose.Line(*words, mostWords)
		}
	}
	parts := 0
	for _, is := range []bool{l.Ask != "", l.Facts != nil, l.Watching != nil, l.Event != nil, l.Beat, l.Ended != ""} {
		if is {
			parts++
		}
	}
	switch e := l.Event; {
	case l.Version != lineVersion:
		return line{}, fmt.Errorf("%w, with lines of version %d where this one has version %d", errOtherVersion, l.Version, lineVersion)
	case parts != 1:
		return line{}, fmt.Errorf("%w: it has %d parts and not one", errNoLine, parts)
	case l.Facts != nil && (l.Facts.Version != FactsVersion || l.Facts.Init == ""):
		return line{}, fmt.Errorf("%w, with facts of version %d where this one has version %d", errOtherVersion, l.Facts.Version, FactsVersion)
	case l.Watching != nil && (*l.Watching < 0 || *l.Watching > mostWatched):
		return line{}, fmt.Errorf("%w: nobody watches %d GPUs", errNoLine, *l.Watching)
	case e != nil && (e.Kind == "" || e.Xid < 0 || e.GPU < -1 || e.GPU > mostWatched || e.Recovery < 0 || e.Count < 0):
		return line{}, fmt.Errorf("%w: no such event", errNoLine)
	}
	return l, nil
}

const (
	keptLines = 3
	keptLine  = 300 // characters
)

// crashes are how lines begin with which a Go program dies. What comes after them says more than the end.
var crashes = []string{"panic: ", "fatal error: ", "SIG", "runtime: "}

// lastLines keeps the last lines of what a process has said, or those that begin with a crash, without what a terminal
// would obey.
type lastLines struct {
	kept    []string
	crashed bool // the first one is that of a crash
}

func (l *lastLines) add(text []byte) {
	said := prose.Line(prose.Plain(string(text)), keptLine)
	if said == "" || l.crashed && len(l.kept) == keptLines {
		return
	}
	if !l.crashed && slices.ContainsFunc(crashes, func(begin string) bool { return strings.HasPrefix(said, begin) }) {
		l.crashed, l.kept = true, nil
	}
	l.kept = append(l.kept, said)
	l.kept = l.kept[max(0, len(l.kept)-keptLines):]
}

// after returns the last lines as one behind a separator, nothing where there are none.
func (l *lastLines) after(separator string) string {
	if len(l.kept) == 0 {
		return ""
	}
	return separator + strings.Join(l.kept, "; ")
}
