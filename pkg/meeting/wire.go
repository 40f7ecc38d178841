package meeting

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/pkg/meeting/client"
)

// What a message is. A node's requests are numbered and are sent again on each new connection until they are answered.
const (
	kindHello  = "hello"  // of a node: a new connection; Seqs are the requests that it still has
	kindEnter  = "enter"  // all ranks of the node have entered; answered by the release
	kindGet    = "get"    // answered when there is a value, or never will be
	kindPush   = "push"   // what the head wants
	kindEnded  = "ended"  // a rank has ended, with all that it has committed
	kindAbort  = "abort"  // of a rank
	kindListen = "listen" // somebody watches: from the event after Events on
	kindWho    = "who"    // who is missing in a fence, or at a get
	kindHere   = "here"   // answers the head's census
	kindCall   = "call"   // the operation Name, for who serves it at the head
	kindDone   = "done"   // what came of the head's order Gen
	kindAnswer = "answer" // of the head, to the request Seq
	kindWant   = "want"   // of the head: push this as soon as it is committed
	kindCensus = "census" // of the head: who is missing on your node
	kindOrder  = "order"  // of the head: do the operation Name; Gen counts the orders
	kindEvent  = "event"  // of the head
)

// slot is where a value is: owner is a rank's number, n and a node's, or empty for anybody.
type slot struct {
	Key   string `json:"k"`
	Owner string `json:"o,omitempty"`
}

// entry is a value of which the bytes are in the message's data, one after the other.
type entry struct {
	slot
	Size  int    `json:"n"`
	value []byte // of a message that was read, a part of its data
}

// message is what a node and the head tell each other.
type message struct {
	Kind    string         `json:"kind"`
	Seq     uint64         `json:"seq,omitempty"`
	Seqs    []uint64       `json:"seqs,omitempty"` // of hello; else the answers that have come
	Events  int            `json:"events,omitempty"`
	Name    string         `json:"name,omitempty"`
	Gen     int            `json:"gen,omitempty"`
	Of      string         `json:"of,omitempty"` // whose fence it is, as a Group has it
	Collect bool           `json:"collect,omitempty"`
	Warning int            `json:"warning,omitempty"` // of who: it is to be told to people for the first time, the second and so on
	Listen  bool           `json:"listen,omitempty"`  // of hello and listen
	Slot    slot           `json:"slot,omitzero"`
	Entries []entry        `json:"entries,omitempty"`
	Rank    int            `json:"rank,omitempty"`
	Ranks   []int          `json:"ranks,omitempty"`
	Entered map[string]int `json:"entered,omitempty"` // of ended: how often which fence
	Words   string         `json:"words,omitempty"`
	Error   string         `json:"error,omitempty"`
	Wrong   bool           `json:"wrong,omitempty"` // the error is that the question was wrong
	Event   *client.Event  `json:"event,omitempty"`
	Size    int            `json:"size,omitempty"` // of data, which comes after the entries'
	data    []byte
}

// Bounds of what is read: the head's key makes sure that a node has sent it.
const (
	mostHeader = 64 << 20
	mostData   = 1 << 30
	// mostCollected bounds what a fence brings to each node, in bytes.
	mostCollected = 64 << 20
	// mostSpread bounds what the head sends at once for a gathering of which nobody needs all, in bytes for all nodes together: 8 MB
	// to each of 1,024 nodes would keep it busy for seconds.
	mostSpread = 256 << 20
)

// write writes the message: the lengths of header and data, four bytes each, and these.
func (m *message) write(to io.Writer) error {
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

// read reads the next message.
func read(from io.Reader) (*message, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(from, lengths[:]); err != nil {
		return nil, err
	}
	header, size := binary.BigEndian.Uint32(lengths[:]), binary.BigEndian.Uint32(lengths[4:])
	if header > mostHeader || size > mostData {
		return nil, fmt.Errorf("cannot read a message of %d and %d bytes", header, size)
	}
	frame := make([]byte, int(header)+int(size))
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	m := new(message)
	if err := json.Unmarshal(frame[:header], m); err != nil {
		return nil, err
	}
	data := frame[header:]
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Size < 0 || e.Size > len(data) {
			return nil, fmt.Errorf("cannot read a message: %s has %d bytes of %d", e.Key, e.Size, len(data))
		}
		e.value, data = data[:e.Size:e.Size], data[e.Size:]
	}
	if m.Size != len(data) {
		return nil, fmt.Errorf("cannot read a message: its data has %d bytes of %d", len(data), m.Size)
	}
	m.data = data
	return m, nil
}

func entryOf(at slot, value []byte) entry { return entry{slot: at, Size: len(value), value: value} }

// checkKey says what is wrong with a key.
func checkKey(key string) error {
	if len(key) == 0 || len(key) > client.LongestKey {
		return fmt.Errorf("cannot use a key of %d bytes: 1 to %d are accepted", len(key), client.LongestKey)
	}
	if at := strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }); at >= 0 {
		return fmt.Errorf("cannot use the key %q: byte %d is not printable ASCII without spaces", key, at)
	}
	return nil
}

// rung waits for a bell until ctx ends; it tells whether it rang.
func rung(ctx context.Context, bell <-chan struct{}) bool {
	select {
	case <-bell:
		return true
	case <-ctx.Done():
		return false
	}
}
