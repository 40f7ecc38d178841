package peerlink

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// firstContact is what a worker knows about the head before its first complete connection. The
// head's daemon may die after its kernel has accepted a connection and before the daemon has
// answered.
type firstContact struct {
	acceptedAddress string // address that accepted a connection, but not the handshake; empty if none
	finished        bool   // nothing more can be learned
}

// recordFailedHandshake records that the connection to address was accepted, but the handshake
// failed with err. The failure counts only if the other side closed the connection or stayed
// silent. A side that sends anything else is not the head.
func (e *firstContact) recordFailedHandshake(address string, err error) {
	if _, not := errors.AsType[*rejection](err); e.acceptedAddress == "" && !not {
		e.acceptedAddress = address
	}
}

// detectHeadDeath reports whether address, which refuses connections now, has accepted one before:
// then the head's daemon has died. It returns true only once.
func (e *firstContact) detectHeadDeath(address string) bool {
	news := !e.finished && address == e.acceptedAddress
	e.finished = e.finished || news
	return news
}

// refusalTimeout is the maximum time that a kernel takes to report a closed port.
const refusalTimeout = 300 * time.Millisecond

// IsHeadPortClosed reports whether the head's host refuses connections at every address of the head
// that this node can resolve, because then the head's daemon has died. An address without a
// response within 300 ms counts as one that does not refuse.
func (w *Worker) IsHeadPortClosed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	var refused, other atomic.Bool
	var calls sync.WaitGroup
	for _, address := range w.headAddresses {
		calls.Go(func() {
			conn, err := w.network.Dial(ctx, address)
			_, nameless := errors.AsType[*net.DNSError](err)
			switch {
			// An address that this node cannot resolve proves nothing.
			case nameless:
			case errors.Is(err, syscall.ECONNREFUSED):
				refused.Store(true)
			default:
				other.Store(true)
			}
			if err == nil {
				resetConn(conn)
			}
		})
	}
	calls.Wait()
	return refused.Load() && !other.Load()
}
