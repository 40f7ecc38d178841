package peerlink

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
	recordHeaderSize = 2
	maxPayload       = 16 << 10
	maxRecord        = recordHeaderSize + maxPayload + tagSize
	// receiveBufferSize is the size of the receive buffer that each connection has: room for some
	// frames.
	receiveBufferSize = 64
	// smallFramePayload is the maximum payload for which [secureConn.tryWriteFrame] needs no memory.
	smallFramePayload = 2
)

// errForged means that a record was not sent by the other side, or not at this position.
var errForged = errors.New("cannot decrypt a record: it was changed in transit")

// recordBuffers is a pool of buffers for one record each.
var recordBuffers = sync.Pool{New: func() any { return new([maxRecord]byte) }}

// secureConn is an encrypted and authenticated connection, on which both sides have proven that
// they know the key. Write is safe for concurrent use, also with Read. Read is for one goroutine at
// a time. An idle connection needs only the small receive buffer.
type secureConn struct {
	net.Conn // carries the records

	decrypter     *noise.CipherState
	received      [receiveBufferSize]byte // received data; from begin to end not decrypted yet
	begin         int
	end           int
	largeRecord   *[maxRecord]byte // buffer of a record that does not fit into in; nil once it is read
	largeReceived int              // number of bytes received into large
	plaintext     []byte           // decrypted data that Read has not returned yet, in one of the two buffers
	readErr       error            // errForged after a record that cannot be decrypted

	writeMu    sync.Mutex
	encrypter  *noise.CipherState // guarded by the write mutex
	writeErr   error              // a record was written incompletely; guarded by the write mutex
	sendBuffer [recordHeaderSize + smallFramePayload + tagSize]byte
	unsent     []byte // unsent part of the buffer; guarded by the write mutex
}

// Read implements [net.Conn].
func (c *secureConn) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if len(c.plaintext) == 0 {
		if c.readErr != nil {
			return 0, c.readErr
		}
		record, err := c.readRecord()
		if err != nil {
			return 0, err
		}
		if c.plaintext, err = c.decrypter.Decrypt(record[:0], nil, record); err != nil {
			return 0, c.failForged()
		}
	}
	n := copy(into, c.plaintext)
	c.consume(n)
	return n, nil
}

// consume removes decrypted data that was read, and releases the buffer of a record without any
// more.
func (c *secureConn) consume(n int) {
	c.plaintext = c.plaintext[n:]
	if len(c.plaintext) == 0 && c.largeRecord != nil {
		recordBuffers.Put(c.largeRecord)
		c.largeRecord = nil
	}
}

// appendRest appends the data of the present record that Read has not returned yet.
func (c *secureConn) appendRest(data []byte) []byte {
	data = append(data, c.plaintext...)
	c.consume(len(c.plaintext))
	return data
}

// failForged resets the connection, which does not look like the death of this daemon, and returns
// errForged.
func (c *secureConn) failForged() error {
	c.readErr = errForged
	resetConn(c.Conn)
	return errForged
}

// readRecord returns the ciphertext of the next record, which is valid until the next call. It can
// be called again after a network error, for example when a deadline has passed.
func (c *secureConn) readRecord() ([]byte, error) {
	if err := c.fillBuffer(recordHeaderSize); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(c.received[c.begin:]))
	if size <= tagSize || size > maxPayload+tagSize {
		return nil, c.failForged() // neither side sends such a record
	}
	// A small record is received into the small buffer.
	if whole := recordHeaderSize + size; whole <= len(c.received) {
		if err := c.fillBuffer(whole); err != nil {
			return nil, err
		}
		record := c.received[c.begin+recordHeaderSize : c.begin+whole]
		c.begin += whole
		return record, nil
	}
	// A large record is received into a buffer of the pool. Begin with what the small buffer has of
	// it.
	if c.largeRecord == nil {
		c.largeRecord = recordBuffers.Get().(*[maxRecord]byte)
		c.largeReceived = copy(c.largeRecord[:], c.received[c.begin+recordHeaderSize:c.end])
		c.end = c.begin + recordHeaderSize // the header stays until the record is complete
	}
	for c.largeReceived < size {
		n, err := c.Conn.Read(c.largeRecord[c.largeReceived:size])
		if c.largeReceived += n; err != nil && c.largeReceived < size {
			return nil, truncationError(err)
		}
	}
	c.begin, c.end = 0, 0
	return c.largeRecord[:size], nil
}

// fillBuffer receives until the small buffer has the given number of bytes.
func (c *secureConn) fillBuffer(bytes int) error {
	if c.begin == c.end || c.begin+bytes > len(c.received) {
		c.begin, c.end = 0, copy(c.received[:], c.received[c.begin:c.end])
	}
	for c.end-c.begin < bytes {
		n, err := c.Conn.Read(c.received[c.end:])
		c.end += n
		switch {
		case err == nil || c.end-c.begin >= bytes:
		case c.end > c.begin:
			return truncationError(err)
		default:
			return err
		}
	}
	return nil
}

// truncationError returns the error of a connection that ends within a record: io.ErrUnexpectedEOF
// instead of io.EOF.
func truncationError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sealRecord appends data to out as an encrypted record. The write mutex must be held.
func (c *secureConn) sealRecord(out, payload []byte) ([]byte, error) {
	out = binary.BigEndian.AppendUint16(out, uint16(len(payload)+tagSize))
	return c.encrypter.Encrypt(out, nil, payload)
}

// Write implements [net.Conn]. It sends up to 16 KiB as one record, with one write to the network.
func (c *secureConn) Write(data []byte) (written int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	buffer := recordBuffers.Get().(*[maxRecord]byte)
	defer recordBuffers.Put(buffer)
	for written < len(data) && c.writeErr == nil {
		record := append(buffer[:0], c.unsent...)
		payload := data[written:min(len(data), written+maxPayload-len(c.unsent))]
		c.unsent = nil
		if record, c.writeErr = c.sealRecord(record, payload); c.writeErr == nil {
			_, c.writeErr = c.Conn.Write(record)
		}
		if c.writeErr == nil {
			written += len(payload)
		}
	}
	return written, c.writeErr
}

// tryWriteFrame sends a frame of at most maxPayload bytes as one record, without waiting. try sends
// as much of it as possible at once, and returns the number of bytes. The unsent rest of a record is
// sent before the next one. Until it is sent, frames are dropped: then it returns false.
func (c *secureConn) tryWriteFrame(try func(record []byte) int, frame ...byte) bool {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if len(c.unsent) > 0 {
		c.unsent = c.unsent[try(c.unsent):]
	}
	if len(c.unsent) > 0 || c.writeErr != nil {
		return false
	}
	record, err := c.sealRecord(c.sendBuffer[:0], frame)
	if err != nil {
		c.writeErr = fmt.Errorf("cannot encrypt: %w", err)
		return false
	}
	c.unsent = record[try(record):]
	return true
}

// writeFixed sends an encrypted payload without a length, because both sides know its size.
func (c *secureConn) writeFixed(payload ...byte) error {
	sealed, err := c.encrypter.Encrypt(nil, nil, payload)
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
	if _, err := c.decrypter.Decrypt(payload[:0], nil, sealed); err != nil {
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
