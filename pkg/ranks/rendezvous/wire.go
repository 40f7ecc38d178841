package rendezvous

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/pkg/ranks/rendezvous/client"
)

// Kinds of messages. Requests of a node are numbered, and are sent again on each new connection
// until they are answered.
const (
	kindHello             = "hello"  // node: opens a connection; Seqs are the unanswered requests
	kindEnter             = "enter"  // node: all local ranks have entered; answered by the release
	kindGet               = "get"    // node: answered when the value is available or never will be
	kindPush              = "push"   // node: values that the head requested
	kindRankEnded         = "ended"  // node: a rank ended; with all values that it committed
	kindAbort             = "abort"  // node: a rank aborted the job
	kindSubscribe         = "listen" // node: subscribes to the events after the first Events ones
	kindQueryMissing      = "who"    // node: query for the missing ranks of a fence or a get
	kindLocalMissing      = "here"   // node: the local missing ranks
	kindCall              = "call"   // node: request to execute the operation Name
	kindOrderDone         = "done"   // node: the result of an order
	kindAnswer            = "answer" // head: the answer to the request Seq
	kindRequestPush       = "want"   // head: push this value as soon as it is committed
	kindQueryLocalMissing = "census" // head: query for the missing ranks of this node
	kindOrder             = "order"  // head: request to execute the operation Name
	kindEvent             = "event"  // head: an event
)

// valueKey identifies a value by its key and owner. The owner is a rank's number, or "n" and a
// node's number, or empty for any owner.
type valueKey struct {
	Key   string `json:"k"`
	Owner string `json:"o,omitempty"`
}

// entry is a value with its key. In a message, the bytes of all values follow the header in the
// order of the entries.
type entry struct {
	valueKey
	Size  int    `json:"n"`
	value []byte // in a received message a part of its data
}

// message is a message between a node and the head, in either direction. Fields that are not
// commented have the meaning that its kind gives them.
type message struct {
	Kind string `json:"kind"`
	Seq  uint64 `json:"seq,omitempty"`
	// kindHello: unanswered requests; else: answers received
	Seqs    []uint64 `json:"seqs,omitempty"`
	Events  int      `json:"events,omitempty"`
	Name    string   `json:"name,omitempty"`
	Number  int      `json:"gen,omitempty"` // round of a fence, or number of an order
	Group   string   `json:"of,omitempty"`  // fence's group, from Group.Ranks
	Collect bool     `json:"collect,omitempty"`
	// query: log the Nth warning of this fence; 0: none
	Warning int `json:"warning,omitempty"`
	// kindHello and kindSubscribe: the node subscribes to events
	Listen  bool     `json:"listen,omitempty"`
	Slot    valueKey `json:"slot,omitzero"`
	Entries []entry  `json:"entries,omitempty"`
	Rank    int      `json:"rank,omitempty"`
	Ranks   []int    `json:"ranks,omitempty"`
	// number of entries of the ended rank into each fence
	Entered map[string]int `json:"entered,omitempty"`
	Text    string         `json:"words,omitempty"`
	Error   string         `json:"error,omitempty"`
	Invalid bool           `json:"wrong,omitempty"` // the error is an invalid request
	Event   *client.Event  `json:"event,omitempty"`
	Size    int            `json:"size,omitempty"` // size of data, which follows the values of Entries
	data    []byte
}

// Limits of received messages, in bytes. They guard against defects only, because messages of the
// nodes are authenticated with the head's key.
const (
	maxHeaderSize = 64 << 20
	maxDataSize   = 1 << 30
	// maxCollectedSize limits the values that the release of a fence delivers to each node, in bytes.
	maxCollectedSize = 64 << 20
	// maxBroadcastSize limits the data of a fence that is sent to the nodes although none of them
	// needs all of it, in bytes for all nodes together: 8 MB to each of 1,024 nodes would keep the
	// head busy for seconds.
	maxBroadcastSize = 256 << 20
)

// writeTo writes a message: the lengths of header and data, four bytes each in big-endian order,
// then the header as JSON, then the data.
func (m *message) writeTo(to io.Writer) error {
	m.Size = len(m.data)
	size := m.Size
	for i := range m.Entries {
		size += len(m.Entries[i].value)
	}
	header, err := json.Marshal(m)
	if err != nil {
		return err
	}
	frame := make([]byte, 8, 8+len(header)+size)
	binary.BigEndian.PutUint32(frame, uint32(len(header)))
	binary.BigEndian.PutUint32(frame[4:], uint32(size))
	frame = append(frame, header...)
	for i := range m.Entries {
		frame = append(frame, m.Entries[i].value...)
	}
	frame = append(frame, m.data...)
	_, err = to.Write(frame)
	return err
}

// readMessage reads the next message.
func readMessage(from io.Reader) (*message, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(from, lengths[:]); err != nil {
		return nil, err
	}
	header, size := binary.BigEndian.Uint32(lengths[:]), binary.BigEndian.Uint32(lengths[4:])
	if header > maxHeaderSize || size > maxDataSize {
		return nil, fmt.Errorf("cannot read a message: its header of %d bytes or its data of %d bytes is too large", header, size)
	}
	frame := make([]byte, int(header)+int(size))
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	m := new(message)
	if err := json.Unmarshal(frame[:header], m); err != nil {
		return nil, err
	}
	// Distribute the data to the entries; the rest belongs to the message itself.
	data := frame[header:]
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Size < 0 || e.Size > len(data) {
			return nil, fmt.Errorf("cannot read a message: the size of %s is %d bytes, but %d are left", e.Key, e.Size, len(data))
		}
		e.value, data = data[:e.Size:e.Size], data[e.Size:]
	}
	if m.Size != len(data) {
		return nil, fmt.Errorf("cannot read a message: its data has %d bytes instead of %d", len(data), m.Size)
	}
	m.data = data
	return m, nil
}

// newEntry returns the entry of a value.
func newEntry(at valueKey, value []byte) entry {
	return entry{valueKey: at, Size: len(value), value: value}
}

// validateKey returns an error if a key is not valid.
func validateKey(key string) error {
	if len(key) == 0 || len(key) > client.MaxKeyLength {
		return fmt.Errorf("cannot use a key of %d bytes: 1 to %d are accepted", len(key), client.MaxKeyLength)
	}
	if at := strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }); at >= 0 {
		return fmt.Errorf("cannot use the key %q: byte %d is not printable ASCII without spaces", key, at)
	}
	return nil
}

// awaitSignal waits until a value can be received from bell, or until ctx ends. It reports whether
// it received one.
func awaitSignal(ctx context.Context, bell <-chan struct{}) bool {
	select {
	case <-bell:
		return true
	case <-ctx.Done():
		return false
	}
}
