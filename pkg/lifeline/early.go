package lifeline

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// early is what a worker learns of the head before its first connection. The head may die in the moment in which its
// kernel takes the calls and its daemon has not answered them.
type early struct {
	took   string // the address where a call was taken and nothing came of it; "": none was
	hasty  bool   // and we have come back soon
	closed bool   // there is no more to be learnt
}

// turnedAway notes that a call was taken, and that the handshake failed by err: the other side has ended it or is
// silent. Who says something else than the head would is a stranger.
func (e *early) turnedAway(address string, err error) {
	stranger := slices.ContainsFunc([]error{errGarbage, errWrongKey, errTaken}, func(one error) bool { return errors.Is(err, one) })
	if e.took == "" && !stranger {
		e.took = address
	}
}

// fresh tells, once, that a call was taken: it is time to come back and see.
func (e *early) fresh() bool {
	was := e.hasty
	e.hasty = e.took != ""
	return e.hasty && !was
}

// bereft tells, once, that an address which refuses us now has taken a call before.
func (e *early) bereft(address string) bool {
	told := e.closed || address != e.took
	e.closed = e.closed || !told
	return !told
}

// over: there is a connection.
func (e *early) over() { e.closed = true }

// refusalTime is how long a kernel may take to say that nobody listens.
const refusalTime = 300 * time.Millisecond

// Deserted asks whether the head's host says that nobody listens where the head has said that it does: at each of its
// addresses that are known here. Who is not answered at once gets no answer.
func (w *Worker) Deserted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	answers := make([]error, len(w.offered))
	var calls sync.WaitGroup
	for i, address := range w.offered {
		calls.Go(func() {
			conn, err := w.network.Dial(ctx, address)
			if err == nil {
				abort(conn)
			}
			answers[i] = err
		})
	}
	calls.Wait()
	known := slices.DeleteFunc(answers, func(err error) bool {
		_, nameless := errors.AsType[*net.DNSError](err)
		return nameless
	})
	return len(known) > 0 && !slices.ContainsFunc(known, func(err error) bool { return !errors.Is(err, syscall.ECONNREFUSED) })
}
