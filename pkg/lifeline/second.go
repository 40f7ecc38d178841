package lifeline

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Purpose is what an additional connection of a worker is for. Additional connections exist so that
// other data does not delay heartbeats.
type Purpose uint32

// The purposes. Each is a bit in the node index that a worker claims.
const (
	ForMeeting Purpose = 1 << 31 // the rendezvous of ranks
	ForRemote  Purpose = 1 << 30 // commands on other nodes
	ForDoctor  Purpose = 1 << 29 // connection tests and clock comparison of bringupd doctor
)

// purposes is a mask of all purposes.
const purposes = uint32(ForMeeting | ForRemote | ForDoctor)

// Serve handles an additional connection of a worker until the other side or ctx ends, and closes
// it.
type Serve = func(ctx context.Context, rank int, conn io.ReadWriteCloser)

// Meet makes the head accept additional connections for a purpose, and sets their handler. It must
// be called before Run.
func (h *Head) Meet(purpose Purpose, serve Serve) { h.second[purpose] = serve }

// Caller returns a function that calls [Call] with these arguments.
func Caller(
	purpose Purpose, key []byte, rank int, network Network, addresses []string,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		return Call(ctx, purpose, key, rank, network, addresses)
	}
}

// Call opens an additional connection of a worker to the head, for the handler that was set by
// [Head.Meet]. It tries the head's addresses in turn. A head with too many connections before their
// handshakes closes the oldest, which may be this one: then it tries again.
func Call(ctx context.Context, purpose Purpose, key []byte, rank int, network Network, addresses []string) (net.Conn, error) {
	from := caller{network: network, key: key, rank: rank | int(purpose)}
	draw(from.self[:])
	for wait := firstPause; ; wait *= 2 {
		conn, dropped, err := from.callAll(ctx, addresses)
		if !dropped || wait > lastCallPause || !pause.For(ctx, wait/2+rand.N(wait)) {
			return conn, err
		}
	}
}

// lastCallPause is about the longest pause between two tries: [Call] gives up instead of waiting
// longer.
const lastCallPause = 320 * time.Millisecond

// callAll tries the addresses in turn. dropped reports whether a server has accepted the
// connection, and closed it before the end of the handshake.
func (c caller) callAll(ctx context.Context, addresses []string) (conn net.Conn, dropped bool, err error) {
	err = errors.New("the head offers no lifelines")
	for _, address := range addresses {
		proven, took, failed := c.reach(ctx, address)
		if failed == nil {
			return proven, false, nil
		}
		ended := errors.Is(failed, io.EOF) || errors.Is(failed, syscall.ECONNRESET) || errors.Is(failed, syscall.EPIPE)
		dropped, err = dropped || took && ended, failed
	}
	return nil, dropped, err
}
