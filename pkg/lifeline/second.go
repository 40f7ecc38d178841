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

// Purpose is what a worker calls a second time for: the data of such a connection is not to delay the beats.
type Purpose uint32

// The purposes, each a bit of the rank that a worker claims.
const (
	ForMeeting Purpose = 1 << 31 // its ranks meet those of the others
	ForRemote  Purpose = 1 << 30 // commands are run on other nodes
	ForDoctor  Purpose = 1 << 29 // bringupd doctor looks whether the head can be reached, and what time it has
)

const purposes = uint32(ForMeeting | ForRemote | ForDoctor)

// Serve is what has a worker's connection from then on, until ctx ends, and closes it.
type Serve = func(ctx context.Context, rank int, conn io.ReadWriteCloser)

// Meet has workers let in that call for a purpose. It comes before Run.
func (h *Head) Meet(purpose Purpose, serve Serve) { h.second[purpose] = serve }

// Caller is Call, whenever there is something to say.
func Caller(
	purpose Purpose, key []byte, rank int, network Network, addresses []string,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		return Call(ctx, purpose, key, rank, network, addresses)
	}
}

// Call returns a connection of a worker that Meet's serve has the other end of, from the first of the head's addresses
// that answers. A head that strangers keep busy drops the oldest connections, which may be ours: Call tries again then.
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

// lastCallPause is about the longest pause between two calls.
const lastCallPause = 320 * time.Millisecond

// callAll tries the addresses in turn. dropped reports whether one of them took the call and ended it.
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
