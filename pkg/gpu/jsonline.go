package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

const protocolVersion = 2

type request string

const (
	requestInspection request = "inspect" // answered by one line with facts, and lines with progress
	// answered by the number of watched GPUs, and then by lines until the watch ends
	requestWatch request = "watch"
	requestCUDA  request = "cuda" // answered by one line with the CUDA facts
	// like watch, but also reports the actions that GPUs request already, because an earlier watch may
	// have missed them
	requestResume request = "resume"
)

// message is one line of the protocol between parent and child, as JSON: a request, or a part of an
// answer. Exactly one of the fields after Number is set.
type message struct {
	Version int `json:"v"`
	// number of the request, the same in all of its answers
	Number   int        `json:"number,omitempty"`
	Request  request    `json:"request,omitempty"` // set in requests only
	Facts    *Facts     `json:"facts,omitempty"`
	CUDA     *CUDAFacts `json:"cuda,omitempty"`
	Progress *Progress  `json:"progress,omitempty"`
	// number of GPUs: the driver reports their events from now on
	Watching  *int   `json:"watching,omitempty"`
	Event     *Event `json:"event,omitempty"`
	Heartbeat bool   `json:"heartbeat,omitempty"`  // the watch goes on
	EndReason string `json:"end_reason,omitempty"` // the last line of a watch: why it cannot continue
}

// Progress is how far an inspection has got: without persistence mode, the driver takes seconds to
// initialise each GPU.
type Progress struct {
	Initialised int    `json:"initialised"` // initialised GPUs
	Complete    int    `json:"complete"`    // GPUs that have answered all queries
	Total       int    `json:"total"`
	SlowCalls   string `json:"slow_calls,omitempty"` // calls that have not returned for long
}

// encodeLine returns the line as JSON with a newline. It cannot fail, because all fields have types
// that JSON supports.
func (l message) encodeLine() []byte {
	l.Version = protocolVersion
	text, _ := json.Marshal(l)
	return append(text, '\n')
}

// maxTextLength is the maximum number of characters of each text from the driver.
const maxTextLength = 300

var (
	errInvalidMessage = errors.New("invalid message from the GPU child process")
	errOtherVersion   = fmt.Errorf("%w: it has another version of bringupd", errInvalidMessage)
)

// decodeMessage parses and validates a line. All of its errors wrap errInvalidMessage. The texts
// from the driver, which may be broken, are reduced to a single short line of printable characters.
func decodeMessage(text []byte) (message, error) {
	var l message
	if err := json.Unmarshal(text, &l); err != nil || l.Version == 0 {
		return message{}, errInvalidMessage
	}
	if l.Version != protocolVersion {
		return message{}, fmt.Errorf("%w (protocol version %d, expected %d)", errOtherVersion,
			l.Version, protocolVersion)
	}
	if l.Facts != nil && l.Facts.Version != FactsVersion {
		return message{}, fmt.Errorf("%w (facts version %d, expected %d)", errOtherVersion,
			l.Facts.Version, FactsVersion)
	}
	l.EndReason = textutil.SingleLine(l.EndReason, maxTextLength)
	if e := l.Event; e != nil {
		for _, words := range []*string{(*string)(&e.Kind), &e.UUID, &e.Bus, &e.Detail} {
			*words = textutil.SingleLine(*words, maxTextLength)
		}
	}
	if l.Progress != nil {
		l.Progress.SlowCalls = textutil.SingleLine(l.Progress.SlowCalls, maxTextLength)
	}
	return l, nil
}

const (
	maxKeptLines      = 3
	maxKeptLineLength = 300 // maximum characters of a kept line
)

// crashPrefixes are the prefixes with which the output of a crashing Go program begins. These first
// lines are more informative than the last ones.
var crashPrefixes = []string{"panic: ", "fatal error: ", "SIG", "runtime: "}

// outputTail keeps the last lines of a process's output, without terminal control characters. If a
// line begins like a crash, it keeps that line and the following ones instead.
type outputTail struct {
	kept    []string
	crashed bool // the kept lines begin with a crash
}

func (l *outputTail) addLine(text []byte) {
	line := textutil.SingleLine(textutil.StripControls(string(text)), maxKeptLineLength)
	if line == "" || l.crashed && len(l.kept) == maxKeptLines {
		return
	}
	if !l.crashed && slices.ContainsFunc(crashPrefixes,
		func(begin string) bool { return strings.HasPrefix(line, begin) }) {
		l.crashed, l.kept = true, nil
	}
	l.kept = append(l.kept, line)
	l.kept = l.kept[max(0, len(l.kept)-maxKeptLines):]
}

// textAfter returns the kept lines as one, after a separator, or an empty string if there are none.
func (l *outputTail) textAfter(separator string) string {
	if len(l.kept) == 0 {
		return ""
	}
	return separator + strings.Join(l.kept, "; ")
}
