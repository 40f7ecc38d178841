package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/prose"
)

// lineVersion is the version of the line format between parent and child.
const lineVersion = 1

// question is the type of a request to the child.
type question string

const (
	askLook   question = "look"   // answered by one line with facts, and lines with progress
	askWatch  question = "watch"  // answered by the number of watched GPUs, and then by lines until the watch ends
	askCUDA   question = "cuda"   // answered by one line with the CUDA facts
	askResume question = "resume" // like watch, but also reports the actions that GPUs request already, because an earlier watch may have missed them
)

// line is one line of the protocol between parent and child, as JSON: a request, or a part of an
// answer. Exactly one of the fields after Number is set.
type line struct {
	Version  int         `json:"v"`
	Number   int         `json:"n,omitempty"`   // number of the request, the same in all of its answers
	Ask      question    `json:"ask,omitempty"` // set in requests only
	Facts    *Facts      `json:"facts,omitempty"`
	CUDA     *cuda.Facts `json:"cuda,omitempty"`
	Came     *Progress   `json:"came,omitempty"`
	Watching *int        `json:"watching,omitempty"` // number of GPUs: the driver reports their events from now on
	Event    *Event      `json:"event,omitempty"`
	Beat     *beat       `json:"beat,omitempty"`
	Ended    string      `json:"ended,omitempty"` // the last line of a watch: why it cannot continue
}

// Progress is how far an inspection has got: without persistence mode, the driver takes seconds to
// initialise each GPU.
type Progress struct {
	Came  int    `json:"came"` // initialised GPUs
	Done  int    `json:"done"` // GPUs that have answered all queries
	Of    int    `json:"of"`
	Waits string `json:"waits,omitempty"` // calls that have not returned for long
}

// beat is a heartbeat of the watch, with the counters of the GPUs.
type beat struct {
	Tallies []Tally `json:"tallies,omitempty"`
}

// Tally has the counters of one GPU during a watch.
type Tally struct {
	GPU    int    `json:"gpu"`
	UUID   string `json:"uuid,omitempty"`
	Looks  int    `json:"looks"`
	Slowed int    `json:"slowed"` // polls at which its clocks were reduced by heat or a power brake
	// Counters of the driver, since it was loaded or the GPU was reset.
	Replays    Reading[int] `json:"pcie_replays"`
	Remapped   Reading[int] `json:"remapped_rows"`
	Recoveries Reading[int] `json:"nvlink_recoveries"`
}

// encode returns the line as JSON with a newline. It cannot fail, because all fields have types
// that JSON supports.
func (l line) encode() []byte {
	l.Version = lineVersion
	text, _ := json.Marshal(l)
	return append(text, '\n')
}

const (
	mostWatched = 1024 // maximum number of GPUs; no node has as many
	mostWords   = 300  // maximum characters of each text from the driver
)

var (
	errNoLine       = errors.New("no line of the GPUs' child")
	errOtherVersion = fmt.Errorf("%w: another bringupd", errNoLine)
)

// decodeLine parses and validates a line. All of its errors wrap errNoLine. The texts from the
// driver, which may be broken, are reduced to a single short line of printable characters.
func decodeLine(text []byte) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Version == 0 {
		return line{}, errNoLine
	}
	l.Ended = prose.Line(l.Ended, mostWords)
	if e := l.Event; e != nil {
		for _, words := range []*string{(*string)(&e.Kind), &e.UUID, &e.Bus, &e.Severity, &e.Detail, &e.Name} {
			*words = prose.Line(*words, mostWords)
		}
	}
	// A line must have exactly one part.
	parts := 0
	if l.Came != nil {
		l.Came.Waits = prose.Line(l.Came.Waits, mostWords)
	}
	for _, is := range []bool{l.Ask != "", l.Facts != nil, l.CUDA != nil, l.Came != nil, l.Watching != nil, l.Event != nil, l.Beat != nil, l.Ended != ""} {
		if is {
			parts++
		}
	}
	// Reject other versions, and values that are impossible.
	switch e := l.Event; {
	case l.Version != lineVersion:
		return line{}, fmt.Errorf("%w, with lines of version %d where this one has version %d", errOtherVersion, l.Version, lineVersion)
	case parts != 1:
		return line{}, fmt.Errorf("%w: it has %d parts and not one", errNoLine, parts)
	case l.Number < 0:
		return line{}, fmt.Errorf("%w: no question has the number %d", errNoLine, l.Number)
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
	keptLine  = 300 // maximum characters of a kept line
)

// crashes are the prefixes with which the output of a crashing Go program begins. These first lines
// are more informative than the last ones.
var crashes = []string{"panic: ", "fatal error: ", "SIG", "runtime: "}

// lastLines keeps the last lines of a process's output, without terminal control characters. If a
// line begins like a crash, it keeps that line and the following ones instead.
type lastLines struct {
	kept    []string
	crashed bool // the kept lines begin with a crash
}

// add adds a line.
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

// after returns the kept lines as one, after a separator, or an empty string if there are none.
func (l *lastLines) after(separator string) string {
	if len(l.kept) == 0 {
		return ""
	}
	return separator + strings.Join(l.kept, "; ")
}
