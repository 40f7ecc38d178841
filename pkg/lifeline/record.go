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

// A record is a length of two bytes, that of the ciphertext which follows. The ciphertext ends with
// its tag. Its nonce is the number of records sent before, so a record that is repeated, left out
// or moved does not decrypt.
const (
	recordHeader = 2
	maxPayload   = 16 << 10
	maxRecord    = recordHeader + maxPayload + tagSize
	// smallRecord is the room for received records that each connection has: some frames of a link.
	smallRecord = 64
	// maxFrame is the largest payload of offer.
	maxFrame = 2
)

// errForged means that a record was not sent by the other side, or not at this place.
var errForged = errors.New("cannot decrypt a record: what was sent has been changed on its way")

// records are buffers for one record each.
var records = sync.Pool{New: func() any { return new([maxRecord]byte) }}

// secureConn is a connection whose sides have both proven that they know the key. What is written
// to it is encrypted and authenticated. Write is safe for concurrent use, also with Read; Read is
// for one goroutine at a time. An idle connection holds no buffer but the small one.
type secureConn struct {
	net.Conn // carries the records

	receives *noise.CipherState
	in       [smallRecord]byte // received and not decrypted: from begin to end
	begin    int
	end      int
	large    *[maxRecord]byte // a record that in has no room for, until it is read; otherwise nil
	filled   int              // bytes of large that were received
	plain    []byte           // decrypted and not read, in one of the two buffers
	failed   error            // errForged, once it has occurred

	sending sync.Mutex
	sends   *noise.CipherState // guarded by sending
	broken  error              // a part of a record could not be written; guarded by sending
	out     [recordHeader + maxFrame + tagSize]byte
	rest    []byte // of out, what offer could not send; guarded by sending
}

// Read implements net.Conn.
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

// reject ends the connection, in a way that the other side does not take for the end of this
// process.
func (c *secureConn) reject() error {
	c.failed = errForged
	abort(c.Conn)
	return errForged
}

// receive returns the ciphertext of the next record, which is valid until the next call. It can be
// called again after an error of the network, for example when a deadline has passed.
func (c *secureConn) receive() ([]byte, error) {
	if err := c.fill(recordHeader); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(c.in[c.begin:]))
	if size <= tagSize || size > maxPayload+tagSize {
		return nil, c.reject() // no side sends such a record
	}
	if whole := recordHeader + size; whole <= len(c.in) {
		if err := c.fill(whole); err != nil {
			return nil, err
		}
		record := c.in[c.begin+recordHeader : c.begin+whole]
		c.begin += whole
		return record, nil
	}
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

// fill receives until in holds that many bytes.
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

// truncated returns the error of a connection that ends within a record.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// seal appends a record to out. It needs sending.
func (c *secureConn) seal(out, payload []byte) ([]byte, error) {
	out = binary.BigEndian.AppendUint16(out, uint16(len(payload)+tagSize))
	return c.sends.Encrypt(out, nil, payload)
}

// Write implements net.Conn. Up to 16 KiB are one record, and are passed to the network at once.
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

// offer sends a frame of at most maxFrame bytes as a record if try, which returns how many bytes it
// has sent, sends it at once. What it has not sent of the record goes before the next one, and
// until it has gone frames are dropped.
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

// writeFixed sends bytes whose number both sides know.
func (c *secureConn) writeFixed(payload ...byte) error {
	sealed, err := c.sends.Encrypt(nil, nil, payload)
	if err == nil {
		_, err = c.Conn.Write(sealed)
	}
	return err
}

// readFixed receives bytes whose number both sides know.
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

// CloseWrite ends what this side sends, if the network can do that.
func (c *secureConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
