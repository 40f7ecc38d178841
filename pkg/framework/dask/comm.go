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

// largest is the largest answer that is read: a worker takes about a kilobyte.
const largest = 256 << 20

// What is sent, in MessagePack: a map of one byte's length, texts of one byte's.
var (
	// What Dask's programs tell each other first. None is the compression, and 5 the
	// version of pickle, which every Python has since 3.8; nothing is pickled here.
	greeting = []byte("\x82\xabcompression\xc0\xafpickle-protocol\x05")
	question = func(op string) []byte {
		return append(append([]byte("\x82\xa2op"), 0xa0|byte(len(op))), op+"\xa5reply\xc3"...)
	}
)

// ask asks a scheduler by Dask's own protocol: its pages would need no certificate.
// config is nil where it speaks no TLS; op is an operation without arguments, of
// less than 32 bytes. The answer is MessagePack. It gives up when ctx ends.
func ask(ctx context.Context, address string, config *tls.Config, op string) ([]byte, error) {
	answer, err := exchange(ctx, address, config, op)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask the Dask scheduler at %s: %w", address, err)
	}
	return answer, nil
}

func exchange(ctx context.Context, address string, config *tls.Config, op string) ([]byte, error) {
	plain, err := health.Dial(ctx, "tcp", withoutScheme(address))
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }()
	// A closed connection ends whatever waits for it.
	defer context.AfterFunc(ctx, func() { _ = plain.Close() })()
	conn := plain
	if config != nil {
		conn = tls.Client(plain, config)
	}
	if _, err := conn.Write(append(framed(greeting), framed(question(op))...)); err != nil {
		return nil, err
	}
	if _, err := receive(conn); err != nil { // its greeting
		return nil, err
	}
	return receive(conn)
}

// framed is a message as it travels: the length of the rest, the number of frames,
// the length of each, and the frames.
func framed(message []byte) []byte {
	var b []byte
	for _, n := range []int{16 + len(message), 1, len(message)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return append(b, message...)
}

// receive reads a message and returns its first frame. Others would have what is
// pickled.
func receive(from io.Reader) ([]byte, error) {
	var length [8]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > largest {
		return nil, fmt.Errorf("it answers with %d bytes, which is no message of Dask's", n)
	}
	// Not allocated at once: the length may be a stranger's.
	message, err := io.ReadAll(io.LimitReader(from, int64(n)))
	if err == nil && uint64(len(message)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return firstFrame(message)
}

// firstFrame returns the first frame of what follows a message's length.
func firstFrame(message []byte) ([]byte, error) {
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
	return nil, errors.New("its answer is no message of Dask's")
}
