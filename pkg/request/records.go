package request

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// requestID identifies a request. It has 16 hexadecimal digits.
type requestID string

// newID returns a random id.
func newID() requestID {
	var raw lifeline.GuestID
	_, _ = rand.Read(raw[:]) // crypto/rand never fails
	return idOf(raw)
}

// idOf returns the id with these bytes.
func idOf(raw lifeline.GuestID) requestID { return requestID(hex.EncodeToString(raw[:])) }

// raw returns the bytes of the id, and whether it is valid.
func (id requestID) raw() (raw lifeline.GuestID, ok bool) {
	if len(id) != hex.EncodedLen(len(raw)) {
		return raw, false
	}
	_, err := hex.Decode(raw[:], []byte(id))
	return raw, err == nil && idOf(raw) == id // digits in upper case are not valid
}

// name returns the name in exec/ of one of the request's files.
func (id requestID) name(what string) string { return string(id) + "." + what }

// order returns the name in control/ of an order to the workers: to start the command if what is
// empty, or to cancel it if what is whatCancel.
func (id requestID) order(what string) string {
	return strings.TrimSuffix(kindOrder+id.name(what), ".")
}

// Suffixes of a request's names, after the id.
const (
	whatRequest = "request"
	whatTaken   = "taken"
	whatCancel  = "cancel"
	whatBeat    = "beat" // followed by a number
)

// part returns the suffix of a node's nth record of output, and [end] that of its last record.
func part(dir *signal.Dir, rank, n int) string { return dir.NodeName(rank, fmt.Sprintf("%06d", n)) }
func end(dir *signal.Dir, rank int) string     { return dir.NodeName(rank, "end") }

// Prefixes of names in control/, before the id. An order to start has no suffix. An order to cancel
// has the suffix whatCancel.
const (
	kindCall  = "call."
	kindOrder = "exec."
)

// shown is the set of suffixes of one request's names in a listing.
type shown map[string]bool

// requestsShown groups the names of a listing by request. kind is the prefix of the names: in exec/
// it is empty. Other names are ignored.
func requestsShown(names []string, kind string) map[requestID]shown {
	all := make(map[requestID]shown)
	for _, name := range names {
		name, is := strings.CutPrefix(name, kind)
		digits, what, _ := strings.Cut(name, ".")
		id := requestID(digits)
		if _, ok := id.raw(); !is || !ok {
			continue
		}
		if all[id] == nil {
			all[id] = make(shown)
		}
		all[id][what] = true
	}
	return all
}

// beat returns the number of the caller's newest heartbeat, or 0 if there is none.
func (s shown) beat() (newest int) {
	for what := range s {
		if digits, is := strings.CutPrefix(what, whatBeat+"."); is {
			n, _ := strconv.Atoi(digits)
			newest = max(newest, n)
		}
	}
	return newest
}

// names returns all names of the request in the listing.
func (s shown) names(id requestID) (names []string) {
	for what := range s {
		names = append(names, id.name(what))
	}
	return names
}

// Order is a command, and the nodes on which it should run.
type Order struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // variables that are added to the node's environment
	Nodes []string `json:"nodes"`         // node indices or hosts, OnAll or OnHead
	// Own means that Argv is a subcommand of the daemon's own program, and its arguments.
	Own bool `json:"own,omitempty"`
}

// Special values in the list of nodes of an order.
const (
	OnAll  = "all"
	OnHead = "head"
)

// requestRecord is the file of a request, written by the caller.
type requestRecord struct {
	signal.Header
	Order
}

// takenRecord is the head's answer to a request.
type takenRecord struct {
	signal.Header
	Nodes   []Answer `json:"nodes,omitempty"`   // the nodes that run it
	Refused string   `json:"refused,omitempty"` // why no node runs it
}

// startRecord is the head's order to the workers to start a command.
type startRecord struct {
	signal.Header
	ID    requestID `json:"id"`
	Argv  []string  `json:"argv"`
	Env   []string  `json:"env,omitempty"`
	Own   bool      `json:"own,omitempty"` // see [Order]
	Ranks []int     `json:"ranks"`         // the nodes that must run it, sorted
}

// argv returns the complete command.
func (r startRecord) argv() []string {
	if r.Own {
		return append([]string{process.OwnBinary}, r.Argv...)
	}
	return r.Argv
}

// outputRecord is a part of a command's output. The last one has the exit.
type outputRecord struct {
	signal.Header
	Pieces []piece `json:"pieces,omitempty"`
	End    *Exit   `json:"end,omitempty"`
}

// piece is a part of the output of one stream.
type piece struct {
	Stream int    `json:"fd"` // 1 for standard output, 2 for standard error
	Data   []byte `json:"data"`
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
