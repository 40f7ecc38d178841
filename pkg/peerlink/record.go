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
	// smallFramePayload is the maximum payload for which [secureConn.tryWriteFrame] needs no memory.
	smallFramePayload = 2
)

// errForged means that a record was not sent by the other side, or not at this position.
var errForged = errors.New("cannot decrypt a record: it was changed in transit")

var recordBuffers = sync.Pool{New: func() any { return new([maxRecord]byte) }}

// secureConn is an encrypted and authenticated connection, on which both sides have proven that
// they know the key. Write is safe for concurrent use, also with Read. Read is for one goroutine at
// a time. An idle connection holds no buffer.
type secureConn struct {
	net.Conn // carries the records

	decrypter *noise.CipherState
	header    [recordHeaderSize]byte
	buffer    *[maxRecord]byte // the present record's; nil if there is none
	plaintext []byte           // decrypted data in the buffer that Read has not returned yet
	readErr   error            // errForged after a record that cannot be decrypted

	writeMu    sync.Mutex
	encrypter  *noise.CipherState // guarded by the write mutex
	writeErr   error              // a record was written incompletely; guarded by the write mutex
	sendBuffer [recordHeaderSize + smallFramePayload + tagSize]byte
	unsent     []byte // unsent part of the buffer; guarded by the write mutex
}

// Read implements [net.Conn]. An error within a record is final.
func (c *secureConn) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if len(c.plaintext) == 0 {
		if err := c.readRecord(); err != nil {
			return 0, err
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
	if len(c.plaintext) == 0 && c.buffer != nil {
		recordBuffers.Put(c.buffer)
		c.buffer = nil
	}
}

// appendRest appends the data of the present record that Read has not returned yet.
func (c *secureConn) appendRest(data []byte) []byte {
	data = append(data, c.plaintext...)
	c.consume(len(c.plaintext))
	return data
}

// readRecord receives and decrypts the next record. The end of the connection is io.EOF between two
// records, and io.ErrUnexpectedEOF within one.
func (c *secureConn) readRecord() error {
	if c.readErr != nil {
		return c.readErr
	}
	if n, err := io.ReadFull(c.Conn, c.header[:]); err != nil {
		if n > 0 {
			c.readErr = err
		}
		return err
	}
	size := int(binary.BigEndian.Uint16(c.header[:]))
	if size <= tagSize || size > maxPayload+tagSize {
		return c.failForged() // neither side sends such a record
	}
	c.buffer = recordBuffers.Get().(*[maxRecord]byte)
	record := c.buffer[:size]
	_, err := io.ReadFull(c.Conn, record)
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case err == nil:
		if c.plaintext, err = c.decrypter.Decrypt(record[:0], nil, record); err != nil {
			err = c.failForged()
		}
	}
	if err != nil {
		c.readErr = err
		c.consume(0)
	}
	return err
}

// failForged resets the connection, which does not look like the death of this daemon, and returns
// errForged.
func (c *secureConn) failForged() error {
	c.readErr = errForged
	resetConn(c.Conn)
	return errForged
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
