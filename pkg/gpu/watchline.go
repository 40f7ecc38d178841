package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// WatchVersion is the version of the form of the lines that the watch prints.
const WatchVersion = 1

// watchLine is one line of what the watch prints: one of its parts.
type watchLine struct {
	Version  int    `json:"v"`
	Watching *int   `json:"watching,omitempty"` // GPUs; the first line: the driver tells of events from now on
	Event    *Event `json:"event,omitempty"`
	Beat     bool   `json:"beat,omitempty"`  // nothing new: the driver answers
	Ended    string `json:"ended,omitempty"` // the last line: why it can't go on
}

func (l watchLine) encode() ([]byte, error) {
	l.Version = WatchVersion
	text, err := json.Marshal(l)
	return append(text, '\n'), err
}

const mostWatched = 1024 // GPUs of a node; nobody has as many

var errNoWatchLine = errors.New("no line of the watch")

// decodeWatchLine reads a line. It refuses what can't be, and makes plain text
// of all words: they come from a driver that may be broken.
func decodeWatchLine(text []byte) (watchLine, error) {
	var line watchLine
	if err := json.Unmarshal(text, &line); err != nil {
		return watchLine{}, errNoWatchLine
	}
	parts := 0
	for _, is := range []bool{line.Watching != nil, line.Event != nil, line.Beat, line.Ended != ""} {
		if is {
			parts++
		}
	}
	switch {
	case line.Version == 0:
		return watchLine{}, errNoWatchLine
	case line.Version != WatchVersion:
		return watchLine{}, fmt.Errorf("%w of version %d, but of version %d: another bringupd", errNoWatchLine, WatchVersion, line.Version)
	case parts != 1:
		return watchLine{}, fmt.Errorf("%w: it has %d parts and not one", errNoWatchLine, parts)
	case line.Watching != nil && (*line.Watching < 0 || *line.Watching > mostWatched):
		return watchLine{}, fmt.Errorf("%w: nobody watches %d GPUs", errNoWatchLine, *line.Watching)
	}
	line.Ended = plain(line.Ended)
	if e := line.Event; e != nil {
		if e.Kind == "" || e.Xid < 0 || e.GPU < -1 || e.GPU > mostWatched || e.Recovery < 0 || e.Count < 0 {
			return watchLine{}, fmt.Errorf("%w: no such event", errNoWatchLine)
		}
		e.Kind = Kind(plain(string(e.Kind)))
		for _, word := range []*string{&e.UUID, &e.Bus, &e.Severity, &e.Detail} {
			*word = plain(*word)
		}
	}
	return line, nil
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
