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

// lineVersion is the version of the form of the lines between us and our child.
const lineVersion = 1

// question is what the child is asked for.
type question string

const (
	askLook   question = "look"   // answered by one line with facts, and lines that tell how far it has got
	askWatch  question = "watch"  // answered by how many GPUs are watched, and by lines without end
	askCUDA   question = "cuda"   // answered by one line with what CUDA's driver says
	askResume question = "resume" // as watch; and what GPUs ask for already is told, too: another watch may have missed it
)

// line is one line that the child reads or prints: one of its parts.
type line struct {
	Version  int         `json:"v"`
	Number   int         `json:"n,omitempty"`   // of the question, and of all answers to it
	Ask      question    `json:"ask,omitempty"` // all else are answers
	Facts    *Facts      `json:"facts,omitempty"`
	CUDA     *cuda.Facts `json:"cuda,omitempty"`
	Came     *Progress   `json:"came,omitempty"`
	Watching *int        `json:"watching,omitempty"` // GPUs: the driver tells of their events from now on
	Event    *Event      `json:"event,omitempty"`
	Beat     *beat       `json:"beat,omitempty"`
	Ended    string      `json:"ended,omitempty"` // the last line of a watch: why it can't go on
}

// Progress is how far the driver has got in attaching the GPUs: without persistence mode each takes seconds.
type Progress struct {
	Came  int    `json:"came"` // GPUs that are attached
	Done  int    `json:"done"` // GPUs that have answered all
	Of    int    `json:"of"`
	Waits string `json:"waits,omitempty"` // the calls that have not returned for long
}

// beat says that the watch goes on, and what it has counted.
type beat struct {
	Tallies []Tally `json:"tallies,omitempty"`
}

// Tally is what a GPU has gone through while it was watched.
type Tally struct {
	GPU    int    `json:"gpu"`
	UUID   string `json:"uuid,omitempty"`
	Looks  int    `json:"looks"`
	Slowed int    `json:"slowed"` // looks at which its clocks were kept down by heat or by a power brake
	// What the driver counts, since it was loaded or the GPU was reset.
	Replays    Reading[int] `json:"pcie_replays"`
	Remapped   Reading[int] `json:"remapped_rows"`
	Recoveries Reading[int] `json:"nvlink_recoveries"`
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
		for _, words := range []*string{(*string)(&e.Kind), &e.UUID, &e.Bus, &e.Severity, &e.Detail, &e.Name} {
			*words = prose.Line(*words, mostWords)
		}
	}
	parts := 0
	if l.Came != nil {
		l.Came.Waits = prose.Line(l.Came.Waits, mostWords)
	}
	for _, is := range []bool{l.Ask != "", l.Facts != nil, l.CUDA != nil, l.Came != nil, l.Watching != nil, l.Event != nil, l.Beat != nil, l.Ended != ""} {
		if is {
			parts++
		}
	}
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
