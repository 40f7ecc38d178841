package dask

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/bringupd/bringupd/pkg/health"
)

// maxResponseBytes is the maximum size of a response in bytes: a worker needs about a kilobyte.
const maxResponseBytes = 256 << 20

// Constant messages in MessagePack: a map and texts with lengths of one byte.
var (
	// greetingMessage is the first message of both sides. The compression is none, and the pickle
	// version is 5, which every Python since 3.8 has; nothing is pickled here.
	greetingMessage = []byte("\x82\xabcompression\xc0\xafpickle-protocol\x05")
	requestMessage  = func(op string) []byte {
		return append(append([]byte("\x82\xa2op"), 0xa0|byte(len(op))), op+"\xa5reply\xc3"...)
	}
)

// requestInfo sends a request to a scheduler by Dask's own protocol, because its pages would need
// no certificate. config is nil without TLS; op is an operation without arguments, of less than 32
// bytes. The response is MessagePack. It returns when ctx ends.
func requestInfo(ctx context.Context, address string, config *tls.Config, op string) ([]byte, error) {
	answer, err := exchangeMessages(ctx, address, config, op)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot query the Dask scheduler at %s: %w", address, err)
	}
	return answer, nil
}

func exchangeMessages(ctx context.Context, address string, config *tls.Config, op string) ([]byte, error) {
	plain, err := health.DialTrusted(ctx, "tcp", trimScheme(address))
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }()
	// Closing the connection ends all pending operations.
	defer context.AfterFunc(ctx, func() { _ = plain.Close() })()
	conn := plain
	if config != nil {
		conn = tls.Client(plain, config)
	}
	if _, err := conn.Write(append(frameMessage(greetingMessage), frameMessage(requestMessage(op))...)); err != nil {
		return nil, err
	}
	if _, err := receiveMessage(conn); err != nil { // its greeting
		return nil, err
	}
	return receiveMessage(conn)
}

// frameMessage returns a message in its format on the wire: the length of the rest, the number of
// frames, the length of each, and the frames.
func frameMessage(message []byte) []byte {
	var b []byte
	for _, n := range []int{16 + len(message), 1, len(message)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return append(b, message...)
}

// receiveMessage reads a message and returns its first frame. Other frames would contain pickled
// data.
func receiveMessage(from io.Reader) ([]byte, error) {
	var length [8]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxResponseBytes {
		return nil, fmt.Errorf("its response of %d bytes is not a Dask message", n)
	}
	// The buffer grows while data arrives, because the length may come from an attacker.
	message, err := io.ReadAll(io.LimitReader(from, int64(n)))
	if err == nil && uint64(len(message)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	const word = 8
	if len(message) >= word {
		frames, rest := binary.LittleEndian.Uint64(message), message[word:]
		if frames > 0 && frames <= uint64(len(rest)/word) {
			first, rest := binary.LittleEndian.Uint64(rest), rest[frames*word:]
			if first <= uint64(len(rest)) {
				return rest[:first], nil
			}
		}
	}
	return nil, errors.New("its response is not a Dask message")
}
