package lifeline

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// early is what a worker learns of the head before its first connection: the head's daemon may die after its kernel has
// taken our call and before it has answered.
type early struct {
	took   string // the address where a call was taken and nothing came of it; "": none was
	closed bool   // there is no more to be learnt
}

// turnedAway notes that a call was taken and the handshake failed by err. It counts only where the other side has ended
// the connection or was silent: one that says something the head would not is a stranger.
func (e *early) turnedAway(address string, err error) {
	if _, not := errors.AsType[*stranger](err); e.took == "" && !not {
		e.took = address
	}
}

// bereft tells, once, that an address which refuses us now has taken a call before.
func (e *early) bereft(address string) bool {
	news := !e.closed && address == e.took
	e.closed = e.closed || news
	return news
}

// refusalTime is how long a kernel may take to say that nobody listens.
const refusalTime = 300 * time.Millisecond

// Deserted tells whether the head's host refuses connections at every address that the head has offered and this node
// can resolve: then its daemon has died. An address that does not answer at once does not refuse.
func (w *Worker) Deserted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	var refused, other atomic.Bool
	var calls sync.WaitGroup
	for _, address := range w.offered {
		calls.Go(func() {
			conn, err := w.network.Dial(ctx, address)
			_, nameless := errors.AsType[*net.DNSError](err)
			switch {
			case nameless:
			case errors.Is(err, syscall.ECONNREFUSED):
				refused.Store(true)
			default:
				other.Store(true)
			}
			if err == nil {
				abort(conn)
			}
		})
	}
	calls.Wait()
	return refused.Load() && !other.Load()
}
