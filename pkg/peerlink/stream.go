package peerlink

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// StreamKind is what an additional connection is for, of a worker or of a process outside the job. Additional connections exist so
// that other data does not delay heartbeats.
type StreamKind uint32

// The purposes. Each is a bit in the node index that a worker claims.
const (
	RendezvousStream StreamKind = 1 << 31 // the rendezvous of ranks
	CommandStream    StreamKind = 1 << 30 // commands on other nodes
	DoctorStream     StreamKind = 1 << 29 // connection tests and clock comparison of bringupd doctor
	CallerStream     StreamKind = 1 << 28 // of a process outside the job: commands on the nodes
)

// streamKindMask is a mask of all purposes.
const streamKindMask = uint32(RendezvousStream | CommandStream | DoctorStream | CallerStream)

// StreamHandler handles an additional connection of a worker until the other side or ctx ends, and
// closes it.
type StreamHandler = func(ctx context.Context, node int, conn io.ReadWriteCloser)

// HandleStreams makes the head accept additional connections for a purpose, and sets their handler.
// It must be called before Run.
func (h *Head) HandleStreams(purpose StreamKind, serve StreamHandler) {
	h.streamHandlers[purpose] = serve
}

// StreamDialer returns a function that calls [DialStream] with these arguments.
func StreamDialer(
	purpose StreamKind, key []byte, node int, network Network, addresses []string,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		return DialStream(ctx, purpose, key, node, network, addresses)
	}
}

// DialStream opens an additional connection of a worker to the head, for the handler that was set
// by [Head.HandleStreams]. It tries the head's addresses in turn. A head with too many connections
// before their handshakes closes the oldest, which may be this one: then it tries again.
func DialStream(ctx context.Context, purpose StreamKind, key []byte, node int, network Network,
	addresses []string) (net.Conn, error) {
	from := headDialer{network: network, key: key, node: node | int(purpose)}
	fillRandom(from.identity[:])
	for wait := minReconnectPause; ; wait *= 2 {
		conn, dropped, err := from.dialAny(ctx, addresses)
		if !dropped || wait > maxStreamRetryPause || !ctxutil.SleepContext(ctx, wait/2+rand.N(wait)) {
			return conn, err
		}
	}
}

// maxStreamRetryPause is about the longest pause between two tries: [DialStream] gives up instead
// of waiting longer.
const maxStreamRetryPause = 320 * time.Millisecond

// dialAny tries the addresses in turn. dropped reports whether a server has accepted the
// connection, and closed it before the end of the handshake.
func (c headDialer) dialAny(ctx context.Context, addresses []string) (conn net.Conn, dropped bool, err error) {
	err = errors.New("the head offers no peer links")
	for _, address := range addresses {
		proven, took, failed := c.dialAddress(ctx, address)
		if failed == nil {
			return proven, false, nil
		}
		ended := errors.Is(failed, io.EOF) || errors.Is(failed, syscall.ECONNRESET) || errors.Is(failed, syscall.EPIPE)
		dropped, err = dropped || took && ended, failed
	}
	return nil, dropped, err
}
