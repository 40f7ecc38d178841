package lifeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/flynn/noise"
)

// A record is a length of two bytes, and a ciphertext of that length, which ends with its
// authentication tag. Its nonce is the number of records sent before, so that a record that is
// repeated, dropped or moved cannot be decrypted.
const (
	recordHeader = 2
	maxPayload   = 16 << 10
	maxRecord    = recordHeader + maxPayload + tagSize
	// smallRecord is the size of the receive buffer that each connection has: room for some frames.
	smallRecord = 64
	// maxFrame is the maximum payload of [secureConn.offer].
	maxFrame = 2
)

// errForged means that a record was not sent by the other side, or not at this position.
var errForged = errors.New("cannot decrypt a record: what was sent has been changed on its way")

// records is a pool of buffers for one record each.
var records = sync.Pool{New: func() any { return new([maxRecord]byte) }}

// secureConn is an encrypted and authenticated connection, on which both sides have proven that
// they know the key. Write is safe for concurrent use, also with Read. Read is for one goroutine at
// a time. An idle connection needs only the small receive buffer.
type secureConn struct {
	net.Conn // carries the records

	receives *noise.CipherState
	in       [smallRecord]byte // received data; from begin to end not decrypted yet
	begin    int
	end      int
	large    *[maxRecord]byte // buffer of a record that does not fit into in; nil once it is read
	filled   int              // number of bytes received into large
	plain    []byte           // decrypted data that Read has not returned yet, in one of the two buffers
	failed   error            // errForged after a record that cannot be decrypted

	sending sync.Mutex
	sends   *noise.CipherState // guarded by the write mutex
	broken  error              // a record was written incompletely; guarded by the write mutex
	out     [recordHeader + maxFrame + tagSize]byte
	rest    []byte // unsent part of the buffer; guarded by the write mutex
}

// Read implements [net.Conn].
func (c *secureConn) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if len(c.plain) == 0 {
		if c.failed != nil {
			return 0, c.failed
		}
		record, err := c.receive()
		if err != nil {
			return 0, err
		}
		if c.plain, err = c.receives.Decrypt(record[:0], nil, record); err != nil {
			return 0, c.reject()
		}
	}
	n := copy(into, c.plain)
	c.plain = c.plain[n:]
	if len(c.plain) == 0 && c.large != nil {
		records.Put(c.large)
		c.large = nil
	}
	return n, nil
}

// reject resets the connection, which does not look like the death of this daemon, and returns
// errForged.
func (c *secureConn) reject() error {
	c.failed = errForged
	abort(c.Conn)
	return errForged
}

// receive returns the ciphertext of the next record, which is valid until the next call. It can be
// called again after a network error, for example when a deadline has passed.
func (c *secureConn) receive() ([]byte, error) {
	if err := c.fill(recordHeader); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(c.in[c.begin:]))
	if size <= tagSize || size > maxPayload+tagSize {
		return nil, c.reject() // neither side sends such a record
	}
	// A small record is received into the small buffer.
	if whole := recordHeader + size; whole <= len(c.in) {
		if err := c.fill(whole); err != nil {
			return nil, err
		}
		record := c.in[c.begin+recordHeader : c.begin+whole]
		c.begin += whole
		return record, nil
	}
	// A large record is received into a buffer of the pool. Begin with what the small buffer has of
	// it.
	if c.large == nil {
		c.large = records.Get().(*[maxRecord]byte)
		c.filled = copy(c.large[:], c.in[c.begin+recordHeader:c.end])
		c.end = c.begin + recordHeader // the header stays until the record is complete
	}
	for c.filled < size {
		n, err := c.Conn.Read(c.large[c.filled:size])
		if c.filled += n; err != nil && c.filled < size {
			return nil, truncated(err)
		}
	}
	c.begin, c.end = 0, 0
	return c.large[:size], nil
}

// fill receives until the small buffer has the given number of bytes.
func (c *secureConn) fill(bytes int) error {
	if c.begin == c.end || c.begin+bytes > len(c.in) {
		c.begin, c.end = 0, copy(c.in[:], c.in[c.begin:c.end])
	}
	for c.end-c.begin < bytes {
		n, err := c.Conn.Read(c.in[c.end:])
		c.end += n
		switch {
		case err == nil || c.end-c.begin >= bytes:
		case c.end > c.begin:
			return truncated(err)
		default:
			return err
		}
	}
	return nil
}

// truncated returns the error of a connection that ends within a record: io.ErrUnexpectedEOF
// instead of io.EOF.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// seal appends data to out as an encrypted record. The write mutex must be held.
func (c *secureConn) seal(out, payload []byte) ([]byte, error) {
	out = binary.BigEndian.AppendUint16(out, uint16(len(payload)+tagSize))
	return c.sends.Encrypt(out, nil, payload)
}

// Write implements [net.Conn]. It sends up to 16 KiB as one record, with one write to the network.
func (c *secureConn) Write(data []byte) (written int, err error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	buffer := records.Get().(*[maxRecord]byte)
	defer records.Put(buffer)
	for written < len(data) && c.broken == nil {
		record := append(buffer[:0], c.rest...)
		payload := data[written:min(len(data), written+maxPayload-len(c.rest))]
		c.rest = nil
		if record, c.broken = c.seal(record, payload); c.broken == nil {
			_, c.broken = c.Conn.Write(record)
		}
		if c.broken == nil {
			written += len(payload)
		}
	}
	return written, c.broken
}

// offer sends a frame of at most maxFrame bytes as one record, without waiting. try sends as much
// of it as possible at once, and returns the number of bytes. The unsent rest of a record is sent
// before the next one. Until it is sent, offer drops frames.
func (c *secureConn) offer(try func(record []byte) int, frame ...byte) {
	c.sending.Lock()
	defer c.sending.Unlock()
	if len(c.rest) > 0 {
		c.rest = c.rest[try(c.rest):]
	}
	if len(c.rest) > 0 || c.broken != nil {
		return
	}
	record, err := c.seal(c.out[:0], frame)
	if err != nil {
		c.broken = fmt.Errorf("cannot encrypt: %w", err)
		return
	}
	c.rest = record[try(record):]
}

// writeFixed sends an encrypted payload without a length, because both sides know its size.
func (c *secureConn) writeFixed(payload ...byte) error {
	sealed, err := c.sends.Encrypt(nil, nil, payload)
	if err == nil {
		_, err = c.Conn.Write(sealed)
	}
	return err
}

// readFixed receives a payload that the other side sends by [secureConn.writeFixed].
func (c *secureConn) readFixed(payload []byte) error {
	sealed := make([]byte, len(payload)+tagSize)
	if _, err := io.ReadFull(c.Conn, sealed); err != nil {
		return err
	}
	if _, err := c.receives.Decrypt(payload[:0], nil, sealed); err != nil {
		return errWrongKey
	}
	return nil
}

// CloseWrite ends the sending direction, if the network supports that.
func (c *secureConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
