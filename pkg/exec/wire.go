package exec

import (
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Conn is a connection of any kind.
type Conn = io.ReadWriteCloser

// Request is a command, and the nodes on which it should run.
type Request struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // variables that are added to the node's environment
	Nodes []string `json:"nodes"`         // see [Selection.SelectMembers]
	// OwnProgram means that Argv is a subcommand of the daemon's own program, and its arguments.
	OwnProgram bool `json:"own_program,omitempty"`
}

// Result is the result of a request on one node.
type Result struct {
	NodeIndex int    `json:"node_index"`
	Host      string `json:"host"` // the prefix of its lines
	Answered  bool   `json:"-"`
	Exit      Exit   `json:"-"` // valid if Answered
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

// Exit describes how a command has ended on a node.
type Exit struct {
	Code   int    `json:"code"` // 128+n if signal n ended it
	Exit   string `json:"exit"` // the same in words
	Failed string `json:"failed,omitempty"`
	// Dropped is the number of bytes of output that were dropped.
	Dropped int64 `json:"dropped,omitempty"`
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

// NoCode is the exit code of an agent if the command has none. rsh and ssh use the same.
const NoCode = 255

// message is the first message on a connection, in JSON: the request of an agent or of a caller, or
// that of a node for a command. A caller and the head may send a second one to cancel the command.
type message struct {
	Host          string   `json:"host,omitempty"`           // the name that an agent gives
	Command       string   `json:"command,omitempty"`        // an agent's command line for the shell
	Request       *Request `json:"request,omitempty"`        // a caller's
	ID            string   `json:"id,omitempty"`             // the request's
	AwaitsCommand bool     `json:"awaits_command,omitempty"` // a node opens the connection to receive a command
	Cancel        bool     `json:"cancel,omitempty"`
}

// maxMessageSize is the maximum size of the messages of one side. The kernel accepts at most 128 KiB
// for one argument.
const maxMessageSize = 1 << 20

func writeMessage(conn io.Writer, m message) error { return json.NewEncoder(conn).Encode(m) }

// readMessage reads the first message. The decoder that it returns reads a further one.
func readMessage(conn io.Reader) (m message, further *json.Decoder, err error) {
	further = json.NewDecoder(io.LimitReader(conn, maxMessageSize))
	if err = further.Decode(&m); err != nil {
		err = fmt.Errorf("cannot read the request: %v", err)
	}
	return m, further, err
}

// answer is what the head sends to a caller, as a gob: first the nodes that run the command or the
// reason for a refusal, and then the output of the nodes.
type answer struct {
	Accepted accepted
	Node     int // index in Nodes
	Output   Output
}

// accepted is the head's answer to a request.
type accepted struct {
	Nodes    []Result `json:"nodes,omitempty"`   // the nodes that run it
	Refused  string   `json:"refused,omitempty"` // why no node runs it
	UseFiles bool     `json:"-"`                 // a node has no peer link
}

func (a accepted) members() []int {
	return textutil.MapSlice(a.Nodes, func(node Result) int { return node.NodeIndex })
}

// receiveOutput passes on a command's output, which is a stream of gobs, until its exit arrives.
func receiveOutput(conn io.Reader, pass func(Output)) (Exit, error) {
	for from := gob.NewDecoder(conn); ; {
		var got Output
		if err := from.Decode(&got); err != nil {
			return Exit{Code: NoCode}, err
		}
		pass(got)
		if got.End != nil {
			return *got.End, nil
		}
	}
}

// joinConns forwards what the head sends to an agent, until either side has gone or ctx ends.
func joinConns(ctx context.Context, agent, head Conn) {
	var both sync.WaitGroup
	defer both.Wait()
	defer agent.Close()
	defer context.AfterFunc(ctx, func() { _ = head.Close() })()
	both.Go(func() {
		_, _ = io.Copy(io.Discard, agent) // returns at the end: the agent sends no data
		_ = head.Close()
	})
	_, _ = io.Copy(agent, head)
}
