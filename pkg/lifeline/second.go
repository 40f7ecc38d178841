package lifeline

import (
	"context"
	"errors"
	"io"
	"net"
)

// Purpose is what a worker calls a second time for: the data of such a connection is not to delay the beats.
type Purpose uint32

// The purposes, each a bit of the rank that a worker claims.
const (
	ForMeeting Purpose = 1 << 31 // its ranks meet those of the others
	ForRemote  Purpose = 1 << 30 // commands are run on other nodes
)

const purposes = uint32(ForMeeting | ForRemote)

// Serve is what has a worker's connection from then on, until ctx ends, and closes it.
type Serve = func(ctx context.Context, rank int, conn io.ReadWriteCloser)

// Meet has workers let in that call for a purpose. It comes before Run.
func (h *Head) Meet(purpose Purpose, serve Serve) { h.second[purpose] = serve }

// Caller is Call, whenever there is something to say.
func Caller(
	purpose Purpose, key string, rank int, network Network, addresses []string,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		return Call(ctx, purpose, key, rank, network, addresses)
	}
}

// Call returns a connection of a worker that Meet's serve has the other end of, from the first of the head's addresses
// that answers.
func Call(ctx context.Context, purpose Purpose, key string, rank int, network Network, addresses []string) (net.Conn, error) {
	from := caller{network: network, key: key, rank: rank | int(purpose)}
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
