package daemon

import (
	"io"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// partSize is how much output goes into one record: with what JSON makes of
	// it, less than a record may have.
	partSize = 256 << 10
	// mostOutput is how much of a command's output is passed on by one node:
	// what nobody reads must not fill the share.
	mostOutput = 256 << 20
)

// execOutput is what a command has said and nobody has been told yet. Who writes
// waits while that is a record's worth.
type execOutput struct {
	some  chan struct{} // buffered by one: there is something
	parts int           // published so far; owned by who publishes

	mu      sync.Mutex
	room    *sync.Cond         // waits for less to be there, or for closed
	pieces  []signal.ExecPiece // guarded by mu
	size    int                // of pieces; guarded by mu
	total   int64              // guarded by mu
	dropped int64              // guarded by mu
	closed  bool               // what comes is dropped; guarded by mu
}

func newExecOutput() *execOutput {
	o := &execOutput{some: make(chan struct{}, 1)}
	o.room = sync.NewCond(&o.mu)
	return o
}

// stream returns what takes in one of the command's streams.
func (o *execOutput) stream(number int) io.Writer { return execStream{o, number} }

type execStream struct {
	out    *execOutput
	number int
}

// Write takes in what the command says. It holds the command up while nobody
// passes it on.
func (s execStream) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		rest = rest[s.out.put(s.number, rest):]
	}
	return len(data), nil
}

// put takes in some of data, and returns how much.
func (o *execOutput) put(stream int, data []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size >= partSize && !o.closed {
		o.room.Wait()
	}
	if o.closed || o.total >= mostOutput {
		o.dropped += int64(len(data))
		return len(data)
	}
	data = data[:min(len(data), partSize-o.size)]
	if last := len(o.pieces) - 1; last >= 0 && o.pieces[last].Stream == stream {
		o.pieces[last].Data = append(o.pieces[last].Data, data...)
	} else {
		o.pieces = append(o.pieces, signal.ExecPiece{Stream: stream, Data: slices.Clone(data)})
	}
	o.size += len(data)
	o.total += int64(len(data))
	select {
	case o.some <- struct{}{}:
	default:
	}
	return len(data)
}

// take returns what is there, at most a record's worth.
func (o *execOutput) take() []signal.ExecPiece {
	o.mu.Lock()
	defer o.mu.Unlock()
	pieces := o.pieces
	o.pieces, o.size = nil, 0
	o.room.Broadcast()
	return pieces
}

// close has what comes from now on dropped, and holds nobody up any more.
func (o *execOutput) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.room.Broadcast()
}

func (o *execOutput) lost() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
