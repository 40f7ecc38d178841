package signal

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Exec is the directory of requests to run a command on nodes of a run that
// lives, and of what came of them. Who asks writes there, and each node that is
// asked; the head alone lists it, and who waits for an answer.
const Exec = "exec"

// ExecID tells a request from all others: 16 hexadecimal digits.
type ExecID string

// NewExecID draws one.
func NewExecID() ExecID { return ExecID(newTag()[:execIDSize]) }

const execIDSize = 16

// Bytes returns what the digits stand for; nothing where they are none.
func (id ExecID) Bytes() (raw [execIDSize / 2]byte, ok bool) {
	if len(id) != execIDSize || strings.ToLower(string(id)) != string(id) {
		return raw, false
	}
	n, err := hex.Decode(raw[:], []byte(id))
	return raw, err == nil && n == len(raw)
}

// ExecIDOf returns the request's identity that has these bytes.
func ExecIDOf(raw [execIDSize / 2]byte) ExecID { return ExecID(hex.EncodeToString(raw[:])) }

// What may stand behind a request's identity in a name of Exec.
const (
	execRequest = "request" // what is asked for, by who asks
	execCancel  = "cancel"  // it is not wanted any more, by who asks
	execBeat    = "beat"    // who asks is still there; the third part counts
	execTaken   = "taken"   // who runs it, or why nobody does, by the head
	execLost    = "lost"    // which of them will not answer any more, by the head
	execEnd     = "end"     // after a rank: its last word
)

// The kinds of names in Control for it.
const (
	execCall  = "call" // somebody has put a request into Exec: call.<id>
	execOrder = "exec" // what the workers are to do: exec.<number>, by the head
)

// RequestName is the name in Exec of what is asked for.
func (id ExecID) RequestName() string { return string(id) + "." + execRequest }

// CancelName is the name that says that it is not wanted any more.
func (id ExecID) CancelName() string { return string(id) + "." + execCancel }

// TakenName is the name of the head's answer.
func (id ExecID) TakenName() string { return string(id) + "." + execTaken }

// LostName is the name of the head's word on who will not answer.
func (id ExecID) LostName() string { return string(id) + "." + execLost }

// BeatName is the name of the nth beat of who asks.
func (id ExecID) BeatName(n int64) string { return fmt.Sprintf("%s.%s.%06d", id, execBeat, n) }

// PartName is the name of a piece of what the command says on rank.
func (id ExecID) PartName(rank, size, n int) string {
	return fmt.Sprintf("%s.%0*d.%06d", id, Width(size), rank, n)
}

// EndName is the name of the last word of rank.
func (id ExecID) EndName(rank, size int) string {
	return fmt.Sprintf("%s.%0*d.%s", id, Width(size), rank, execEnd)
}

// CallName is the name in Control that has the head look into Exec.
func (id ExecID) CallName() string { return execCall + "." + string(id) }

// OrdersName is the name in Control of the nth orders.
func OrdersName(n int) string { return fmt.Sprintf("%s.%06d", execOrder, n) }

// ExecRequest is what somebody asks for.
type ExecRequest struct {
	Header
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"` // on top of the node's environment
	// Nodes are ranks or hosts; "all" and "head" are words for some.
	Nodes []string `json:"nodes"`
}

// The words for nodes in a request.
const (
	ExecAll  = "all"
	ExecHead = "head"
)

// ExecTaken is the head's answer to a request.
type ExecTaken struct {
	Header
	Nodes   []ExecNode `json:"nodes,omitempty"`
	Refused string     `json:"refused,omitempty"` // why nobody runs it
}

// ExecNode is one that runs what is asked for.
type ExecNode struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
}

// ExecLost tells which nodes will not answer any more.
type ExecLost struct {
	Header
	Ranks []int `json:"ranks"`
}

// ExecOrders is what the head has workers do: of all requests that came at once.
type ExecOrders struct {
	Header
	Start  []ExecOrder `json:"start,omitempty"`
	Cancel []ExecID    `json:"cancel,omitempty"`
}

// ExecOrder is one command, and who is to run it.
type ExecOrder struct {
	ID    ExecID   `json:"id"`
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"`
	Ranks []int    `json:"ranks"` // in order
}

// ExecOutput is a piece of what a command says, and at its end how it ended.
type ExecOutput struct {
	Header
	Pieces []ExecPiece `json:"pieces,omitempty"`
	End    *ExecExit   `json:"end,omitempty"`
}

// ExecPiece is what came on a stream.
type ExecPiece struct {
	Stream int    `json:"fd"` // 1 or 2
	Data   []byte `json:"data"`
}

// ExecExit is how a command ended.
type ExecExit struct {
	Parts  int    `json:"parts"` // that came before
	Code   int    `json:"code"`  // 128+n where signal n ended it
	Exit   string `json:"exit"`  // the same in words
	Failed string `json:"failed,omitempty"`
	// Dropped is how many bytes of the output were more than is passed on.
	Dropped int64 `json:"dropped,omitempty"`
}

// ExecShown is what a listing of Exec shows of one request.
type ExecShown struct {
	Request, Cancel, Taken, Lost bool
	Beat                         int64         // the newest
	Parts                        map[int][]int // by rank, in no order
	Ends                         []int         // ranks, in no order
	Names                        []string
}

// Execs returns what a listing of Exec shows, by request.
func (l Listing) Execs() map[ExecID]*ExecShown { return execsOf(l.names) }

func execsOf(names []string) map[ExecID]*ExecShown {
	all := make(map[ExecID]*ExecShown)
	for _, name := range names {
		first, rest, _ := strings.Cut(name, ".")
		id := ExecID(first)
		if _, ok := id.Bytes(); !ok {
			continue
		}
		shown := all[id]
		if shown == nil {
			shown = &ExecShown{Parts: make(map[int][]int)}
			all[id] = shown
		}
		shown.Names = append(shown.Names, name)
		shown.add(rest)
	}
	return all
}

func (s *ExecShown) add(rest string) {
	what, tail, _ := strings.Cut(rest, ".")
	switch what {
	case execRequest:
		s.Request = true
	case execCancel:
		s.Cancel = true
	case execTaken:
		s.Taken = true
	case execLost:
		s.Lost = true
	case execBeat:
		if n, ok := parseNumber(tail, 1<<62); ok {
			s.Beat = max(s.Beat, n)
		}
	default:
		rank, ok := parseRank(what)
		if !ok {
			return
		}
		if tail == execEnd {
			s.Ends = append(s.Ends, rank)
		} else if n, ok := parseNumber(tail, 1<<31); ok {
			s.Parts[rank] = append(s.Parts[rank], int(n))
		}
	}
}

// Calls returns the requests that a listing of Control tells of.
func (l Listing) Calls() (ids []ExecID) {
	for _, name := range l.names {
		what, rest, _ := strings.Cut(name, ".")
		if _, ok := ExecID(rest).Bytes(); ok && what == execCall {
			ids = append(ids, ExecID(rest))
		}
	}
	return ids
}

// Orders returns, in order, the numbers of the orders that a listing of Control
// shows.
func (l Listing) Orders() (numbers []int) {
	for _, name := range l.names {
		if n, ok := numbered(name, execOrder); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// MakeExec makes the directory of requests, for the first of them.
func (d *Dir) MakeExec(ctx context.Context) error {
	path := filepath.Join(d.path, Exec)
	err := do(ctx, d.via.Meter, "make", path, func() error { return d.makeOwn(path) })
	return d.explainWrite(path, err)
}

// HasExec tells whether a look at the run directory shows one of requests: until
// then, nobody may look for it by name.
func (d *Dir) HasExec(ctx context.Context) (bool, error) {
	names, err := d.Names(ctx, "")
	return slices.Contains(names, Exec), err
}

// LookExec looks at what was asked for. A directory in which somebody else could
// plant names is refused by a *DirError.
func (d *Dir) LookExec(ctx context.Context) (map[ExecID]*ExecShown, error) {
	path := filepath.Join(d.path, Exec)
	ours := Place{Host: d.host}
	names, err := guarded(ctx, d.via.Meter, "list", path, func() ([]string, error) {
		return d.via.Share.List(path, func(facts Facts) error { return ours.trust(path, facts) })
	})
	if err != nil {
		return nil, err
	}
	return execsOf(names), nil
}

// ReadOwn reads once a name in Exec that somebody else may have planted: it must
// be a file of this user's that nobody else can write to.
func (d *Dir) ReadOwn(ctx context.Context, name string, rec Record) error {
	path := filepath.Join(d.path, Exec, name)
	facts, err := guarded(ctx, d.via.Meter, "inspect", path, func() (facts Facts, err error) {
		err = d.via.again(func() error {
			facts, err = d.via.Share.Look(path)
			return err
		})
		return facts, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("cannot look at %s: %w", path, err)
	case !facts.Mode.IsRegular():
		return fmt.Errorf("cannot use %s: it is no file", path)
	case facts.Owner != os.Geteuid():
		return fmt.Errorf("cannot use %s: it belongs to %s, and the run to %s", path, userName(facts.Owner), userName(os.Geteuid()))
	case facts.Mode.Perm()&0o022 != 0:
		return fmt.Errorf("cannot use %s: its mode is %04o: others could have written it", path, facts.Mode.Perm())
	}
	if err := d.read(ctx, Exec, name, rec); err != nil {
		return fmt.Errorf("cannot use %s: %w", path, err)
	}
	return nil
}

// Absent tells whether an error of ReadOwn may go away by itself: this client
// does not know the file yet, or it is not whole, or not this attempt's.
func Absent(err error) bool { return passing(err) }

// BeatExec tells that who asks is still there.
func (d *Dir) BeatExec(ctx context.Context, id ExecID, n int64) error {
	from, to := filepath.Join(d.path, Exec, id.BeatName(n-1)), filepath.Join(d.path, Exec, id.BeatName(n))
	err := do(ctx, d.via.Meter, "beat", to, func() error {
		if n > 1 && renameOwn(d.via, from, to) == nil {
			return nil
		}
		return d.via.again(func() error { return d.via.Share.Write(to, nil, false) })
	})
	return d.explainWrite(to, err)
}

// Discard removes names that nobody needs any more.
func (d *Dir) Discard(ctx context.Context, sub string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(d.path, sub, name)
		err := do(ctx, d.via.Meter, "remove", path, func() error {
			return d.via.again(func() error { return d.via.Share.Change(Remove, "", path) })
		})
		if err != nil && !passing(err) {
			return err
		}
	}
	return nil
}
