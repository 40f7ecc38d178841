package exec

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// requestID identifies a request. It has 16 hexadecimal digits.
type requestID string

// newRequestID returns a random id.
func newRequestID() requestID {
	var raw peerlink.ClientID
	_, _ = rand.Read(raw[:]) // crypto/rand never fails
	return requestIDFrom(raw)
}

// requestIDFrom returns the id with these bytes.
func requestIDFrom(raw peerlink.ClientID) requestID { return requestID(hex.EncodeToString(raw[:])) }

// decode returns the bytes of the id, and whether it is valid.
func (id requestID) decode() (raw peerlink.ClientID, ok bool) {
	if len(id) != hex.EncodedLen(len(raw)) {
		return raw, false
	}
	_, err := hex.Decode(raw[:], []byte(id))
	return raw, err == nil && requestIDFrom(raw) == id // digits in upper case are not valid
}

// fileName returns the name in exec/ of one of the request's files.
func (id requestID) fileName(what string) string { return string(id) + "." + what }

// orderName returns the name in control/ of an order to the workers: to start the command if what
// is empty, or to cancel it if what is cancelSuffix.
func (id requestID) orderName(what string) string {
	return strings.TrimSuffix(orderPrefix+id.fileName(what), ".")
}

// Suffixes of a request's names, after the id.
const (
	requestSuffix  = "request"
	acceptedSuffix = "taken"
	cancelSuffix   = "cancel"
	beatSuffix     = "beat" // followed by a number
)

// partSuffix returns the suffix of a node's nth record of output, and [endSuffix] that of its last
// record.
func partSuffix(dir *signal.Dir, node, n int) string {
	return dir.NodeName(node, record.State(fmt.Sprintf("%06d", n)))
}
func endSuffix(dir *signal.Dir, node int) string { return dir.NodeName(node, "end") }

// Prefixes of names in control/, before the id. An order to start has no suffix. An order to cancel
// has the suffix cancelSuffix.
const (
	callPrefix  = "call."
	orderPrefix = "exec."
)

// requestFiles is the set of suffixes of one request's names in a listing.
type requestFiles map[string]bool

// groupByRequest groups the names of a listing by request. kind is the prefix of the names: in
// exec/ it is empty. Other names are ignored.
func groupByRequest(names []string, kind string) map[requestID]requestFiles {
	all := make(map[requestID]requestFiles)
	for _, name := range names {
		name, is := strings.CutPrefix(name, kind)
		digits, what, _ := strings.Cut(name, ".")
		id := requestID(digits)
		if _, ok := id.decode(); !is || !ok {
			continue
		}
		if all[id] == nil {
			all[id] = make(requestFiles)
		}
		all[id][what] = true
	}
	return all
}

// newestBeat returns the number of the caller's newest heartbeat, or 0 if there is none.
func (s requestFiles) newestBeat() (newest int) {
	for what := range s {
		if digits, is := strings.CutPrefix(what, beatSuffix+"."); is {
			n, _ := strconv.Atoi(digits)
			newest = max(newest, n)
		}
	}
	return newest
}

// fileNames returns all names of the request in the listing.
func (s requestFiles) fileNames(id requestID) (names []string) {
	for what := range s {
		names = append(names, id.fileName(what))
	}
	return names
}

// Request is a command, and the nodes on which it should run.
type Request struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // variables that are added to the node's environment
	Nodes []string `json:"nodes"`         // see [Selection.SelectMembers]
	// OwnProgram means that Argv is a subcommand of the daemon's own program, and its arguments.
	OwnProgram bool `json:"own_program,omitempty"`
}

// Special values in the list of nodes of an order.
const (
	AllNodes = "all"
	HeadNode = "head"
	// StepsSuffix, after the name of a node or AllNodes, also selects the daemons of further job steps
	// there.
	StepsSuffix = "/*"
)

// requestRecord is the file of a request, written by the caller.
type requestRecord struct {
	record.Header
	Request
}

// acceptedRecord is the head's answer to a request.
type acceptedRecord struct {
	record.Header
	Nodes   []Result `json:"nodes,omitempty"`   // the nodes that run it
	Refused string   `json:"refused,omitempty"` // why no node runs it
}

// startRecord is the head's order to the workers to start a command.
type startRecord struct {
	record.Header
	ID         requestID `json:"id"`
	Argv       []string  `json:"argv"`
	Env        []string  `json:"env,omitempty"`
	OwnProgram bool      `json:"own_program,omitempty"` // see [Request]
	Nodes      []int     `json:"nodes"`                 // the nodes that must run it, sorted
}

// commandLine returns the complete command.
func (r startRecord) commandLine() []string {
	if r.OwnProgram {
		return append([]string{process.OwnBinary}, r.Argv...)
	}
	return r.Argv
}

// outputRecord is the file of a part of a command's output.
type outputRecord struct {
	record.Header
	Output
}

// Output is a part of a command's output. The last one has the exit.
type Output struct {
	Pieces []Piece `json:"pieces,omitempty"`
	End    *Exit   `json:"end,omitempty"`
}

// Piece is a part of the output of one stream.
type Piece struct {
	Stream int    `json:"stream"` // 1 for standard output, 2 for standard error
	Data   []byte `json:"data"`
}

// Forward writes the output to out and errs. It writes all of it even after an error.
func (o Output) Forward(out, errs io.Writer) (failed error) {
	for _, piece := range o.Pieces {
		to := out
		if piece.Stream == 2 {
			to = errs
		}
		_, err := to.Write(piece.Data)
		failed = cmp.Or(failed, err)
	}
	return failed
}

// Exit describes how a command has ended on a node.
type Exit struct {
	Parts  int    `json:"parts"` // number of records of output before the last one
	Code   int    `json:"code"`  // 128+n if signal n ended it
	Exit   string `json:"exit"`  // the same in words
	Failed string `json:"failed,omitempty"`
	// Dropped is the number of bytes of output that were dropped.
	Dropped int64 `json:"dropped,omitempty"`
}
