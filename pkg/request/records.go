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

// requestID tells a request from all others: 16 hexadecimal digits.
type requestID string

func newID() requestID {
	var raw lifeline.GuestID
	_, _ = rand.Read(raw[:]) // it never fails: see crypto/rand
	return idOf(raw)
}

func idOf(raw lifeline.GuestID) requestID { return requestID(hex.EncodeToString(raw[:])) }

// raw returns what the digits stand for, and whether they are an id.
func (id requestID) raw() (raw lifeline.GuestID, ok bool) {
	if len(id) != hex.EncodedLen(len(raw)) {
		return raw, false
	}
	_, err := hex.Decode(raw[:], []byte(id))
	return raw, err == nil && idOf(raw) == id // the same in upper case is another name
}

// name is the name in exec/ of what there is of a request.
func (id requestID) name(what string) string { return string(id) + "." + what }

// order is the name in control/ of what workers are to do: to begin it, where what is
// empty, or whatCancel.
func (id requestID) order(what string) string {
	return strings.TrimSuffix(kindOrder+id.name(what), ".")
}

// What the names of a request have behind its id.
const (
	whatRequest = "request"
	whatTaken   = "taken"
	whatCancel  = "cancel"
	whatBeat    = "beat" // and a number
)

// part is what the name of the nth piece of a node's output has behind the id, and
// end that of its last word.
func part(dir *signal.Dir, rank, n int) string { return dir.NodeName(rank, fmt.Sprintf("%06d", n)) }
func end(dir *signal.Dir, rank int) string     { return dir.NodeName(rank, "end") }

// The kinds of names in control/, which have the id behind them. An order to begin
// has nothing more, and one to end early whatCancel.
const (
	kindCall  = "call."
	kindOrder = "exec."
)

// shown is what a listing shows of one request: what its names have behind the id.
type shown map[string]bool

// requestsShown takes a listing apart: the names of a kind in control/, or those in
// exec/, which are of none.
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

// beat returns the number of the caller's newest beat.
func (s shown) beat() (newest int) {
	for what := range s {
		if digits, is := strings.CutPrefix(what, whatBeat+"."); is {
			n, _ := strconv.Atoi(digits)
			newest = max(newest, n)
		}
	}
	return newest
}

// names returns all names of the request.
func (s shown) names(id requestID) (names []string) {
	for what := range s {
		names = append(names, id.name(what))
	}
	return names
}

// Order is a command, and where it is to run.
type Order struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // on top of the node's environment
	Nodes []string `json:"nodes"`         // ranks or hosts, OnAll or OnHead
	// Own says that Argv is for the program that each node's daemon is itself: its subcommand and what follows.
	Own bool `json:"own,omitempty"`
}

// The words for nodes in an order.
const (
	OnAll  = "all"
	OnHead = "head"
)

// requestRecord is what somebody asks for.
type requestRecord struct {
	signal.Header
	Order
}

// takenRecord is the head's answer.
type takenRecord struct {
	signal.Header
	Nodes   []Answer `json:"nodes,omitempty"`   // to come, of who runs it
	Refused string   `json:"refused,omitempty"` // why nobody runs it
}

// startRecord is a command that the head has workers begin.
type startRecord struct {
	signal.Header
	ID    requestID `json:"id"`
	Argv  []string  `json:"argv"`
	Env   []string  `json:"env,omitempty"`
	Own   bool      `json:"own,omitempty"` // see Order
	Ranks []int     `json:"ranks"`         // who is to run it, in order
}

// argv is the command as it is started.
func (r startRecord) argv() []string {
	if r.Own {
		return append([]string{process.OwnBinary}, r.Argv...)
	}
	return r.Argv
}

// outputRecord is a piece of what a command says, and at its end how it ended.
type outputRecord struct {
	signal.Header
	Pieces []piece `json:"pieces,omitempty"`
	End    *Exit   `json:"end,omitempty"`
}

// piece is what came on a stream.
type piece struct {
	Stream int    `json:"fd"` // 1 or 2
	Data   []byte `json:"data"`
}

// Exit is how a command ended on a node.
type Exit struct {
	Parts  int    `json:"parts"` // records of output that came before
	Code   int    `json:"code"`  // 128+n where signal n ended it
	Exit   string `json:"exit"`  // the same in words
	Failed string `json:"failed,omitempty"`
	// Dropped is how many bytes of the output were more than is passed on.
	Dropped int64 `json:"dropped,omitempty"`
}
