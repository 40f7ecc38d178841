package lifeline

import (
	"context"
	"errors"
	"io"
	"net"
)

// meetingFlag is set in the rank of a worker that calls a second time, for its ranks' meetings: their data is not to delay
// the beats.
const meetingFlag = 1 << 31

// Meet has workers let in that call for their ranks' meetings, and their connections served until ctx ends: serve closes
// them. It comes before Run.
func (h *Head) Meet(serve func(ctx context.Context, rank int, conn io.ReadWriteCloser)) {
	h.meet = serve
}

// Caller is Call, whenever there is something to say.
func Caller(key string, rank int, network Network, addresses []string) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return Call(ctx, key, rank, network, addresses) }
}

// Call returns a connection of a worker that Meet's serve has the other end of, from the first of the head's addresses
// that answers.
func Call(ctx context.Context, key string, rank int, network Network, addresses []string) (net.Conn, error) {
	from := caller{network: network, key: key, rank: rank | meetingFlag}
	draw(from.self[:])
	err := errors.New("the head offers no lifelines")
	for _, address := range addresses {
		var conn net.Conn
		if conn, _, err = from.reach(ctx, address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
