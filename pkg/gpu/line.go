package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
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

// encode is the line with its end. It can't fail: nothing of it is of a kind that
// JSON does not have.
func (l line) encode() []byte {
	l.Version = lineVersion
	text, _ := json.Marshal(l)
	return append(text, '\n')
}

const mostWatched = 1024 // GPUs of a node; nobody has as many

var (
	errNoLine       = errors.New("no line of the GPUs' child")
	errOtherVersion = fmt.Errorf("%w: another bringupd", errNoLine)
)

// decodeLine reads a line; its error is errNoLine. It refuses what can't be, and
// makes plain text of all words of an event: they come from a driver that may be
// broken.
func decodeLine(text []byte) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Version == 0 {
		return line{}, errNoLine
	}
	parts := 0
	for _, is := range []bool{l.Ask != "", l.Facts != nil, l.Watching != nil, l.Event != nil, l.Beat, l.Ended != ""} {
		if is {
			parts++
		}
	}
	switch {
	case l.Version != lineVersion:
		return line{}, fmt.Errorf("%w, with lines of version %d where this one has version %d", errOtherVersion, l.Version, lineVersion)
	case parts != 1:
		return line{}, fmt.Errorf("%w: it has %d parts and not one", errNoLine, parts)
	case l.Facts != nil && (l.Facts.Version != FactsVersion || l.Facts.Init == ""):
		return line{}, fmt.Errorf("%w, with facts of version %d where this one has version %d", errOtherVersion, l.Facts.Version, FactsVersion)
	case l.Watching != nil && (*l.Watching < 0 || *l.Watching > mostWatched):
		return line{}, fmt.Errorf("%w: nobody watches %d GPUs", errNoLine, *l.Watching)
	}
	l.Ended = plain(l.Ended)
	if e := l.Event; e != nil {
		if e.Kind == "" || e.Xid < 0 || e.GPU < -1 || e.GPU > mostWatched || e.Recovery < 0 || e.Count < 0 {
			return line{}, fmt.Errorf("%w: no such event", errNoLine)
		}
		e.Kind = Kind(plain(string(e.Kind)))
		for _, word := range []*string{&e.UUID, &e.Bus, &e.Severity, &e.Detail} {
			*word = plain(*word)
		}
	}
	return l, nil
}

// plain leaves nothing that a terminal would obey.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
}
